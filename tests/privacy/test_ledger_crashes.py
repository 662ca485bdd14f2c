"""What a ledger promises when the machine stops: nothing is asked for before its price is on disk."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lowkey.errors import LedgerError
from lowkey.privacy import Ledger, claimed_epsilon
from tests.privacy.test_ledger import DELTA, EVENT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


def test_file_then_directory_are_synced_before_intend_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(_kind(handle)))
    with Ledger(path, run="first") as ledger:
        assert synced == ["file with an identity", "directory"]
        ledger.intend(1, 0, EVENT)
        assert synced[2:] == ["file with INTENT"]
        ledger.release(1, 0)
        assert synced[3:] == ["file with RELEASED"]


def test_directory_is_synced_for_an_empty_file_that_a_dead_process_left(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.touch()
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(_kind(handle)))
    with Ledger(path, run="first") as ledger:
        ledger.intend(1, 0, EVENT)
    assert "directory" in synced


def _kind(handle: int) -> str:
    if stat.S_ISDIR(os.fstat(handle).st_mode):
        return "directory"
    last = Path(f"/proc/self/fd/{handle}").read_text().splitlines()[-1]  # the line has left the buffer when synced
    return f"file with {json.loads(last)['record'].get('state', 'an identity')}"


def test_after_a_failed_write_nothing_more_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with Ledger(path, run="first") as ledger:
        ledger.intend(1, 0, EVENT)
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(LedgerError, match=r"ledger\.jsonl cannot be written \(No space left on device\)"):
            ledger.abort(1, 0)
        monkeypatch.undo()
        assert ledger.entries[0].state == "INTENT"  # what is not known to be on disk is not remembered
        with pytest.raises(LedgerError, match="closed"):
            ledger.intend(1, 1, EVENT)


def test_an_interrupted_write_stays_an_interruption(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    with Ledger(path, run="first") as ledger:
        ledger.intend(1, 0, EVENT)
        monkeypatch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ledger.abort(1, 0)
        monkeypatch.undo()
        assert ledger.events == (EVENT,)
        with pytest.raises(LedgerError, match="closed"):
            ledger.intend(1, 1, EVENT)


def play_three_rounds(path: Path, killed: str = "") -> None:
    """Rounds of one run, from where it stopped; the process kills itself at a moment of round 3."""

    def reached(moment: str) -> None:
        if number == 3 and moment == killed:
            os.kill(os.getpid(), signal.SIGKILL)

    with Ledger(path, run="killed") as ledger:
        done = max((entry.round for entry in ledger.entries if entry.state == "RELEASED"), default=0)
        for number in range(done + 1, 4):
            attempt = ledger.next_attempt(number)
            reached("before INTENT")
            ledger.intend(number, attempt, EVENT)
            reached("after INTENT")
            path.with_suffix(".sum").write_text("vectors and their sum")
            reached("after the sum")
            ledger.release(number, attempt)
            reached("after RELEASED")


@pytest.mark.parametrize(
    ("moment", "counted", "at_the_end"),
    [("before INTENT", 2, 3), ("after INTENT", 3, 4), ("after the sum", 3, 4), ("after RELEASED", 3, 3)],
)
def test_killed_runs_never_pay_too_little(path: Path, moment: str, counted: int, at_the_end: int) -> None:
    """SIGKILL in round 3 of 3; the run goes on afterwards and pays at most one event more than without the kill."""
    code = f"from {__name__} import *; play_three_rounds(Path({str(path)!r}), {moment!r})"
    killed = subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[2])
    assert killed.returncode == -signal.SIGKILL
    at_kill = Ledger.read(path).events
    assert len(at_kill) == counted
    play_three_rounds(path)
    resumed = Ledger.read(path)
    assert len(resumed.events) == at_the_end
    assert {(e.round, e.state) for e in resumed.entries} >= {(n, "RELEASED") for n in (1, 2, 3)}
    straight = claimed_epsilon([EVENT] * 3, DELTA)
    after = claimed_epsilon(resumed.events, DELTA)
    assert claimed_epsilon(at_kill, DELTA) <= after
    assert straight <= after <= claimed_epsilon([EVENT] * 4, DELTA)
