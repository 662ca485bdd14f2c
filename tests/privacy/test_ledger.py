"""The record of spent privacy: what counts, who may write, what it adds up to."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lowkey.errors import InUse, InvalidInput, LedgerError
from lowkey.privacy import Event, Ledger, affordable_rounds, claimed_epsilon

EVENT = Event(noise_multiplier=1.5, sampling_probability=0.1, population=100)
PAPER = Event(noise_multiplier=1.54, sampling_probability=1 / 60)  # of the Fashion-MNIST experiments
DELTA = 1e-5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


def write(path: Path, run: str = "first", rounds: int = 3) -> None:
    with Ledger(path, run=run) as ledger:
        for number in range(1, rounds + 1):
            ledger.intend(number, 0, EVENT)
            ledger.release(number, 0)


def test_everything_survives_reopening(path: Path) -> None:
    with Ledger(path, run="first") as ledger:
        ledger.intend(1, 0, EVENT)
        ledger.release(1, 0)
        ledger.intend(2, 0, EVENT)
        ledger.abort(2, 0)
        ledger.intend(2, 1, EVENT)
    again = Ledger.read(path)
    assert [(e.round, e.attempt, e.state) for e in again.entries] == [
        (1, 0, "RELEASED"), (2, 0, "ABORTED"), (2, 1, "INTENT"),
    ]  # fmt: skip
    assert (again.entries, again.events, again.head) == (ledger.entries, ledger.events, ledger.head)


def test_an_attempt_counts_however_it_ends() -> None:
    ledger = Ledger(None, run="first")
    ledger.intend(1, 0, EVENT)
    ledger.intend(1, 1, EVENT)
    ledger.abort(1, 1)
    ledger.intend(1, 2, PAPER)
    ledger.release(1, 2)
    assert ledger.events == (EVENT, EVENT, PAPER)


def test_a_round_is_tried_again_under_a_number_never_used(path: Path) -> None:
    write(path, "another", rounds=2)
    with Ledger(path, run="first") as ledger:
        assert ledger.next_attempt(1) == 0
        ledger.intend(1, 0, EVENT)
        ledger.abort(1, 0)
        assert ledger.next_attempt(1) == 1
        ledger.intend(1, 4, EVENT)
    with Ledger(path, run="first") as ledger:
        assert (ledger.next_attempt(1), ledger.next_attempt(2)) == (5, 0)


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda ledger: ledger.intend(1, 0, EVENT), "round 1, attempt 0 of run 'first' was intended before"),
        (lambda ledger: ledger.release(2, 0), "round 2.*never intended"),
        (lambda ledger: ledger.abort(1, 1), "attempt 1.*never intended"),
        (lambda ledger: ledger.abort(1, 0), "ABORTED, but is RELEASED already"),
        (lambda ledger: ledger.release(1, 0), "RELEASED, but is RELEASED already"),
    ],
)
def test_what_cannot_follow_is_refused_and_leaves_no_trace(
    path: Path, misuse: Callable[[Ledger], None], message: str
) -> None:
    write(path, rounds=1)
    before = path.read_bytes()
    with Ledger(path, run="first") as ledger, pytest.raises(LedgerError, match=message):
        misuse(ledger)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("number", "attempt"), [(0, 0), (1, -1)])
def test_rounds_and_attempts_have_a_first(number: int, attempt: int) -> None:
    with pytest.raises(InvalidInput, match="must be at least"):
        Ledger(None, run="first").intend(number, attempt, EVENT)


def test_lines_tell_what_was_spent_and_no_more(path: Path) -> None:
    """Agreed fields only: neither clients, roles and sizes of cohorts nor times."""
    write(path, rounds=1)
    begun, intent, released = (json.loads(line) for line in path.read_text().splitlines())
    assert set(begun) == set(intent) == set(released) == {"previous", "record", "hash"}
    assert begun["record"] == {"identity": Ledger.read(path).identity}
    assert intent["record"] == {
        "state": "INTENT", "run": "first", "round": 1, "attempt": 0, "event": EVENT.to_json(),
    }  # fmt: skip
    assert released["record"] == {"state": "RELEASED", "run": "first", "round": 1, "attempt": 0}
    assert begun["previous"] == "lowkey ledger 3"
    assert intent["previous"] == begun["hash"]
    assert released["previous"] == intent["hash"]
    assert released["hash"] == Ledger.read(path).head


def test_one_writer_many_readers(path: Path) -> None:
    write(path, rounds=1)
    with Ledger(path, run="first") as ledger:
        assert Ledger.read(path).events == (EVENT,)
        with pytest.raises(InUse, match=r"ledger\.jsonl is in use by this process"):
            Ledger(path, run="second")
        code = f"from pathlib import Path; from lowkey.privacy import Ledger; Ledger(Path({str(path)!r}), run='second')"
        second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert re.search(r"InUse: .*ledger\.jsonl is in use by another process", second.stderr)
        ledger.intend(2, 0, EVENT)
    Ledger(path, run="second").close()


def test_readers_and_closed_ledgers_cannot_spend(path: Path) -> None:
    write(path, rounds=1)
    closed = Ledger(path, run="first")
    closed.close()
    closed.close()
    for ledger in (closed, Ledger.read(path)):
        with pytest.raises(LedgerError, match="closed or was opened for reading only"):
            ledger.intend(2, 0, EVENT)
    assert len(Ledger.read(path).events) == 1


def test_a_refused_file_is_not_kept_locked(path: Path) -> None:
    write(path, rounds=1)
    whole = path.read_text()
    path.write_text(whole[:-5])
    with pytest.raises(LedgerError):
        Ledger(path, run="first")
    path.write_text(whole)
    Ledger(path, run="first").close()


def test_a_place_that_cannot_be_read_is_not_kept_locked(path: Path) -> None:
    path.mkdir()
    with pytest.raises(LedgerError, match=r"cannot be opened \(Is a directory\)"):
        Ledger(path, run="first")
    path.rmdir()
    Ledger(path, run="first").close()


def test_missing_places_are_named(path: Path) -> None:
    with pytest.raises(LedgerError, match=r"ledger\.jsonl cannot be opened \(No such file"):
        Ledger.read(path)
    with pytest.raises(LedgerError, match="cannot be opened"):
        Ledger(path / "deeper" / "ledger.jsonl", run="first")


def test_each_run_has_its_own_events_and_the_population_all(path: Path) -> None:
    write(path, "first", rounds=2)
    with Ledger(path, run="second") as ledger:
        ledger.intend(1, 0, PAPER)
        ledger.intend(2, 0, EVENT)
        ledger.abort(2, 0)
        assert ledger.events_of("first") == (EVENT, EVENT)
        assert ledger.events_of("second") == (PAPER, EVENT)
        assert ledger.events_of("third") == ()
        assert ledger.events == (EVENT, EVENT, PAPER, EVENT)


def test_every_ledger_has_an_identity_that_stays(path: Path) -> None:
    with Ledger(path, run="first") as ledger:
        identity = ledger.identity
        assert identity is not None
        assert re.fullmatch("[0-9a-f]{32}", identity)
        assert ledger.events == ()
    write(path)
    path.rename(path.with_name("moved"))
    assert Ledger.read(path.with_name("moved")).identity == identity
    with Ledger(path, run="first") as another:
        assert another.identity != identity
    assert Ledger(None, run="first").identity is None


def test_runs_over_the_same_clients_compose(path: Path) -> None:
    for run in ("first", "second"):
        with Ledger(path, run=run) as ledger:
            for number in range(1, 201):
                ledger.intend(number, ledger.next_attempt(number), PAPER)
    population = Ledger.read(path)
    both = Event(noise_multiplier=1.54, sampling_probability=1 / 60, count=400)
    assert claimed_epsilon(population.events, DELTA) == claimed_epsilon([both], DELTA)
    assert claimed_epsilon(population.events_of("second"), DELTA) == pytest.approx(0.6806, abs=5e-4)
    assert claimed_epsilon(population.events, DELTA) > 0.95  # far above one run's


def test_budget_ends_before_the_first_round_beyond_it() -> None:
    cap = 0.60

    def spent(rounds: int) -> float:
        return claimed_epsilon([Event(noise_multiplier=1.54, sampling_probability=1 / 60, count=rounds)], DELTA)

    inside, beyond = 150, 200
    assert spent(inside) == pytest.approx(0.5918, abs=5e-4)
    while beyond - inside > 1:
        middle = (inside + beyond) // 2
        inside, beyond = (middle, beyond) if spent(middle) <= cap else (inside, middle)
    ledger = Ledger(None, run="first")
    for number in range(1, inside):
        ledger.intend(number, 0, PAPER)
    assert affordable_rounds(PAPER, epsilon=cap, delta=DELTA, spent=ledger.events) == 1
    ledger.intend(inside, 0, PAPER)
    assert claimed_epsilon(ledger.events, DELTA) <= cap
    assert claimed_epsilon([*ledger.events, PAPER], DELTA) > cap
    assert affordable_rounds(PAPER, epsilon=cap, delta=DELTA, spent=ledger.events) == 0
    ledger.abort(inside, 0)  # its vectors have left all the same
    assert affordable_rounds(PAPER, epsilon=cap, delta=DELTA, spent=ledger.events) == 0
