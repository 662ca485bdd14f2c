"""A short run of the fuzzer, its old findings, and a check that it finds what is planted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lowkey.errors import InvalidInput
from tests.fuzz.artefacts import make_artefacts
from tests.fuzz.fuzzing import CORPUS, MOST_BYTES, Count, fuzz, keep, table
from tests.fuzz.mutation import Mutator
from tests.fuzz.targets import NotCanonical, Target, make_targets

FOUND = sorted(file for file in CORPUS.glob("*/*") if file.is_file())


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Target]]:
    logging.disable(logging.CRITICAL)
    directory = tmp_path_factory.mktemp("fuzz")
    yield {target.name: target for target in make_targets(make_artefacts(directory / "federations"), directory)}
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def counts(targets: dict[str, Target]) -> list[Count]:
    return fuzz(list(targets.values()), 10_000, seed=1)


def test_damaged_input_is_refused_by_declared_errors_quickly_and_in_little_memory(counts: list[Count]) -> None:
    assert [(count.target.name, what) for count in counts for what, _ in count.findings] == []
    assert sum(count.messages for count in counts) == pytest.approx(10_000, abs=30)


def test_damage_is_light_enough_to_pass_sometimes(counts: list[Count]) -> None:
    """What only ever produces garbage would test the first line of each parser."""
    never = {count.target.name for count in counts if count.accepted == 0}
    assert never <= {"ledger", "client ledger", "checkpoint", "norm proof"}  # every bit of these matters


@pytest.mark.parametrize("file", FOUND, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_what_was_found_once_stays_mended(file: Path, targets: dict[str, Target]) -> None:
    [target] = [t for t in targets.values() if t.name.replace(" ", "-").replace("'", "") == file.parent.name]
    count = Count(target)
    for _ in range(2):  # the first call measures memory, the second one time
        count.read(file.read_bytes())
    assert [what for what, _ in count.findings] == []


def test_every_parser_of_the_corpus_exists(targets: dict[str, Target]) -> None:
    names = {target.replace(" ", "-").replace("'", "") for target in targets}
    assert {file.parent.name for file in FOUND} <= names
    assert FOUND


def raises(_data: bytes) -> None:
    raise KeyError("field")


def dawdles(_data: bytes) -> None:
    until = time.process_time() + 0.6
    while time.process_time() < until:
        pass


def hoards(_data: bytes) -> None:
    bytearray(2 * MOST_BYTES)


def accepts_anything(data: bytes) -> None:
    if data != b"good":
        raise NotCanonical


def refuses_all(_data: bytes) -> None:
    raise InvalidInput("no")


@pytest.mark.parametrize(
    ("defect", "what", "messages"),
    [
        (raises, "KeyError", 1),
        (dawdles, "seconds", 2),
        (hoards, "bytes of memory", 1),
        (accepts_anything, "NotCanonical", 50),
        (refuses_all, "good input is refused", 1),
    ],
)
def test_planted_defects_are_found(defect: Callable[[bytes], None], what: str, messages: int, tmp_path: Path) -> None:
    counts = fuzz([Target("planted", [b"good"], defect)], messages, seed=1)
    assert any(what in found for found, _ in counts[0].findings)
    assert all("planted" in line for line in keep(counts, tmp_path))
    assert list(tmp_path.rglob("planted/*"))
    assert f"{len(counts[0].findings)}" in list(table(counts))[1].split()


def test_the_same_seed_gives_the_same_damage() -> None:
    one, same, other = (Mutator([b"some good input", b"more"], seed) for seed in (1, 1, 2))
    first = [one.next() for _ in range(100)]
    assert first == [same.next() for _ in range(100)]
    assert first != [other.next() for _ in range(100)]
