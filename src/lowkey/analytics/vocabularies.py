"""How frequent the entries of a public list are: in rows, or among units."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lowkey import checks
from lowkey.analytics.question import Answer, Columns, Starts, Total, Vectors, column_of, within_one
from lowkey.analytics.rows import Items, RowQuestion, sizes_of, stacked
from lowkey.errors import CannotContribute, InvalidInput

HELD = 100
"""How many entries a unit counts with in full where nothing else is said."""


@dataclass(frozen=True, kw_only=True)
class Frequencies(RowQuestion):
    """Shares of the rows, or of the units, that have each entry of a public list.

    Parameters
    ----------
    column : str
        A column of texts or of codes.
    vocabulary : tuple of str
        The entries.
    among : {"rows", "units"}
        Shares of rows, as ``weight`` says, or shares of the units that have an entry in any of their rows.
    most : int or None
        How many entries a row (or a unit) counts with in full: one with more is scaled down as a whole. With 1, only
        the first entry of a row counts. None is 1 for rows, and 100 for units or as many as the list has. More than
        most units have adds noise, fewer makes intervals wide: they allow for what was scaled away.
    delta : float
        For a list that was not public before: entries are left out of the answer such that the probability that any
        which a single unit holds is in it is at most this. With 0 all are shown.
    """

    column: str
    vocabulary: tuple[str, ...]
    among: Literal["rows", "units"] = "rows"
    most: int | None = None
    delta: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "vocabulary", tuple(self.vocabulary))
        if not self.vocabulary:
            raise InvalidInput(
                f"vocabulary of {self.name} is empty; give at least one entry, or ask for frequent codes"
            )
        if not all(isinstance(entry, str) for entry in self.vocabulary):
            raise InvalidInput(f"vocabulary of {self.name} has entries that are not texts; write them in quotes")
        seen: set[str] = set()
        for entry in self.vocabulary:
            if entry in seen:
                raise InvalidInput(f"vocabulary of {self.name} has {entry!r} more than once; name each entry once")
            seen.add(entry)
        checks.one_of("among", self.among, ("rows", "units"))
        if self.among == "units" and self.weight != "share":
            raise InvalidInput("among is 'units', so every unit counts alike; leave out weight and most_rows")
        if self.most is not None:
            checks.at_least("most", self.most, 1)
        checks.fraction("delta", self.delta, include_zero=True, include_one=False)
        if self.delta and self.among == "rows":
            raise InvalidInput("delta is about entries that a single unit holds; set among = 'units'")

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def width(self) -> int:
        """The entries, "other" and "missing"."""
        return len(self.vocabulary) + 2

    @property
    def full(self) -> int:
        """``most``, or what the rule says."""
        if self.among == "rows":
            return min(self.most or 1, self.width - 1)
        return min(self.most or HELD, self.width)

    @property
    def scales(self) -> bool:
        if self.among == "rows":
            return 1 < self.full < self.width - 1
        return self.full < self.width

    @property
    def _share(self) -> float:
        return super()._share if self.among == "rows" else 1 / math.sqrt(max(len(self.values), 1))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {entry: place for place, entry in enumerate(self.vocabulary)}

    def items(self, rows: Columns) -> Items:
        every = np.arange(len(column_of(rows, self.column)))
        row, place = self._pairs(rows)
        if self.full == 1:
            row, first = np.unique(row, return_index=True)
            place = place[first]
        return self._items(every, row, place)

    def vectors(self, rows: Columns, starts: Starts) -> Vectors:
        """Means over rows; or, among units, whether the unit has each entry, scaled to norm 1."""
        if self.among == "rows":
            return super().vectors(rows, starts)
        sizes = sizes_of(rows, self.columns, starts)
        owner, label = np.repeat(np.arange(len(sizes)), sizes), self.classes(rows)
        groups = max(len(self.values), 1)
        counted = label >= 0
        group = owner * groups + label
        found, at = np.unique(group[counted], return_inverse=True)
        item = np.full(len(group), -1, np.intp)
        item[counted] = at
        row, place = self._pairs(rows)
        row, place = row[counted[row]], place[counted[row]]
        pair = np.unique(item[row] * self.width + place)
        items = self._items(np.arange(len(found)), *np.divmod(pair, self.width))
        each = np.full(len(found), self._share)
        return within_one(self.placed(items, found // groups, found % groups, each, len(sizes)))

    def _pairs(self, rows: Columns) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows and entries in them, each pair once and in their order."""
        other = len(self.vocabulary)
        row: list[int] = []
        place: list[int] = []
        for number, entries in enumerate(texts_of(rows, self.column)):
            places = dict.fromkeys(self._places.get(entry, other) for entry in entries) or (other + 1,)
            row.extend([number] * len(places))
            place.extend(places)
        return np.asarray(row, np.intp), np.asarray(place, np.intp)

    def _items(self, every: NDArray[np.intp], item: NDArray[np.intp], place: NDArray[np.intp]) -> Items:
        sizes = np.bincount(item, minlength=len(every))
        kept = np.sqrt(np.minimum(self.full / np.maximum(sizes, 1), 1.0))
        return Items(every, np.zeros_like(every), kept, item, place, kept[item] / math.sqrt(self.full))

    def read(self, total: Total) -> Answer:
        """The share of each entry, of all others together and of missing fields, by class where that is asked."""
        records = []
        for block in self.blocks(total):
            for place, entry in enumerate((*self.vocabulary, None, None)):
                if self.delta and (entry is None or not block.value[place] > self.threshold(total.noise)):
                    continue
                weights = np.zeros(self.width)
                weights[place] = math.sqrt(self.full)
                found = block.mean(weights, low=0.0, high=1.0)
                records.append(
                    self.labelled(block)
                    | {
                        "what": ("entry", "other", "missing")[max(place - len(self.vocabulary) + 1, 0)],
                        "entry": entry,
                        "share": found.value,
                        "low": found.low,
                        "high": found.high,
                    }
                )
        return Answer(question=self.name, tables={"frequencies": stacked(records)}, notes=self.notes(total))

    def threshold(self, noise: float) -> float:
        """What the sum of an entry that a single unit holds passes with probability ``delta`` at most, over all."""
        alone = math.sqrt((1 - self.anchor) / self.full) * self._share
        tested = len(self.vocabulary) * max(len(self.values), 1)
        return alone - noise * NormalDist().inv_cdf(self.delta / tested)

    def notes(self, total: Total) -> tuple[str, ...]:
        """What shares are of, and what was left out."""
        first, *rest = super().notes(total)
        if self.among == "units":
            first = f"Shares are of the {total.unit}s that have rows and hold an entry in any of them."
        found = [first]
        if self.scales:
            what = "row" if self.among == "rows" else total.unit
            found.append(f"A {what} with more than {self.full} entries was scaled down as a whole.")
        elif self.among == "rows":
            found.append("Only the first entry of a row counts.")
        if self.delta:
            found.append(
                f"Entries that a single {total.unit} might hold are left out: one appears with probability "
                f"{self.delta:g} at most."
            )
        return (*found, *rest)


def texts_of(rows: Columns, name: str) -> Iterator[Sequence[str]]:
    """The texts of each row of a column of texts or codes."""
    column = column_of(rows, name)
    if column.dtype.kind not in "OU":
        raise CannotContribute(f"its column {name!r} is of numbers; write texts or codes, or ask for a histogram")
    for entry in column:
        texts = () if entry is None else (entry,) if isinstance(entry, str) else entry
        if not isinstance(texts, tuple | list) or not all(isinstance(text, str) for text in texts):
            raise CannotContribute(f"its column {name!r} holds something other than texts or codes")
        yield texts
