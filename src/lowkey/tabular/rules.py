"""How a column of a table becomes a block of numbers: by limits, by a list of texts, or by a public hash.

Every block has a part of a row whose norm is 1 at most. A block of K columns (2 for a number) is weighted by K to the
power ⅛, so that rare categories are neither lost nor loud, and all blocks together are scaled so that no row is longer
than 1. Columns that nobody uses cost bytes, and no accuracy.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from lowkey import checks
from lowkey.errors import InvalidInput

_MOST_HASHED = 2**20


class Block(NamedTuple):
    """Columns that belong together: their names, and as how many categories they count."""

    names: tuple[str, ...]
    categories: int


@dataclass(frozen=True)
class Limits:
    """Limits of a number: it is scaled to −1 … 1 between them, and clipped there beyond them.

    Parameters
    ----------
    low, high : float
        The limits.
    fill : float or None
        The number that stands for a missing one; None is the middle.
    missing : bool
        Whether a column of its own says that the number is missing.
    """

    low: float
    high: float
    fill: float | None = None
    missing: bool = False

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise InvalidInput(f"limits are {self.low} and {self.high}; they must be numbers, the lower one first")
        if self.fill is not None and not self.low <= self.fill <= self.high:
            raise InvalidInput(f"fill is {self.fill}; it must lie between {self.low} and {self.high}")

    def blocks(self, name: str) -> Iterator[Block]:
        """The columns that it makes."""
        yield Block((name,), 2)
        if self.missing:
            yield Block((f"{name} is missing",), 2)


@dataclass(frozen=True)
class Listed:
    """A list of texts, a column for each.

    Parameters
    ----------
    values : tuple of str
        The texts.
    other : bool
        Whether all texts that are not listed share a column; otherwise they have none.
    missing : bool
        Whether a missing text has a column; otherwise it has none.
    """

    values: tuple[str, ...]
    other: bool = False
    missing: bool = False

    def __post_init__(self) -> None:
        if not self.values or len(set(self.values)) < len(self.values):
            raise InvalidInput(f"listed texts are {', '.join(self.values) or 'none'}; list each text once")

    def blocks(self, name: str) -> Iterator[Block]:
        """The columns that it makes."""
        more = [f"{name} is other"] * self.other + [f"{name} is missing"] * self.missing
        names = (*(f"{name}={value}" for value in self.values), *more)
        yield Block(names, len(names))


@dataclass(frozen=True)
class Hashed:
    """Texts without a list: a public hash gives each a column.

    Parameters
    ----------
    columns : mapping
        A number of columns for the first so many letters of the text, and under None for the whole of it.
    missing : bool
        Whether a missing text has a column; otherwise it has none.
    """

    columns: Mapping[int | None, int]
    missing: bool = False

    def __post_init__(self) -> None:
        checks.at_least("number of hashes", len(self.columns), 1)
        for length, count in self.columns.items():
            checks.at_least("number of letters to hash", 1 if length is None else length, 1)
            checks.at_least("number of hashed columns", count, 1)
            checks.positive("number of hashed columns", count, most=_MOST_HASHED)

    def blocks(self, name: str) -> Iterator[Block]:
        """The columns that it makes."""
        for length, count in self.columns.items():
            label = self.label(name, length)
            more = [f"{label} is missing"] * self.missing
            yield Block((*(f"{label}#{place}" for place in range(count)), *more), count + self.missing)

    @staticmethod
    def label(name: str, length: int | None) -> str:
        """What is hashed together with the text, so that the same text in two columns has two places."""
        return name if length is None else f"{name}[:{length}]"


Rule: TypeAlias = Limits | Listed | Hashed
"""How a column becomes numbers, one row at a time."""


def bucket(text: str, buckets: int) -> int:
    """The column of a text; the same on every machine."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, person=b"lowkey admission").digest()
    return int.from_bytes(digest, "little") % buckets
