"""A client's own record: counted before it sends, never twice, whatever the server does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lowkey.errors import InUse, InvalidInput, LedgerError
from lowkey.privacy import ClientLedger
from tests.privacy.test_ledger import write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "client.jsonl"


def test_participations_survive_reopening_and_count_by_run(path: Path) -> None:
    with ClientLedger(path) as ledger:
        ledger.join("first", 1, 0, noise_multiplier=1.5)
        ledger.join("first", 1, 1, noise_multiplier=1.5, coin=0.25)
        ledger.join("second", 1, 0, noise_multiplier=2.0, contributes=False)
    again = ClientLedger.read(path)
    assert again.entries == ledger.entries
    assert [(p.run, p.attempt, p.noise_multiplier, p.coin) for p in again.participations()] == [
        ("first", 0, 1.5, 1.0), ("first", 1, 1.5, 0.25),
    ]  # fmt: skip
    assert len(again.participations("first")) == 2
    assert again.participations("second") == ()  # zeros only
    assert len(again.entries) == 3


@pytest.mark.parametrize("contributes", [True, False])
def test_an_attempt_is_joined_once(path: Path, contributes: bool) -> None:
    with ClientLedger(path) as ledger:
        ledger.join("first", 1, 0, noise_multiplier=1.5, contributes=contributes)
    with ClientLedger(path) as ledger:
        with pytest.raises(LedgerError, match="round 1, attempt 0 of run 'first' was joined before"):
            ledger.join("first", 1, 0, noise_multiplier=3.0)
        ledger.join("first", 1, 1, noise_multiplier=1.5)
    assert len(ClientLedger.read(path).entries) == 2


def test_is_on_disk_when_join_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: sizes.append(os.fstat(handle).st_size))
    with ClientLedger(path) as ledger:
        ledger.join("first", 1, 0, noise_multiplier=1.5)
    assert len(sizes) == 2  # file and directory
    assert sizes[0] == path.stat().st_size > 0


def test_lines_hold_agreed_fields_alone(path: Path) -> None:
    with ClientLedger(path) as ledger:
        ledger.join("first", 1, 0, noise_multiplier=1.5, coin=0.5)
    assert json.loads(path.read_text())["record"] == {
        "run": "first", "round": 1, "attempt": 0, "noise_multiplier": 1.5, "coin": 0.5, "contributes": True,
    }  # fmt: skip


@pytest.mark.parametrize(("old", "new"), [("1.5", "9.5"), ("true", "false"), ('"round":1', '"round":2')])
def test_edited_lines_are_refused(path: Path, old: str, new: str) -> None:
    with ClientLedger(path) as ledger:
        ledger.join("first", 1, 0, noise_multiplier=1.5)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(LedgerError, match="line 1 or one near it was changed"):
        ClientLedger(path)


def test_a_servers_ledger_is_no_clients(path: Path) -> None:
    write(path)
    with pytest.raises(LedgerError, match="not a file of the format 'lowkey client ledger 1'"):
        ClientLedger(path)


def test_one_writer(path: Path) -> None:
    with ClientLedger(path), pytest.raises(InUse, match=r"client\.jsonl"):
        ClientLedger(path)


def test_many_readers_who_cannot_join(path: Path) -> None:
    with ClientLedger(path) as ledger:
        ledger.join("first", 1, 0, noise_multiplier=1.5)
        reader = ClientLedger.read(path)
        assert reader.entries == ledger.entries
        with pytest.raises(LedgerError, match="opened for reading only"):
            reader.join("first", 2, 0, noise_multiplier=1.5)
        ledger.join("first", 2, 0, noise_multiplier=1.5)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"round_number": 0}, "round is 0"),
        ({"attempt": -1}, "attempt is -1"),
        ({"noise_multiplier": 0.0}, "noise multiplier is 0"),
        ({"coin": 0.0}, "coin is 0"),
        ({"coin": 1.1}, "coin is 1"),
    ],
)
def test_impossible_numbers_are_refused(wrong: dict[str, float], named: str) -> None:
    ledger = ClientLedger(None)
    first: dict[str, Any] = {"run": "first", "round_number": 1, "attempt": 0, "noise_multiplier": 1.0, "coin": 1.0}
    with pytest.raises(InvalidInput, match=named):
        ledger.join(**(first | wrong))
    assert ledger.entries == ()
    ledger.join(**first)
    assert len(ledger.entries) == 1
