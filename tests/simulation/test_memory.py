"""What simulated clients remember survives a crash, and costs what those asked cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lowkey.errors import RunError
from lowkey.federation import ClientState, Request
from lowkey.simulation.memory import Memory

WEIGHTS = np.zeros(1, np.float32)


def ask(memory: Memory, contributors: list[int], noise_only: tuple[int, ...] = ()) -> None:
    requests = {client: Request(round=1, weights=WEIGHTS) for client in contributors}
    memory.prepare(requests | {client: Request(round=1, weights=None) for client in noise_only})


def counted(path: Path, clients: int) -> list[int]:
    memory = Memory(path, clients)
    return [memory[client].contributions for client in range(clients)]


def test_contributions_are_counted_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "clients.jsonl"
    memory = Memory(path, 8)
    ask(memory, [5, 2, 1, 7], noise_only=(0, 3))
    ask(memory, [2])
    ask(memory, [], noise_only=(4,))
    assert path.read_text() == "[[1, 2], [5, 5], [7, 7]]\n[[2, 2]]\n"
    assert counted(path, 8) == [0, 1, 2, 0, 0, 1, 0, 1]


def test_a_round_writes_what_its_cohort_needs_whatever_was_asked_before(tmp_path: Path) -> None:
    path = tmp_path / "clients.jsonl"
    memory = Memory(path, 1_000_000)
    ask(memory, list(range(0, 10_000, 2)))
    before = path.stat().st_size
    ask(memory, [3, 999_999])
    assert path.stat().st_size - before == len("[[3, 3], [999999, 999999]]\n")


def test_a_half_written_line_asked_nobody_and_goes(tmp_path: Path) -> None:
    path = tmp_path / "clients.jsonl"
    path.write_text("[[0, 1]]\n[[0, ")
    assert counted(path, 3) == [1, 1, 0]
    assert path.read_text() == "[[0, 1]]\n"
    path.write_text("[[0")
    assert counted(path, 3) == [0, 0, 0]
    ask(Memory(path, 3), [2])
    assert counted(path, 3) == [0, 0, 1]


def test_a_file_of_an_earlier_version_is_not_forgotten(tmp_path: Path) -> None:
    (tmp_path / "clients.json").write_text('{"0": 2}')
    with pytest.raises(RunError, match="earlier version"):
        Memory(tmp_path / "clients.jsonl", 3)


def test_what_is_kept_is_remembered() -> None:
    memory = Memory()
    memory.keep(ClientState(3, contributions=2))
    assert memory[3].contributions == 2
    assert memory[4] == ClientState(4)
