"""The record of spent privacy: durable, exact, and unforgiving to damage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lowkey.errors import LedgerError
from lowkey.privacy import Event, Ledger

EVENT = Event(noise_multiplier=1.5, sampling_probability=0.1, population=100)


def test_survives_reopening(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    for number in (1, 2, 2, 3):
        ledger.spend(number, EVENT)
    again = Ledger(path)
    assert again.entries == ledger.entries
    assert [entry.round for entry in again.entries] == [1, 2, 2, 3]
    assert again.events == (EVENT,) * 4


def test_is_on_disk_when_spend_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(handle))
    Ledger(tmp_path / "ledger.jsonl").spend(1, EVENT)
    assert len(synced) == 2  # the file and, since it is new, its directory


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-10],
        lambda text: text.replace("1.5", "-1.5"),
        lambda text: text.replace("poisson", "unknown"),
        lambda text: "garbage\n" + text,
        lambda text: text.replace('"round"', '"turn"'),
    ],
)
def test_damage_is_refused_and_left_alone(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path).spend(1, EVENT)
    broken = damage(path.read_text())  # type: ignore[operator]
    path.write_text(broken)
    with pytest.raises(LedgerError, match=r"ledger\.jsonl"):
        Ledger(path)
    assert path.read_text() == broken


def test_memory_ledger_needs_no_file() -> None:
    ledger = Ledger()
    ledger.spend(1, EVENT)
    assert ledger.events == (EVENT,)
