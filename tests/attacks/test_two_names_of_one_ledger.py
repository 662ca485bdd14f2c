"""Two runs at once on one population, through two names of its ledger.

Who: a careless or hurried operator. With what: a symbolic or a hard link to the ledger of the population, and a second
run that names the link. Each run takes the lock of its own name, reads the ledger, and counts only what itself adds.

Before: the lock was a file beside the *name*, so both runs wrote. Two runs of four rounds each (z = 2, everybody in
every round, δ = 1e-5) both reported ε = 4.38; their clients had spent 6.58. The file they left could not be read again.
Now the lock is on the file itself, and the second run is told that the first has it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lowkey.errors import InUse
from lowkey.privacy import Event, Ledger, claimed_epsilon

DEFENDS = "One run at a time writes a ledger, by whatever name or link it is reached."

ROUND = Event(noise_multiplier=2.0, sampling_probability=1.0, population=40)
ROUNDS, DELTA = 4, 1e-5


def symbolic(link: Path, path: Path) -> None:
    link.symlink_to(path)


def hard(link: Path, path: Path) -> None:
    link.hardlink_to(path)


def by_another_directory(link: Path, path: Path) -> None:
    link.parent.joinpath("there").symlink_to(path.parent)
    link.symlink_to(Path("there") / path.name)


@pytest.fixture
def population(tmp_path: Path) -> Path:
    """The ledger of a population that an earlier run has used, so that it exists and can be linked to."""
    path = tmp_path / "population.jsonl"
    with Ledger(path, run="earlier"):
        pass
    return path


@pytest.mark.parametrize("linked", [symbolic, hard, by_another_directory])
def test_two_runs_at_once_never_report_less_than_both_spent(
    population: Path, tmp_path: Path, linked: Callable[[Path, Path], None]
) -> None:
    alias = tmp_path / "alias.jsonl"
    linked(alias, population)
    together = claimed_epsilon([ROUND] * 2 * ROUNDS, DELTA)
    with Ledger(population, run="first") as first:
        try:
            second = Ledger(alias, run="second")
        except InUse:
            second = None  # as it should be: one after the other
        for number in range(1, ROUNDS + 1):
            first.intend(number, 0, ROUND)
            if second is not None:
                second.intend(number, 0, ROUND)
        if second is not None:
            second.close()
    if second is None:
        with Ledger(alias, run="second") as second:
            for number in range(1, ROUNDS + 1):
                second.intend(number, 0, ROUND)
    assert claimed_epsilon(second.events, DELTA) == pytest.approx(together)
    assert len(Ledger.read(population).events) == 2 * ROUNDS


@pytest.mark.parametrize("linked", [symbolic, hard])
def test_another_process_is_kept_out_too(
    population: Path, tmp_path: Path, linked: Callable[[Path, Path], None]
) -> None:
    alias = tmp_path / "alias.jsonl"
    linked(alias, population)
    code = "import sys; from pathlib import Path; from lowkey.privacy import Ledger; Ledger(Path(sys.argv[1]), run='2')"
    with Ledger(population, run="first") as first:
        first.intend(1, 0, ROUND)
        assert len(Ledger.read(alias).events) == 1  # a reader in this process does not end the lock
        second = subprocess.run([sys.executable, "-c", code, str(alias)], capture_output=True, text=True, check=False)
        assert second.returncode != 0
        assert "is in use by another process; wait for it or stop it" in second.stderr
