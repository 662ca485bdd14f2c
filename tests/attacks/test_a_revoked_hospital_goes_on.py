"""A hospital is revoked between two rounds, and its node goes on as if nothing had happened.

It may have been thrown out, or its key was stolen. It keeps its data, its keys, its registration at the server, and it
answers every message. There was no way to take it off the list of clients: numbers would shift, and a server refused a
list that was shorter. So whoever held the key took part for as long as the run lasted. Nor may it rest on the server
alone whether a revocation counts: a server that likes the revoked hospital better keeps the old list.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w

pytest.importorskip("flwr")

from lowkey.errors import LowkeyError
from lowkey.experiments import RunDirectory
from lowkey.flower.node import REPLAY_VARIABLE
from lowkey.privacy import ClientLedger, Ledger
from tests.flower.loopback import PRIVATE, Setting

DEFENDS = (
    "A client that is revoked is in no later sum, whether it goes on sending or not: a server with the new list drops "
    "it, and members with the new list refuse a server that keeps it; what it spent stays in its ledger and in the "
    "server's."
)
REVOKED = 2


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    """Four hospitals that tolerate one dropout, after their first round."""
    monkeypatch.setenv(REPLAY_VARIABLE, "7")
    made = Setting(tmp_path, PRIVATE[0], [*PRIVATE[1], "privacy.max_contributions=10"])
    made.serve()
    made.config = replace(made.config, schedule=replace(made.config.schedule, rounds=2))
    made.grid.asked.clear()
    return made


def revoke(enrolled: Path, client: int = REVOKED) -> None:
    """What 'lowkey flower revoke' does to a list."""
    table = tomllib.loads(enrolled.read_text(encoding="utf-8"))
    table["client"][client]["revoked"] = True
    enrolled.write_text(tomli_w.dumps(table), encoding="utf-8")


def survivors(setting: Setting) -> list[int]:
    return [line["survivors"] for line in RunDirectory.open(setting.out).metrics()]


def ledger_of(setting: Setting, client: int) -> list[int]:
    """Rounds in a client's own ledger."""
    file = setting.home / "nodes" / f"{client:04d}" / "ledger.jsonl"
    return [entry.round for entry in ClientLedger.read(file).entries]


def test_a_server_with_the_new_list_goes_on_without_it(setting: Setting) -> None:
    spent = ledger_of(setting, REVOKED)
    revoke(setting.home / "enrolled.toml")
    setting.serve()
    assert survivors(setting) == [4, 3]
    assert REVOKED not in {client for client, kind in setting.grid.asked if kind != "query.hello"}
    assert spent == ledger_of(setting, REVOKED) == [1]
    assert ledger_of(setting, 0) == [1, 2]
    assert [entry.round for entry in Ledger.read(setting.out / "ledger.jsonl").entries] == [1, 2]


def test_members_with_the_new_list_refuse_a_server_that_keeps_it(setting: Setting) -> None:
    for client in range(setting.nodes):
        if client != REVOKED:
            revoke(setting.home / "nodes" / f"{client:04d}" / "enrolled.toml")
    with pytest.raises(LowkeyError):
        setting.serve()
    assert survivors(setting) == [4]
    assert all(ledger_of(setting, client) == [1] for client in range(setting.nodes))  # no vector has left


def test_a_run_that_can_never_have_enough_members_does_not_start(setting: Setting) -> None:
    for client in (REVOKED, 3):
        revoke(setting.home / "enrolled.toml", client)
    with pytest.raises(LowkeyError, match="2 of 4 clients are revoked, and a round needs 3"):
        setting.serve()
    assert setting.grid.asked == []
    assert survivors(setting) == [4]


def test_a_revoked_node_is_told_so_by_its_own_list_and_takes_no_part(setting: Setting) -> None:
    for place in ("", *(f"nodes/{client:04d}" for client in range(setting.nodes))):
        revoke(setting.home / place / "enrolled.toml")
    setting.serve()
    assert survivors(setting) == [4, 3]
    assert ledger_of(setting, REVOKED) == [1]
