"""Counts, sums, means and missing fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from lowkey.analytics.intervals import SURE
from lowkey.analytics.question import Answer, Columns, Estimate, Starts, Total, Vectors, column_of
from lowkey.analytics.rows import Items, RowQuestion, bounded, present, sizes_of, stacked
from lowkey.errors import InvalidInput

UNITS = 0.3
"""Share of a count's square for the number of units."""


@dataclass(frozen=True, kw_only=True)
class Count(RowQuestion):
    """How many rows there are, and how many units that have any.

    Parameters
    ----------
    column : str
        Any column that every client has.
    most_rows : int
        A public number: rows of a unit beyond it are not counted; the interval allows for as many again.
    """

    column: str
    weight: Literal["share", "rows"] = "rows"
    anchor: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _needs_rows(self)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def width(self) -> int:
        return 0

    @property
    def length(self) -> int:
        return super().length + 1

    def items(self, rows: Columns) -> Items:
        every, none = np.arange(len(column_of(rows, self.column))), np.zeros(0, np.intp)
        return Items(every, np.zeros_like(every), np.ones(len(every)), none, none, np.zeros(0))

    def vectors(self, rows: Columns, starts: Starts) -> Vectors:
        """Rows by class, 1 for a unit with rows, and rows beyond ``most_rows``."""
        found = super().vectors(rows, starts) * math.sqrt(1 - UNITS)
        found[:, -2] = math.sqrt(UNITS) * (sizes_of(rows, self.columns, starts) > 0)
        return found

    def read(self, total: Total) -> Answer:
        """Numbers of rows, by class where that is asked, and of units."""
        rest = math.sqrt(1 - UNITS)
        rows = replace(total, value=total.value / rest, noise=total.noise / rest)
        units, deviation = (float(number) / math.sqrt(UNITS) for number in (total.value[-2], total.noise))
        estimates = {f"{total.unit}s": Estimate(units, units - SURE * deviation, units + SURE * deviation)}
        for block in self.blocks(rows):
            found = block.total(block.weight, times=_rows(self), low=0.0, high=1.0)
            estimates[self.titled("rows", block)] = found
        return Answer(question=self.name, estimates=estimates, notes=self.notes(total))


@dataclass(frozen=True, kw_only=True)
class Bounded(RowQuestion):
    """Columns with public bounds.

    Parameters
    ----------
    limits : mapping of str to (low, high)
        The columns, and what their numbers are cut to: public bounds. Missing numbers do not count.
    """

    limits: Mapping[str, tuple[float, float]]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.limits, Mapping) or not self.limits:
            raise InvalidInput(f"limits of {self.name} are empty; name columns, each with [low, high]")
        for column, limits in self.limits.items():
            low, high = limits if isinstance(limits, tuple | list) and len(limits) == 2 else (None, None)
            bounded(column, low, high)
        object.__setattr__(self, "limits", {column: tuple(limits) for column, limits in self.limits.items()})

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(self.limits)

    @property
    def parts(self) -> tuple[str, ...]:
        return self.reads

    @property
    def width(self) -> int:
        return 1

    def scaled(self, column: str, numbers: Vectors) -> Vectors:
        """Numbers of a column between −1 and 1."""
        raise NotImplementedError

    def items(self, rows: Columns) -> Items:
        row, part, value = [], [], []
        for number, column in enumerate(self.limits):
            at, numbers = present(rows, column)
            row.append(at)
            part.append(np.full(len(at), number))
            value.append(self.scaled(column, np.clip(numbers, *self.limits[column])))
        every = np.concatenate(row)
        return Items(
            every,
            np.concatenate(part),
            np.ones(len(every)),
            np.arange(len(every)),
            np.zeros(len(every), np.intp),
            np.concatenate(value),
        )

    def notes(self, total: Total) -> tuple[str, ...]:
        bounds = ", ".join(f"{column} to [{low:g}, {high:g}]" for column, (low, high) in self.limits.items())
        return (*super().notes(total), f"Numbers are cut to public bounds ({bounds}); missing ones do not count.")


@dataclass(frozen=True, kw_only=True)
class Mean(Bounded):
    """Means of columns of numbers, cut to public bounds."""

    anchor: ClassVar[float] = 0.25

    def scaled(self, column: str, numbers: Vectors) -> Vectors:
        low, high = self.limits[column]
        return (2 * numbers - low - high) / (high - low)

    def read(self, total: Total) -> Answer:
        """One mean for each column and class."""
        estimates = {}
        for block in self.blocks(total):
            low, high = self.limits[block.part]
            found = block.mean(np.ones(1), low=-1.0, high=1.0)
            estimates[self.titled(block.part, block)] = Estimate(
                *((low + high + (high - low) * end) / 2 for end in (found.value, found.low, found.high))
            )
        return Answer(question=self.name, estimates=estimates, notes=self.notes(total))


@dataclass(frozen=True, kw_only=True)
class Sum(Bounded):
    """Sums over all rows of columns of numbers, cut to public bounds; needs ``most_rows``."""

    weight: Literal["share", "rows"] = "rows"

    def __post_init__(self) -> None:
        super().__post_init__()
        _needs_rows(self)

    def scaled(self, column: str, numbers: Vectors) -> Vectors:
        return numbers / max(map(abs, self.limits[column]))

    def read(self, total: Total) -> Answer:
        """One sum for each column and class."""
        estimates = {}
        for block in self.blocks(total):
            low, high = self.limits[block.part]
            largest = max(abs(low), abs(high))
            estimates[self.titled(block.part, block)] = block.total(
                block.sums(np.ones(1)), times=_rows(self) * largest, low=low / largest, high=high / largest
            )
        return Answer(question=self.name, estimates=estimates, notes=self.notes(total))


@dataclass(frozen=True, kw_only=True)
class Missingness(RowQuestion):
    """The share of missing fields in each column.

    Parameters
    ----------
    of : tuple of str
        The columns.
    """

    of: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "of", tuple(self.of))
        if not self.of or len(set(self.of)) < len(self.of):
            raise InvalidInput(f"of is {self.of}; name at least one column, and each once")

    @property
    def reads(self) -> tuple[str, ...]:
        return self.of

    @property
    def width(self) -> int:
        return len(self.of)

    def items(self, rows: Columns) -> Items:
        missing = [np.flatnonzero(missing_in(column_of(rows, name))) for name in self.of]
        every, item = np.arange(len(column_of(rows, self.of[0]))), np.concatenate(missing)
        place = np.repeat(np.arange(len(self.of)), [len(rows) for rows in missing])
        value = np.full(len(item), 1 / math.sqrt(len(self.of)))
        return Items(every, np.zeros_like(every), np.ones(len(every)), item, place, value)

    def read(self, total: Total) -> Answer:
        """One share for each column and class."""
        records = []
        for block in self.blocks(total):
            for place, column in enumerate(self.of):
                weights = np.zeros(len(self.of))
                weights[place] = math.sqrt(len(self.of))
                found = block.mean(weights, low=0.0, high=1.0)
                records.append(
                    self.labelled(block)
                    | {"column": column, "missing": found.value, "low": found.low, "high": found.high}
                )
        return Answer(question=self.name, tables={"missing": stacked(records)}, notes=self.notes(total))


def missing_in(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Which fields are missing: NaN, None, or no codes."""
    if column.dtype.kind == "O":
        return np.array([field is None or len(field) == 0 for field in column], bool)
    return np.array(column != column, bool)  # NaN


def _rows(question: RowQuestion) -> int:
    assert question.most_rows is not None
    return question.most_rows


def _needs_rows(question: RowQuestion) -> None:
    if question.weight != "rows":
        raise InvalidInput(f"weight of {question.name} is {question.weight!r}; what is added up over rows needs 'rows'")
