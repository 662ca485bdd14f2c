"""A server that wants more of a hospital's data than its limit allows, by giving every attempt a new name.

The hospital's own ledger counts what it gave. But it counted by the name of the run, and the server names the run: 120
attempts under 120 names gave 120 contributions under a limit of 2.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lowkey.privacy import ClientLedger
from tests.attacks.asking_nodes import SMALL, LyingServer, Refused
from tests.flower.loopback import PRIVATE, Setting

DEFENDS = (
    "A client's limit of contributions counts all attempts under the name of its app, which comes with the approved "
    "app, and its policy counts over all apps and runs; the server cannot rename its way around either."
)
NAMES, LIMIT = 120, 2


@pytest.fixture
def server(tmp_path: Path) -> LyingServer:
    limits = [*PRIVATE[1], "privacy.dropouts=0", f"privacy.max_contributions={LIMIT}"]
    return LyingServer(Setting(tmp_path, PRIVATE[0], [*limits, *SMALL], nodes=3))


def given(server: LyingServer) -> int:
    """Attempts that the data of hospital 0 has entered."""
    ledger = server.node(0) / "ledger.jsonl"
    return len(ClientLedger.read(ledger).participations()) if ledger.exists() else 0


def test_a_new_name_for_every_attempt_gives_nothing_beyond_the_limit(server: LyingServer) -> None:
    for number in range(NAMES):
        server.collect(f"{server.name}/{number:016x}", attempt=number + 1)
    assert given(server) == LIMIT


@pytest.mark.parametrize("name", ["another study/0123", "no slash", "", "/0123", "{name}", "{name}/", "{name}/a/b"])
def test_a_name_that_is_not_of_the_approved_app_is_refused(server: LyingServer, name: str) -> None:
    with pytest.raises(Refused, match="ProtocolViolation"):
        server.advertise(name.format(name=server.name), attempt=1)
    assert given(server) == 0
