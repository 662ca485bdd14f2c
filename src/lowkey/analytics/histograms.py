"""Histograms over public bins, and the quantiles that follow from them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np

from lowkey import checks
from lowkey.analytics.intervals import mixed, onto_simplex, ratio
from lowkey.analytics.question import Answer, Columns, Estimate, Total, Vectors, numbers_of
from lowkey.analytics.rows import Block, Items, RowQuestion, bounded, stacked
from lowkey.errors import InvalidInput

RANGE_BINS = 8
"""Bins that suit a question about the range of a number over wide limits: more of them drown in noise sooner."""


@dataclass(frozen=True, kw_only=True)
class _Binned(RowQuestion):
    """A column of numbers in public bins.

    Parameters
    ----------
    column : str
        The column.
    edges : tuple of float
        Edges of the bins, rising; a bin has its lower edge but not its upper one. Or, in their place:
    low, high : float or None
        Edges of the first and of the last of equal bins.
    bins : int
        How many.
    """

    column: str
    edges: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None
    bins: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "edges", tuple(self.edges))
        if not self.edges:
            bounded(self.column, self.low, self.high)
            checks.at_least("bins", self.bins, 1)
            return
        if self.low is not None or self.high is not None:
            raise InvalidInput(f"{self.name} has edges as well as low or high; give one or the other")
        bounded(self.column, self.edges[0], self.edges[-1])
        if not np.isfinite(self.edges).all() or (np.diff(self.edges) <= 0).any():
            raise InvalidInput(f"edges of {self.name} must be finite and rise")

    @cached_property
    def all_edges(self) -> Vectors:
        """Edges of all bins."""
        if self.edges:
            return np.asarray(self.edges, np.float64)
        assert self.low is not None
        assert self.high is not None
        return np.linspace(self.low, self.high, self.bins + 1)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def own(self) -> int:
        """1 where what is below and what is above have bins of their own, else 0."""
        return 0

    @property
    def width(self) -> int:
        """Bins, and one number for missing fields."""
        return len(self.all_edges) + 2 * self.own

    def items(self, rows: Columns) -> Items:
        numbers = numbers_of(rows, self.column)
        inside = np.searchsorted(self.all_edges, numbers, side="right") - 1  # NaN is sorted last
        last = len(self.all_edges) - 2
        inside[numbers == self.all_edges[-1]] = last
        place = np.clip(inside, -self.own, last + self.own) + self.own
        place[np.isnan(numbers)] = self.width - 1
        every = np.arange(len(numbers))
        ones = np.ones(len(numbers))
        return Items(every, np.zeros_like(every), ones, every, place.astype(np.intp), ones)

    def whole(self, block: Block) -> tuple[Vectors, Vectors]:
        """What sums must be 0, as every row is in one bin; and weights of the rows that are not missing."""
        zero = block.sums(np.ones(self.width)) - block.weight
        missing = np.zeros(self.width)
        missing[-1] = 1
        return zero, block.weight - block.sums(missing)

    def shares(self, block: Block) -> Vectors:
        """Shares of the bins, not negative and 1 together."""
        zero, under = self.whole(block)
        weights = [without(block.sums(row), zero) for row in np.eye(self.width)[:-1]]
        rows = float(without(under, zero) @ block.value)
        sums = np.array([weight @ block.value for weight in weights])
        return onto_simplex(sums / rows if rows > 0 else np.full(len(sums), 1 / len(sums)))


def without(weights: Vectors, zero: Vectors) -> Vectors:
    """Weights for the same sum with least noise, where the sum with weights ``zero`` is known to be 0."""
    found: Vectors = weights - zero * (float(weights @ zero) / float(zero @ zero))
    return found


@dataclass(frozen=True, kw_only=True)
class Histogram(_Binned):
    """Shares of the rows by public bins.

    Parameters
    ----------
    outside : {"ends", "own"}
        What is below the first edge or not below the last: in the first and last bin, or in bins of its own. The last
        edge itself belongs to the last bin.
    """

    outside: Literal["ends", "own"] = "ends"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("outside", self.outside, ("ends", "own"))

    @property
    def own(self) -> int:
        return int(self.outside == "own")

    def read(self, total: Total) -> Answer:
        """The share of each bin among numbers that are not missing, and the share of missing ones."""
        edges: list[float | None] = [float(edge) for edge in self.all_edges]
        if self.own:
            edges = [None, *edges, None]
        records, estimates = [], {}
        for block in self.blocks(total):
            zero, under = self.whole(block)
            shares = self.shares(block)
            for place, (left, right) in enumerate(pairwise(edges)):
                found = _share(block, block.sums(np.eye(self.width)[place]), under, zero)
                records.append(
                    self.labelled(block)
                    | {"from": left, "to": right, "share": float(shares[place]), "low": found.low, "high": found.high}
                )
            missing = _share(block, block.sums(np.eye(self.width)[-1]), block.weight, zero)
            estimates[self.titled("missing", block)] = missing
        return Answer(
            question=self.name,
            estimates=estimates,
            tables={"histogram": stacked(records)},
            notes=(*self.notes(total), "Shares are made to add up to 1; intervals are of each bin alone."),
        )


def _share(block: Block, over: Vectors, under: Vectors, zero: Vectors) -> Estimate:
    over, under = without(over, zero), without(under, zero)
    noisy = ratio(block.value, over, under, block.noise, low=0.0, high=1.0, z=block.z)
    return mixed(noisy, block.most_cut, low=0.0, high=1.0)


@dataclass(frozen=True, kw_only=True)
class Quantiles(_Binned):
    """Quantiles of a column, and with those near 0 and 1 its range, from one histogram.

    Numbers outside the edges count as the edge. Within a bin, the distribution function is a straight line.

    Parameters
    ----------
    at : tuple of float
        Which quantiles, between 0 and 1.
    """

    at: tuple[float, ...] = (0.01, 0.25, 0.5, 0.75, 0.99)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "at", tuple(self.at))
        if not self.at:
            raise InvalidInput(f"at of {self.name} is empty; name quantiles between 0 and 1")
        for each in self.at:
            checks.fraction("at", each, include_one=False)

    def read(self, total: Total) -> Answer:
        """One estimate for each quantile and class; the interval has whole bins."""
        estimates = {
            self.titled(f"quantile {each:g}", block): found
            for block in self.blocks(total)
            for each, found in self._quantiles(block)
        }
        ends = f"Numbers below {self.all_edges[0]:g} or above {self.all_edges[-1]:g} count as these."
        return Answer(question=self.name, estimates=estimates, notes=(*self.notes(total), ends))

    def _quantiles(self, block: Block) -> Iterator[tuple[float, Estimate]]:
        edges, zero_and_under = self.all_edges, self.whole(block)
        below = np.concatenate([[0.0], np.cumsum(self.shares(block))])
        cut = block.most_cut
        for each in self.at:
            upper = int(np.searchsorted(below, each, side="left"))
            upper = min(max(upper, 1), len(edges) - 1)
            rise = below[upper] - below[upper - 1]
            along = (each - below[upper - 1]) / rise if rise > 0 else 0.5
            value = float(edges[upper - 1] + along * (edges[upper] - edges[upper - 1]))
            least = self._deviations(block, *zero_and_under, (each - cut) / (1 - cut) if cut < 1 else 0.0)
            most = self._deviations(block, *zero_and_under, each / (1 - cut) if cut < 1 else 1.0)
            first = int(np.flatnonzero(least >= -block.z)[0])
            last = int(np.flatnonzero(most <= block.z)[-1])
            low, high = float(edges[max(first - 1, 0)]), float(edges[min(last + 1, len(edges) - 1)])
            yield each, Estimate(value, min(low, value), max(high, value))

    def _deviations(self, block: Block, zero: Vectors, under: Vectors, share: float) -> Vectors:
        """By how many deviations the rows below each edge seem to be more than this share of all."""
        inner = len(self.all_edges) - 2
        below = np.zeros((inner, len(block.value)))
        below[:, : self.width] = block.scale * np.tri(inner, self.width)
        weights = below - share * under
        weights -= np.outer(weights @ zero, zero / (zero @ zero))
        excess = weights @ block.value
        if block.noise > 0:
            found = excess / (block.noise * np.linalg.norm(weights, axis=1))
        else:
            found = np.where(np.abs(excess) < 1e-9, 0.0, np.copysign(math.inf, excess))
        return np.concatenate([[-math.inf], found, [math.inf]])
