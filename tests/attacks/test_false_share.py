"""One member of ten reveals false shares, to make every round fail and have others blamed for it.

Six true shares of nine recover a secret, and eight are there. Before shares were committed to, the server took the
first six that came, false ones among them: the round failed, and its error named the client whose secret it was, not
the one who had lied.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from lowkey.federation import ClientState, Confirmations, Request
from tests.attacks.ten_clients import CLIENTS, one_round

DEFENDS = (
    "A round bears false shares as long as enough true ones are there, and the server's log names the client that "
    "revealed them."
)

LIAR = 2


def lie(state: ClientState, request: Request) -> ClientState:
    """Before it reveals its shares, the liar turns over one bit in each."""
    if state.client != LIAR or not isinstance(request.message, Confirmations):
        return state
    assert state.member is not None
    false = {
        owner: bytes(byte ^ (place in (32, 65)) for place, byte in enumerate(both))
        for owner, both in state.member.shares.items()
    }
    return replace(state, member=replace(state.member, shares=false))


def test_the_round_is_the_same_as_without_the_liar_and_the_log_names_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "lowkey")
    outcome, honest = one_round(within=lie), one_round()
    assert outcome.survivors == CLIENTS
    np.testing.assert_array_equal(outcome.state.weights, honest.state.weights)
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("lowkey")]
    assert f"client {LIAR} revealed 9 false shares" in line
