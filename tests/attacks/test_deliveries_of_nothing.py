"""A server that uses up a hospital's limit without getting anything for it.

Before a client masks its vector it checks the shares of its neighbours that the server has brought. It did so after it
had noted the attempt in its ledger, and after it had trained: five requests with no shares in them cost five
contributions, and no vector left. A server that does so to all hospitals ends a study, or empties the others' limits.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lowkey.federation import Request
from lowkey.privacy import ClientLedger
from lowkey.secagg import Delivery, Links, accept_adverts, deliver
from tests.attacks.asking_nodes import SMALL, LyingServer, Refused
from tests.flower.loopback import PRIVATE, Setting

DEFENDS = (
    "A request for a vector whose list of sharers is wrong, or whose shares are not those of a client's neighbours, is "
    "refused before the client trains, and costs nothing of its limits."
)
NOTHING = Delivery(sharers=(0, 1, 2), sealed={}, commitments={})


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LyingServer:
    server = LyingServer(Setting(tmp_path, PRIVATE[0], [*PRIVATE[1], *SMALL], nodes=4))
    monkeypatch.setattr("lowkey.flower.node._LateTrainer.train", lambda *_: pytest.fail("it trains"))
    return server


def ask_in_vain(server: LyingServer, attempt: int, delivery: Delivery) -> None:
    request = Request(round=1, attempt=attempt, weights=server.weights, clip_norm=0.2, message=delivery)
    with pytest.raises(Refused, match="ProtocolViolation"):
        server.ask(0, request)


def given(server: LyingServer) -> int:
    """Attempts in the ledger of hospital 0."""
    ledger = server.node(0) / "ledger.jsonl"
    return len(ClientLedger.read(ledger).entries) if ledger.exists() else 0


def test_a_delivery_before_any_share_costs_nothing(server: LyingServer) -> None:
    for attempt in range(5):
        server.advertise(f"{server.name}/0123", attempt)
        ask_in_vain(server, attempt, NOTHING)
    assert given(server) == 0


@pytest.mark.parametrize("how", ["no shares", "few", "not me", "twice", "a stranger", "no commitments"])
def test_a_wrong_delivery_costs_nothing(server: LyingServer, how: str) -> None:
    run = f"{server.name}/0123"
    adverts = server.advertise(run, 1)
    session = server.scheme.session(run, 1, 1, server.roster, server.scheme.terms(server.weights.size, 1))
    links = Links(session, accept_adverts(session, adverts, server.verify_keys))
    right = deliver(links, server.share(1, adverts), server.verify_keys)[0]
    wrong = {
        "no shares": NOTHING,
        "few": replace(right, sharers=(0, 1)),
        "not me": replace(right, sharers=(1, 2, 3)),
        "twice": replace(right, sharers=(0, 1, 1, 2, 3)),
        "a stranger": replace(right, sharers=(0, 1, 2, 3, 4)),
        "no commitments": replace(right, commitments={}),
    }
    ask_in_vain(server, 1, wrong[how])
    assert given(server) == 0
