"""A client's own record: counted before it sends, never twice, whatever the server does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lowkey.errors import InUse, InvalidInput, LedgerError
from lowkey.privacy import ClientLedger
from lowkey.privacy.chain import _seal
from tests.privacy.test_ledger import write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "client.jsonl"


def test_participations_survive_reopening_and_count_by_app(path: Path) -> None:
    with ClientLedger(path) as ledger:
        ledger.join("first/1", 1, 0, noise_multiplier=1.5)
        ledger.join("first/2", 1, 1, noise_multiplier=1.5, coin=0.25)
        ledger.join("second/1", 1, 0, noise_multiplier=2.0, contributes=False)
    again = ClientLedger.read(path)
    assert again.entries == ledger.entries
    assert [(p.run, p.attempt, p.noise_multiplier, p.coin) for p in again.participations()] == [
        ("first/1", 0, 1.5, 1.0), ("first/2", 1, 1.5, 0.25),
    ]  # fmt: skip
    assert len(again.participations("first")) == 2
    assert again.participations("second") == ()  # zeros only
    assert again.participations("firs") == again.participations("first/1") == ()
    assert len(again.entries) == 3


def test_the_ledger_of_an_earlier_version_goes_on_and_counts_for_every_app(path: Path) -> None:
    """Its lines were {"run", …} without a step, and its runs had names that the server chose."""
    old = {"run": "3f2a", "round": 1, "attempt": 0, "noise_multiplier": 1.5, "coin": 1.0, "contributes": True}
    line, head = _seal("lowkey client ledger 1", old)
    path.write_text(line + "\n")
    with ClientLedger(path) as ledger:
        with pytest.raises(LedgerError, match="was joined before"):
            ledger.join("3f2a", 1, 0, noise_multiplier=1.5)
        ledger.join("study/1", 1, 0, noise_multiplier=1.5)
        ledger.confirm("study/1", 1, 0, b"view")
    again = ClientLedger.read(path)
    assert again.knows(head)
    assert [len(again.participations(app)) for app in ("study", "another", None)] == [2, 1, 2]
    path.write_text(path.read_text().replace("1.5", "9.5", 1))
    with pytest.raises(LedgerError, match="was changed"):
        ClientLedger(path)


@pytest.mark.parametrize("run", ["evil/1", "study/1", "/1", "a/b/c"])
def test_whatever_an_old_run_was_called_it_counts_for_every_app(path: Path, run: str) -> None:
    old = {"run": run, "round": 1, "attempt": 0, "noise_multiplier": 1.5, "coin": 1.0, "contributes": True}
    path.write_text(_seal("lowkey client ledger 1", old)[0] + "\n")
    with ClientLedger(path) as ledger:
        ledger.confirm(run, 1, 0, b"view")
        assert [len(ledger.participations(app)) for app in ("study", "another", None)] == [1, 1, 1]


def test_one_view_of_an_attempt_is_confirmed(path: Path) -> None:
    with ClientLedger(path) as ledger:
        with pytest.raises(LedgerError, match="was not joined"):
            ledger.confirm("study/1", 1, 0, b"view")
        ledger.join("study/1", 1, 0, noise_multiplier=1.5)
        ledger.confirm("study/1", 1, 0, b"view")
        size = path.stat().st_size
        ledger.confirm("study/1", 1, 0, b"view")
        assert path.stat().st_size == size
    with ClientLedger(path) as ledger:
        ledger.confirm("study/1", 1, 0, b"view")
        with pytest.raises(LedgerError, match="confirmed before, with another list of survivors"):
            ledger.confirm("study/1", 1, 0, b"another")
    [entry] = ClientLedger.read(path).entries
    assert entry.confirmed == b"view".hex()


def test_a_confirmation_is_on_disk_when_confirm_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ClientLedger(path) as ledger:
        ledger.join("study/1", 1, 0, noise_multiplier=1.5)
        sizes: list[int] = []
        monkeypatch.setattr(os, "fsync", lambda handle: sizes.append(os.fstat(handle).st_size))
        ledger.confirm("study/1", 1, 0, b"view")
    assert sizes == [path.stat().st_size]


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
        ledger.confirm("first", 1, 0, b"view")
    joined, confirmed = (json.loads(line)["record"] for line in path.read_text().splitlines())
    assert joined == {
        "step": "joined", "run": "first", "round": 1, "attempt": 0, "noise_multiplier": 1.5, "coin": 0.5,
        "contributes": True,
    }  # fmt: skip
    assert confirmed == {"step": "confirmed", "run": "first", "round": 1, "attempt": 0, "view": "76696577"}


@pytest.mark.parametrize(("old", "new"), [("1.5", "9.5"), ("true", "false"), ('"round":1', '"round":2')])
def test_edited_lines_are_refused(path: Path, old: str, new: str) -> None:
    with ClientLedger(path) as ledger:
        ledger.join("first", 1, 0, noise_multiplier=1.5)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(LedgerError, match="line 1 or one near it was changed"):
        ClientLedger(path)


def test_a_servers_ledger_is_no_clients(path: Path) -> None:
    write(path)
    with pytest.raises(LedgerError, match="not a file of the format 'lowkey client ledger 2'"):
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


@pytest.mark.parametrize(
    "change",
    [
        {"run": 5}, {"run": None}, {"run": []}, {"contributes": 1}, {"noise_multiplier": "1"}, {"round": True},
        {"more": 1}, {"step": "left"}, {"step": None}, {"step": "confirmed"}, {"confirmed": 5}, {"tells_app": False},
    ],
)  # fmt: skip
def test_a_line_that_makes_no_sense_is_refused_though_its_hash_is_right(path: Path, change: dict[str, Any]) -> None:
    record = {"step": "joined", "run": "a/1", "round": 1, "attempt": 0, "noise_multiplier": 1.0, "coin": 1.0}
    record |= {"contributes": True}
    path.write_text(_seal(ClientLedger.FORMAT, record)[0] + "\n")
    assert len(ClientLedger.read(path).entries) == 1
    path.write_text(_seal(ClientLedger.FORMAT, record | change)[0] + "\n")
    with pytest.raises(LedgerError, match="line 1 makes no sense"):
        ClientLedger(path)


@pytest.mark.parametrize("record", [5, None, [], ["abc"], "abc", {}])
def test_a_record_that_is_no_table_is_refused(path: Path, record: Any) -> None:
    path.write_text(_seal(ClientLedger.FORMAT, record)[0] + "\n")
    with pytest.raises(LedgerError, match="line 1 makes no sense"):
        ClientLedger(path)
