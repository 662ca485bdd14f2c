"""How rows become a unit's vector: means over its rows, by class, of short vectors of norm 1 at most."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowkey import checks
from lowkey.analytics.intervals import SURE, SURER, mixed, ratio
from lowkey.analytics.question import Columns, Estimate, Starts, Total, Vectors, column_of, numbers_of, within_one
from lowkey.errors import CannotContribute, InvalidInput

CUT = 0.3
"""Weight of the number that tells how many rows beyond ``most_rows`` there are."""


class Items(NamedTuple):
    """What is averaged: rows, or the fields of rows.

    Attributes
    ----------
    row : array
        The row of each item.
    part : array
        Which of the question's columns it is about.
    kept : array
        By how much its numbers were scaled down to have norm 1: 1 where they were not.
    item, place, value : array
        The numbers other than 0, after that: of which item, where, how much.
    """

    row: NDArray[np.intp]
    part: NDArray[np.intp]
    kept: Vectors
    item: NDArray[np.intp]
    place: NDArray[np.intp]
    value: Vectors


@dataclass(frozen=True)
class Block:
    """The sums of one class and one column.

    Attributes
    ----------
    value : array
        The numbers of the block, its weight, what was scaled away, and the rows beyond ``most_rows``.
    noise : float
        Deviation of each.
    scale : float
        What turns the block's numbers into sums of those of items.
    weight : array
        Weights with which they add up to the number of items.
    cut : array
        The same for what was cut off; all zeros where nothing can be.
    label, part : Any
        Which class, which column.
    """

    value: Vectors = field(repr=False)
    noise: float
    scale: float
    weight: Vectors = field(repr=False)
    cut: Vectors = field(repr=False)
    label: Any
    part: str

    @property
    def z(self) -> float:
        """Deviations of an interval from noise alone."""
        return SURER if self.cut.any() else SURE

    @property
    def most_cut(self) -> float:
        """The share of all items that was cut off, at most, as far as noise lets it be known."""
        if not self.cut.any():
            return 0.0
        return ratio(self.value, self.cut, self.weight + self.cut, self.noise, low=0.0, high=1.0, z=SURER).high

    def sums(self, weights: Vectors) -> Vectors:
        """Weights for the block's numbers as weights for all that is in it."""
        return np.concatenate([np.asarray(weights) * self.scale, np.zeros(len(self.value) - len(weights))])

    def mean(self, weights: Vectors, *, low: float, high: float, under: Vectors | None = None) -> Estimate:
        """Mean of a weighted sum of the block's numbers, which is known to lie between ``low`` and ``high``."""
        noisy = ratio(
            self.value,
            self.sums(weights),
            self.weight if under is None else under,
            self.noise,
            low=low,
            high=high,
            z=self.z,
        )
        return mixed(noisy, self.most_cut, low=low, high=high)

    def total(self, weights: Vectors, *, times: float, low: float, high: float) -> Estimate:
        """A sum over all items, ``times`` as large; each item that was cut off adds between ``low`` and ``high``."""
        value, deviation = float(weights @ self.value), self.noise * float(np.linalg.norm(weights))
        cut = max(float(self.cut @ self.value) + self.z * self.noise * float(np.linalg.norm(self.cut)), 0.0)
        least = value - self.z * deviation + cut * min(low, 0.0)
        most = value + self.z * deviation + cut * max(high, 0.0)
        return Estimate(times * value, times * least, times * most)


@dataclass(frozen=True, kw_only=True)
class RowQuestion:
    """What all questions about rows have in common.

    Parameters
    ----------
    name : str
        What the answer is called.
    by : str or None
        A column of labels: the question is answered for each of ``values``, and rows with other labels do not count.
    values : tuple of str or numbers
        The labels: a public list.
    weight : {"share", "rows"}
        With "share" every unit counts alike, whatever it has of rows. With "rows" every row counts alike, up to
        ``most_rows`` of a unit.
    most_rows : int or None
        With weight = "rows", a public number: a unit with more rows counts as one with so many. The interval allows for
        its other rows, up to as many again.
    """

    name: str
    by: str | None = None
    values: tuple[str | float, ...] = ()
    weight: Literal["share", "rows"] = "share"
    most_rows: int | None = None
    asks_of: ClassVar[Literal["table", "scores"]] = "table"
    anchor: ClassVar[float] = 0.1
    """Share of a vector's square for the number of items, by which sums are divided."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        if not isinstance(self.name, str) or not self.name:
            raise InvalidInput(f"name is {self.name!r}; give the question a name")
        if (self.by is None) != (not self.values):
            raise InvalidInput("by and values go together: a column of labels, and a public list of them")
        if len(set(self.values)) < len(self.values):
            raise InvalidInput(f"values are {', '.join(map(str, self.values))}; name each label once")
        if any(isinstance(value, float) and not math.isfinite(value) for value in self.values):
            raise InvalidInput("values hold NaN or infinity; labels are texts or finite numbers")
        checks.one_of("weight", self.weight, ("share", "rows"))
        if self.weight == "rows":
            if self.most_rows is None:
                raise InvalidInput(f"{self.name} weights units by their rows; set most_rows, a public number")
            checks.at_least("most_rows", self.most_rows, 1)
        elif self.most_rows is not None:
            raise InvalidInput(f"most_rows is {self.most_rows}, but weight is 'share'; set weight = 'rows'")

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns without that of the labels."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[str, ...]:
        """Columns that are asked about side by side."""
        return (self.reads[0],)

    @property
    def width(self) -> int:
        """How many numbers an item has."""
        raise NotImplementedError

    @property
    def scales(self) -> bool:
        """Whether an item may have been scaled down."""
        return False

    def items(self, rows: Columns) -> Items:
        """Items of all rows; none has a norm above 1 after it was scaled."""
        raise NotImplementedError

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.reads, *(() if self.by is None else (self.by,)))))

    @property
    def length(self) -> int:
        return self._blocks * self._step + (self.weight == "rows")

    @property
    def _blocks(self) -> int:
        return max(len(self.values), 1) * len(self.parts)

    @property
    def _step(self) -> int:
        return self.width + 1 + self.scales

    @property
    def _share(self) -> float:
        """What the blocks have of the norm."""
        return math.sqrt(1 - CUT**2) if self.weight == "rows" else 1.0

    def vectors(self, rows: Columns, starts: Starts) -> Vectors:
        """One vector for each unit: the mean over its rows, times its weight."""
        sizes = sizes_of(rows, self.columns, starts)
        items = self.items(rows)
        unit = np.repeat(np.arange(len(sizes)), sizes)[items.row]
        weights = np.ones(len(sizes)) if self.most_rows is None else np.minimum(sizes / self.most_rows, 1.0)
        each = (self._share * weights / np.maximum(sizes, 1) / math.sqrt(len(self.parts)))[unit]
        found = self.placed(items, unit, self.classes(rows)[items.row], each, len(sizes))
        if self.most_rows is not None:
            found[:, -1] = CUT * np.clip(sizes / self.most_rows - 1, 0.0, 1.0)
        return within_one(found)

    def placed(
        self, items: Items, unit: NDArray[np.intp], label: NDArray[np.intp], each: Vectors, units: int
    ) -> Vectors:
        """Items times their weights, added up by class and column; those without a class are left out."""
        start = unit * self.length + (label * len(self.parts) + items.part) * self._step
        counted = label >= 0
        some = counted[items.item]
        number, weight = math.sqrt(1 - self.anchor), math.sqrt(self.anchor)
        place = [start[items.item[some]] + items.place[some], start[counted] + self.width]
        value = [number * (each[items.item] * items.value)[some], (weight * each * items.kept)[counted]]
        if self.scales:
            place.append(start[counted] + self.width + 1)
            value.append((weight * each * (1 - items.kept))[counted])
        flat = np.bincount(np.concatenate(place), np.concatenate(value), minlength=units * self.length)
        found: Vectors = flat.reshape(units, self.length).astype(np.float64)
        return found

    def classes(self, rows: Columns) -> NDArray[np.intp]:
        """The class of each row; −1 for a label that is not asked for."""
        count = len(column_of(rows, self.columns[0]))
        if self.by is None:
            return np.zeros(count, np.intp)
        labels = column_of(rows, self.by)
        texts = labels.dtype.kind not in "fiub"
        if any(isinstance(value, str) != texts for value in self.values):
            raise CannotContribute(
                f"its column {self.by!r} and the labels that are asked for must both be texts, or numbers"
            )
        found = np.full(count, -1, np.intp)
        for number, value in enumerate(self.values):
            found[np.asarray([label == value for label in labels], bool) if count else []] = number
        return found

    def blocks(self, total: Total) -> Iterator[Block]:
        """The sums of each class and column."""
        if total.value.shape != (self.length,):
            raise InvalidInput(f"the sum has {total.value.size} numbers; {self.name} has {self.length}")
        share = self._share / math.sqrt(len(self.parts))
        size = self.width + 3
        weight, cut = np.zeros(size), np.zeros(size)
        weight[self.width] = 1 / (share * math.sqrt(self.anchor))
        cut[self.width + 1] = self.scales * weight[self.width]
        cut[self.width + 2] = (self.weight == "rows") / CUT
        for number in range(self._blocks):
            start, value = number * self._step, np.zeros(size)
            value[: self._step] = total.value[start : start + self._step]
            if self.weight == "rows":
                value[-1] = total.value[-1]
            yield Block(
                value=value,
                noise=total.noise,
                scale=1 / (share * math.sqrt(1 - self.anchor)) if self.anchor < 1 else 0.0,
                weight=weight,
                cut=cut,
                label=self.values[number // len(self.parts)] if self.values else None,
                part=self.parts[number % len(self.parts)],
            )

    def titled(self, what: str, block: Block) -> str:
        """The name of an estimate: with its class, where there are classes."""
        return what if self.by is None else f"{what} where {self.by} is {block.label}"

    def labelled(self, block: Block) -> dict[str, Any]:
        """The first column of a table that is by class."""
        return {} if self.by is None else {self.by: block.label}

    def notes(self, total: Total) -> tuple[str, ...]:
        """What is averaged over whom, and what the intervals include."""
        unit = total.unit
        found = [
            f"Every {unit} counts alike: each row of a {unit} with n rows counts 1/n."
            if self.weight == "share"
            else f"Every row counts alike, but a {unit} with more than {self.most_rows} rows counts as if it had "
            f"{self.most_rows}; intervals allow for its other rows, up to as many again."
        ]
        if self.by is not None:
            found.append(f"Rows whose {self.by} is not in the list of values do not count.")
        found.append(
            f"Intervals are about the {unit}s that took part: they include noise"
            + (" and what was cut off" if self.scales or self.weight == "rows" else "")
            + ", not the chance by which they were chosen."
        )
        return tuple(found)


def sizes_of(rows: Columns, columns: tuple[str, ...], starts: Starts) -> NDArray[np.intp]:
    """Numbers of rows of the units; columns and starts must fit."""
    lengths = {len(column_of(rows, name)) for name in columns}
    if len(lengths) > 1:
        raise CannotContribute("its columns differ in length; every row needs a field in each")
    sizes: NDArray[np.intp] = np.diff(starts)
    if len(starts) < 1 or starts[0] != 0 or starts[-1] != max(lengths) or (sizes < 0).any():
        raise InvalidInput("starts must begin with 0, never fall, and end with the number of rows")
    return sizes


def bounded(name: str, low: float | None, high: float | None) -> None:
    """Refuse a column without finite bounds."""
    for side, bound in (("low", low), ("high", high)):
        if bound is None or isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
            raise InvalidInput(
                f"{side} of {name!r} is {bound}; a column without bounds cannot be added up privately: set both to "
                "public numbers"
            )
    if not (low is not None and high is not None and low < high):
        raise InvalidInput(f"{name!r} has low = {low} and high = {high}; low must be below high")


def present(rows: Columns, name: str) -> tuple[NDArray[np.intp], Vectors]:
    """Rows in which a number is not missing, and those numbers."""
    numbers = numbers_of(rows, name)
    at = np.flatnonzero(~np.isnan(numbers))
    return at, numbers[at]


def stacked(tables: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Records as columns."""
    return {name: [record[name] for record in tables] for name in tables[0]} if tables else {}
