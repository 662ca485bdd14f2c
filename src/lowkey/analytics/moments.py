"""Means, deviations and correlations of a few bounded columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lowkey.analytics.intervals import SURE
from lowkey.analytics.numbers import Bounded
from lowkey.analytics.question import Answer, Columns, Estimate, Total, Vectors, numbers_of
from lowkey.analytics.rows import Block, Items, stacked
from lowkey.errors import InvalidInput

MOST = 20
"""Columns that one question may have: noise grows with their number."""


@dataclass(frozen=True, kw_only=True)
class Moments(Bounded):
    """Means, standard deviations and correlations of columns, over the rows in which none of them is missing.

    Every unit counts alike with weight = "share", so that a row of a unit with n rows counts 1/n: correlations are
    those of rows drawn from a unit that is drawn first.
    """

    anchor: ClassVar[float] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.limits) > MOST:
            raise InvalidInput(f"{self.name} has {len(self.limits)} columns; second moments are for at most {MOST}")
        if self.weight != "share":
            raise InvalidInput("second moments have weight = 'share': nobody could tell what rows that were cut off do")

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def width(self) -> int:
        """Numbers, and products of pairs of them."""
        count = len(self.limits)
        return count + count * (count + 1) // 2

    @property
    def _weights(self) -> Vectors:
        """What numbers and products have of the norm."""
        count = len(self.limits)
        products = self.width - count
        found: Vectors = np.sqrt(np.concatenate([np.full(count, 0.5 / count), np.full(products, 0.5 / products)]))
        return found

    def items(self, rows: Columns) -> Items:
        numbers = np.stack(
            [self.scaled(name, np.clip(numbers_of(rows, name), *self.limits[name])) for name in self.limits]
        )
        at = np.flatnonzero(~np.isnan(numbers).any(axis=0))
        numbers = numbers[:, at]
        first, second = np.triu_indices(len(self.limits))
        products = numbers[first] * numbers[second]
        products[first == second] = 2 * products[first == second] - 1
        values = np.concatenate([numbers, products]) * self._weights[:, None]
        item, place = np.tile(np.arange(len(at)), self.width), np.repeat(np.arange(self.width), len(at))
        return Items(at, np.zeros_like(at), np.ones(len(at)), item, place, values.ravel())

    def scaled(self, column: str, numbers: Vectors) -> Vectors:
        low, high = self.limits[column]
        return (2 * numbers - low - high) / (high - low)

    def read(self, total: Total) -> Answer:
        """Means and deviations by column, correlations by pair."""
        columns, pairs = [], []
        names = tuple(self.limits)
        for block in self.blocks(total):
            for place, name in enumerate(names):
                low, high = self.limits[name]
                mean = block.mean(np.eye(self.width)[place] / self._weights[place], low=-1.0, high=1.0)
                deviation = self._function(block, _deviation(place), low=0.0, high=1.0)
                half = (high - low) / 2
                columns.append(
                    self.labelled(block)
                    | {"column": name}
                    | _ends("mean", mean, half, (low + high) / 2)
                    | _ends("deviation", deviation, half, 0.0)
                )
            for one in range(len(names)):
                for two in range(one + 1, len(names)):
                    found = self._function(block, _correlation(one, two), low=-1.0, high=1.0)
                    pairs.append(
                        self.labelled(block) | {"first": names[one], "second": names[two]} | _ends("correlation", found)
                    )
        return Answer(
            question=self.name,
            tables={"columns": stacked(columns)} | ({"pairs": stacked(pairs)} if pairs else {}),
            notes=(*self.notes(total), "Only rows in which none of the columns is missing count."),
        )

    def _function(
        self, block: Block, of: Callable[[Vectors, Vectors], Vectors], *, low: float, high: float
    ) -> Estimate:
        """A smooth function of means and products, with the deviation that follows from its slopes.

        Where a variance cannot be told from 0, the interval is all that is possible.
        """

        def at(sums: Vectors) -> Vectors:
            rows = sums @ block.weight
            moments = sums[:, : self.width] * block.scale / self._weights / np.where(rows > 0, rows, math.nan)[:, None]
            count = len(self.limits)
            products = np.zeros((len(sums), count, count))
            first, second = np.triu_indices(count)
            products[:, first, second] = np.where(first == second, (moments[:, count:] + 1) / 2, moments[:, count:])
            products[:, second, first] = products[:, first, second]
            return of(moments[:, :count], products)

        value = float(at(block.value[None])[0])
        step = max(1e-4 * block.noise, 1e-9 * float(block.weight @ block.value))
        steps = step * np.eye(self.width + 1, len(block.value))
        slopes = (at(block.value + steps) - at(block.value - steps)) / (2 * step)
        deviation = block.noise * float(np.linalg.norm(slopes))
        if not (math.isfinite(value) and math.isfinite(deviation)):
            return Estimate((low + high) / 2, low, high)
        ends = (min(max(end, low), high) for end in (value, value - SURE * deviation, value + SURE * deviation))
        return Estimate(*ends)


def _deviation(place: int) -> Callable[[Vectors, Vectors], Vectors]:
    return lambda means, products: _root(products[:, place, place] - means[:, place] ** 2)


def _correlation(one: int, two: int) -> Callable[[Vectors, Vectors], Vectors]:
    def found(means: Vectors, products: Vectors) -> Vectors:
        covariance: Vectors = products[:, one, two] - means[:, one] * means[:, two]
        return covariance / (_deviation(one)(means, products) * _deviation(two)(means, products))

    return found


def _root(variance: Vectors) -> Vectors:
    """Square roots; NaN where there is none, or where it is 0."""
    found: Vectors = np.sqrt(np.where(variance > 0, variance, math.nan))
    return found


def _ends(name: str, found: Estimate, scale: float = 1.0, shift: float = 0.0) -> dict[str, Any]:
    value, low, high = (shift + scale * end for end in (found.value, found.low, found.high))
    return {name: value, f"{name} low": low, f"{name} high": high}
