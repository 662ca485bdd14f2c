"""A server that collects two lists of survivors, from nodes that have forgotten the first.

Flower sends a node's answer before it stores what the node remembers. A node that dies in between, or that handles two
messages at once, goes on from an older memory. With such memories at enough neighbours the server got signatures under
two lists, one with a victim and one without, and then shares of both of its secrets: its vector, without a mask.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest
from flwr.app import RecordDict

from lowkey.secagg import Links, Tally, accept_adverts, deliver, unmask
from lowkey.types import Words
from tests.attacks.asking_nodes import SMALL, LyingServer, Refused
from tests.flower.loopback import PRIVATE, Setting

DEFENDS = (
    "What a member confirms is in its own ledger, on disk, before the confirmation leaves; a node that is set back to "
    "any earlier memory of an attempt gives no second vector, and signs no second list of survivors."
)
MEMBERS, VICTIM = 4, 3
ALL = tuple(range(MEMBERS))
WITHOUT = ALL[:VICTIM]


@pytest.fixture
def server(tmp_path: Path) -> LyingServer:
    return LyingServer(Setting(tmp_path, PRIVATE[0], [*PRIVATE[1], *SMALL], nodes=MEMBERS))


def test_two_lists_of_survivors_do_not_unmask_a_victim(server: LyingServer) -> None:
    run = f"{server.name}/0123"
    adverts = server.advertise(run, 1)
    shares = server.share(1, adverts)
    vectors = {c: server.contribute(c, run, 1, adverts, shares) for c in ALL}
    masked = server.contexts()

    session = server.scheme.session(run, 1, 1, ALL, server.scheme.terms(server.weights.size, 1))
    links = Links(session, accept_adverts(session, adverts, server.verify_keys))

    def sum_of(survivors: tuple[int, ...]) -> Words:
        confirmations = [server.confirm(c, 1, survivors) for c in survivors]
        tally = Tally(links, deliver(links, shares, server.verify_keys))
        for client in survivors:
            tally.add(client, *vectors[client], server.verify_keys)
        tally.close()
        return unmask(tally, {c: server.reveal(c, 1, confirmations) for c in survivors}, server.verify_keys).vector

    everybody, stolen = sum_of(ALL), None
    server.roll_back(masked)
    with contextlib.suppress(Refused):
        stolen = (everybody - sum_of(WITHOUT)) % (1 << session.bits)  # small numbers: clipped, and one share of noise
    assert stolen is None, "the server has the vector of one hospital"


@pytest.mark.parametrize("step", ["masked", "confirmed", "revealed"])
def test_from_every_memory_a_member_signs_the_list_that_it_signed_and_no_other(server: LyingServer, step: str) -> None:
    run, memories = f"{server.name}/0123", dict[str, Mapping[int, RecordDict]]()
    server.collect(run, 1)
    memories["masked"] = server.contexts()
    signed = [server.confirm(c, 1, ALL) for c in ALL]
    memories["confirmed"] = server.contexts()
    first = server.reveal(0, 1, signed)
    memories["revealed"] = server.contexts()

    server.roll_back(memories[step])
    with pytest.raises(Refused):
        server.confirm(0, 1, WITHOUT)
    if step == "masked":  # the same list again is no harm: the answer may have been lost
        assert server.confirm(0, 1, ALL) == signed[0]
    if step != "revealed":
        assert server.reveal(0, 1, signed) == first


@pytest.mark.parametrize("step", ["advertised", "shared"])
def test_from_no_memory_a_member_gives_a_second_vector(server: LyingServer, step: str) -> None:
    run, memories = f"{server.name}/0123", dict[str, Mapping[int, RecordDict]]()
    adverts = server.advertise(run, 1)
    memories["advertised"] = server.contexts()
    shares = server.share(1, adverts)
    memories["shared"] = server.contexts()
    server.contribute(0, run, 1, adverts, shares)
    server.roll_back(memories[step])
    if step == "advertised":
        shares = server.share(1, adverts)  # the same secrets in other shares, for those who had none before
    with pytest.raises(Refused):
        server.contribute(0, run, 1, adverts, shares)
    with pytest.raises(Refused):
        server.confirm(0, 1, ALL)


def test_new_keys_for_the_same_attempt_give_no_second_vector(server: LyingServer) -> None:
    run = f"{server.name}/0123"
    server.collect(run, 1)
    for context in server.grid.contexts.values():
        context.state = RecordDict()
    adverts = server.advertise(run, 1)
    shares = server.share(1, adverts)
    for client in ALL:
        with pytest.raises(Refused):
            server.contribute(client, run, 1, adverts, shares)


def test_the_confirmation_is_on_disk_before_it_leaves(server: LyingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.collect(f"{server.name}/0123", 1)

    def killed(*_args: object) -> NoReturn:
        raise RuntimeError("killed when its answer is about to leave")

    masked = server.contexts()
    with monkeypatch.context() as patch:
        patch.setattr("lowkey.flower.node.write_reply", killed)
        with pytest.raises(Refused):
            server.confirm(0, 1, ALL)
    server.roll_back(masked)
    with pytest.raises(Refused):
        server.confirm(0, 1, WITHOUT)
