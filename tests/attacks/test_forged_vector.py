"""Somebody between the clients and the server changes a masked vector, or sends one in a client's name.

The attacker is a proxy, a relay, or whoever else the server's transport believes. It cannot read the vector, but need
not: it adds a constant, and the sum moves by that constant. Before vectors were signed, the server took the changed one
for the client's own, and the released model moved.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lowkey.federation import Reply
from lowkey.types import ClientId
from tests.attacks.ten_clients import CLIENTS, one_round

DEFENDS = (
    "Masked vectors, sealed shares and revealed shares are signed by the client that sends them. What is not genuine "
    "is not used, and its sender counts as dropped out."
)

VICTIM, OTHER = 3, 4


def changed(client: ClientId, reply: Reply) -> Reply:
    if client != VICTIM or reply.vector is None:
        return reply
    return replace(reply, vector=(reply.vector + np.uint32(5)) % np.uint32(2**20))


def lost(client: ClientId, reply: Reply) -> Reply | None:
    return None if client == VICTIM and reply.vector is not None else reply


def test_a_changed_vector_counts_as_dropped_out() -> None:
    outcome, without = one_round(on_the_way=changed), one_round(on_the_way=lost)
    assert outcome.survivors == CLIENTS - 1
    np.testing.assert_array_equal(outcome.state.weights, without.state.weights)


def test_the_vector_of_one_client_in_the_name_of_another() -> None:
    """A true answer of a true member, word for word, with its signature; only the name on it is false."""
    seen: dict[ClientId, Reply] = {}

    def swapped(client: ClientId, reply: Reply) -> Reply:
        if reply.vector is not None:
            seen[client] = reply
            return seen[VICTIM] if client == OTHER else reply
        return reply

    outcome = one_round(on_the_way=swapped)
    assert outcome.survivors == CLIENTS - 1
