"""Another file takes the ledger's place, while a run writes it or between two parts of the run.

Who: a backup that is put back, a tool that syncs directories, or somebody who wants rounds for nothing. With what: a
file renamed over the ledger, lines added or removed behind the back of the run, or another ledger at its path.

Before: every line was appended to whatever the path led to. The run went on, and its lines went into a file that did
not have those before, or to the end of lines that it had never read. A run that stopped before its first checkpoint
took any ledger as its own: with a new one, what it had spent was gone. Now a run looks at the end of the file, and
whether its path still leads there, before each line; and remembers the identity of its ledger.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lowkey.errors import LedgerError, RunError
from lowkey.experiments import RunDirectory
from lowkey.privacy import Event, Ledger
from lowkey.simulation import run
from tests.conftest import tiny_config

DEFENDS = (
    "Before each line, a ledger whose file was replaced or moved, or whose size or end was changed by others, is "
    "refused, and nothing is written; a line that was changed further up is refused when the ledger is opened next. A "
    "run goes on with the ledger that it began with, and no other."
)

ROUND = Event(noise_multiplier=2.0, sampling_probability=0.1, population=100)


def restored_from_a_backup(path: Path, backup: Path) -> None:
    backup.replace(path)


def removed(path: Path, backup: Path) -> None:
    path.unlink()


def cut_to_its_first_lines(path: Path, backup: Path) -> None:
    path.write_bytes(backup.read_bytes())


def written_by_another_program(path: Path, backup: Path) -> None:
    with path.open("ab") as file:
        file.write(path.read_bytes().splitlines(keepends=True)[-1])


def last_line_exchanged_for_one_of_its_length(path: Path, backup: Path) -> None:
    content = path.read_bytes()
    with path.open("r+b") as file:  # in place: same file, same size
        file.write(content[:-70] + bytes(reversed(content[-70:-1])) + b"\n")


@pytest.mark.parametrize(
    "swap",
    [
        restored_from_a_backup,
        removed,
        cut_to_its_first_lines,
        written_by_another_program,
        last_line_exchanged_for_one_of_its_length,
    ],
)
def test_a_run_writes_nothing_into_a_file_that_is_not_the_one_it_read(
    tmp_path: Path, swap: Callable[[Path, Path], None]
) -> None:
    path, backup = tmp_path / "ledger.jsonl", tmp_path / "backup.jsonl"
    with Ledger(path, run="first") as ledger:
        ledger.intend(1, 0, ROUND)
        shutil.copy(path, backup)
        ledger.release(1, 0)
        swap(path, backup)
        found = path.read_bytes() if path.exists() else None
        with pytest.raises(LedgerError, match=r"ledger\.jsonl .* nothing was written"):
            ledger.intend(2, 0, ROUND)
        assert (path.read_bytes() if path.exists() else None) == found
        with pytest.raises(LedgerError, match="closed"):
            ledger.intend(2, 0, ROUND)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("swap", ["another ledger", "no ledger"])
def test_a_run_that_goes_on_takes_no_other_ledger(tmp_path: Path, shared: bool, swap: str) -> None:
    """The run stops in its first round, so that no checkpoint knows the ledger."""
    path = tmp_path / "population.jsonl" if shared else tmp_path / "run" / "ledger.jsonl"
    where = (f"federation.ledger={path}",) if shared else ()
    config = tiny_config("demo/fl-cs-dp", "privacy.noise_multiplier=1.0", "schedule.rounds=1", *where)
    directory = RunDirectory.create(tmp_path / "run", config)
    directory.ledger().intend(1, 0, ROUND)
    directory.unlock()
    path.unlink()
    if swap == "another ledger":
        with Ledger(path, run="another") as ledger:
            ledger.intend(1, 0, ROUND)
    with pytest.raises(RunError, match=r"ledger.*restore.*what it recorded was spent"):
        run(config, tmp_path / "run", resume=True)
