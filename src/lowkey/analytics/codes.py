"""Which codes are frequent, where nobody may publish a list: a tree of hashed prefixes in one release, then a check."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowkey import checks
from lowkey.analytics.question import Answer, Columns, Starts, Total, Vectors, within_one
from lowkey.analytics.rows import RowQuestion, sizes_of, stacked
from lowkey.analytics.vocabularies import Frequencies, texts_of
from lowkey.errors import InvalidInput

FIRST, NEXT = 60_000, 1_500
"""How many spellings are tried for the first prefix, and for each that goes on."""
BY_CHANCE = (1000.0, 1000.0, 100.0)
"""How many prefixes of the first level, of the next ones, and codes may be kept that nobody holds, on average."""
MOST_KEPT = 5_000
"""Prefixes of a level that are followed at most."""
TIMES = 2
"""How often each level is there, with hashes of its own: a prefix that shares a place with another stands out once."""

Words = NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class FrequentCodes(RowQuestion):
    """Candidates for frequent codes, spelled from sums alone; :meth:`confirm` makes the question that checks them.

    A unit chooses the codes that most of its rows have, and adds 1 or −1 for each prefix of a choice at a place that a
    public hash of the prefix names; each level of prefixes has its own places and an equal part of the norm. The
    reader follows prefixes whose sums stand out of the noise. Candidates are guesses, some of which nobody holds.

    Parameters
    ----------
    column : str
        A column of texts or codes.
    alphabet : str
        The characters of which codes consist: public. Codes with others are left out.
    characters : int
        The most characters a code has; longer ones are left out.
    most : int
        How many codes a unit chooses at most. Fewer stand out more. Among codes of equally many rows all units prefer
        the same ones, by a public hash.
    cells : int
        Places of a level, a power of 2; a vector has twice as many numbers for each level.
    candidates : int
        How many candidates an answer has at most, for each class.
    """

    column: str
    alphabet: str = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    characters: int = 8
    most: int = 128
    cells: int = 16_384
    candidates: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weight != "share":
            raise InvalidInput("every unit names its own frequent codes; leave out weight and most_rows")
        if not self.alphabet or len(set(self.alphabet)) < len(self.alphabet):
            raise InvalidInput(f"alphabet is {self.alphabet!r}; name each character once")
        checks.at_least("characters", self.characters, 1)
        if (len(self.alphabet) + 1) ** self.characters >= 2**62:
            raise InvalidInput(
                f"{self.characters} characters of {len(self.alphabet)} make too many codes; take a smaller alphabet or "
                "the first characters of each code"
            )
        for name, value in (("most", self.most), ("candidates", self.candidates), ("cells", self.cells)):
            checks.at_least(name, value, 1)
        if self.cells & (self.cells - 1):
            raise InvalidInput(f"cells is {self.cells}; it must be a power of 2")

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def width(self) -> int:
        return len(self.levels) * TIMES * self.cells

    @property
    def length(self) -> int:
        return self.width

    @property
    def base(self) -> int:
        """Characters, and one for the end of a code."""
        return len(self.alphabet) + 1

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Lengths of the prefixes that are counted, the whole code last."""
        first, following = (max(int(math.log(tried + 0.5, self.base)), 1) for tried in (FIRST, NEXT))
        inner = range(min(first, self.characters), self.characters, following)
        return (*inner, self.characters)

    def vectors(self, rows: Columns, starts: Starts) -> Vectors:
        """Signs at the places of the prefixes of each unit's codes, of equal norm in each level."""
        sizes = sizes_of(rows, self.columns, starts)
        unit, label, code = self._chosen(rows, np.repeat(np.arange(len(sizes)), sizes))
        found = np.zeros((len(sizes), len(self.levels) * TIMES, self.cells))
        for sketch in range(len(self.levels) * TIMES):
            prefix = code // self.base ** (self.characters - self.levels[sketch // TIMES])
            _, first = np.unique(np.stack([unit, label, prefix]), axis=1, return_index=True)
            place, sign = self._hashed(sketch, label[first], prefix[first])
            flat = np.bincount(unit[first] * self.cells + place, sign, minlength=len(sizes) * self.cells)
            part = flat.reshape(len(sizes), self.cells)
            norms = np.linalg.norm(part, axis=1, keepdims=True)
            found[:, sketch] = part / np.maximum(norms, 1.0) * self._alone
        return within_one(found.reshape(len(sizes), -1))

    @property
    def _alone(self) -> float:
        """What one unit adds to a place at most."""
        return 1 / math.sqrt(len(self.levels) * TIMES)

    def read(self, total: Total) -> Answer:
        """Candidates, those first that stand out most."""
        sums = total.value.reshape(len(self.levels) * TIMES, self.cells)
        records = [
            {**({} if self.by is None else {self.by: label}), "code": code, "deviations": deviations}
            for number, label in enumerate(self.values or (None,))
            for code, deviations in self._followed(sums, total.noise, number)
        ]
        return Answer(
            question=self.name,
            tables={"candidates": stacked(records)},
            notes=(
                f"Candidates for codes that many {total.unit}s have in many rows, spelled from noisy sums; about "
                f"{BY_CHANCE[-1]:g} of them may be nobody's. Confirm them before use.",
                f"Each {total.unit} named at most {self.most} codes, those that most of its rows have; codes of more "
                f"than {self.characters} characters or with others than {self.alphabet} were left out.",
            ),
        )

    def confirm(self, answer: Answer, *, delta: float = 1e-5, most: int = 16) -> Frequencies:
        """The question about all candidates: which share of units holds each, without those that one alone may hold."""
        found = tuple(dict.fromkeys(answer.tables["candidates"].get("code", ())))
        if not found:
            raise InvalidInput(f"{answer.question} has no candidates; ask with more ε, or fewer codes of a unit (most)")
        return Frequencies(
            name=f"{self.name} confirmed",
            column=self.column,
            by=self.by,
            values=self.values,
            vocabulary=found,
            among="units",
            most=most,
            delta=delta,
        )

    def _chosen(
        self, rows: Columns, owner: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int64]]:
        """The codes that each unit names: the unit, the class, the code as a number."""
        digits = {character: digit for digit, character in enumerate(self.alphabet, start=1)}
        numbers: dict[str, int] = {}

        def number(text: str) -> int:
            if text not in numbers:
                spelled = [digits.get(character, 0) for character in text]
                usable = 0 < len(text) <= self.characters and all(spelled)
                padded = [*spelled, *[0] * (self.characters - len(text))]
                numbers[text] = sum(d * self.base**p for p, d in enumerate(reversed(padded))) if usable else -1
            return numbers[text]

        pairs = [(row, number(text)) for row, texts in enumerate(texts_of(rows, self.column)) for text in set(texts)]
        row, code = (np.array(part, np.int64) for part in (zip(*pairs, strict=True) if pairs else ((), ())))
        label = self.classes(rows)[row]
        usable = (code >= 0) & (label >= 0)
        triples = np.stack([owner[row[usable]], label[usable], code[usable]])
        (unit, label, code), counts = np.unique(triples, axis=1, return_counts=True)
        order = np.lexsort((_mixed(code.astype(np.uint64) ^ self._salt), -counts, unit))
        rank = np.arange(len(order)) - np.searchsorted(unit[order], unit[order])
        kept = order[rank < self.most]
        return unit[kept].astype(np.intp), label[kept].astype(np.intp), code[kept]

    @cached_property
    def _salt(self) -> np.uint64:
        digest = hashlib.sha256(f"lowkey codes 1\n{self.name}".encode()).digest()
        return np.uint64(int.from_bytes(digest[:8], "little"))

    def _hashed(
        self, sketch: int, label: NDArray[np.intp] | int, prefix: NDArray[np.int64]
    ) -> tuple[NDArray[np.intp], Vectors]:
        """Place and sign of prefixes."""
        salts = _mixed(self._salt + np.asarray(label, np.uint64) * np.uint64(256) + np.uint64(sketch))
        words = _mixed(prefix.astype(np.uint64) ^ salts)
        return (words & np.uint64(self.cells - 1)).astype(np.intp), 1.0 - 2.0 * (words >> np.uint64(63)).astype(float)

    def _followed(self, sums: Vectors, noise: float, label: int) -> Iterator[tuple[str, float]]:
        """Codes whose prefixes stand out wherever they are, and by how many deviations the whole code does at least."""
        prefixes, before, found = np.zeros(1, np.int64), 0, np.zeros(0)
        for level, length in enumerate(self.levels):
            tried, last = self._longer(prefixes, length - before, before), length == self.characters
            found = np.full(len(tried), math.inf)
            for sketch in range(level * TIMES, (level + 1) * TIMES):
                here = sums[sketch]
                place, sign = self._hashed(sketch, label, tried)
                deviation = max(noise, 1.4826 * float(np.median(np.abs(here))), 1e-9)
                found = np.minimum(found, (sign * here[place] - self._alone) / deviation)
            chance = BY_CHANCE[0 if level == 0 else 2 if last else 1] / max(len(tried), 1)
            stands = np.flatnonzero(found > NormalDist().inv_cdf(1 - min(chance ** (1 / TIMES), 0.5)))
            stands = stands[np.argsort(-found[stands], kind="stable")[: self.candidates if last else MOST_KEPT]]
            prefixes, found, before = tried[stands], found[stands], length
        for code, deviations in zip(prefixes, found, strict=True):
            yield self._spelled(int(code)), float(min(deviations, 1e9))

    def _longer(self, prefixes: NDArray[np.int64], more: int, before: int) -> NDArray[np.int64]:
        """All ways in which prefixes go on for so many characters; a code that has ended stays ended."""
        ends = np.arange(self.base**more, dtype=np.int64)
        digits = ends[:, None] // self.base ** np.arange(more - 1, -1, -1) % self.base
        ends = ends[~((digits[:, :-1] == 0) & (digits[:, 1:] > 0)).any(axis=1)]
        ended = (prefixes % self.base == 0) & (before > 0)
        tried = prefixes[:, None] * self.base**more + ends
        going = (tried[~ended] if before else tried[:, 1:]).ravel()
        return np.concatenate([going, prefixes[ended] * self.base**more])

    def _spelled(self, code: int) -> str:
        characters = []
        while code:
            code, digit = divmod(code, self.base)
            characters.append(self.alphabet[digit - 1] if digit else "")
        return "".join(reversed(characters))


def _mixed(words: Any) -> Words:
    """A permutation of 64-bit words that leaves no pattern (Steele, Lea and Flood 2014, SplitMix64)."""
    with np.errstate(over="ignore"):
        words = np.asarray(words, np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found: Words = words ^ (words >> np.uint64(31))
        return found
