"""Numbers as several columns, so that a linear model can bend: hat functions and bins at public places."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.features.affine import as_numbers
from lowkey.features.maps import BlockMap, Shape, count_of, flat
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class Splines(BlockMap):
    """Expands each column in hat functions: a linear model of them is piecewise linear in the number.

    A number between two knots becomes two weights that add up to 1; beyond the outer knots it counts as the nearest.
    Knots must be public, such as known limits of a laboratory value, or quantiles that were released privately.

    Parameters
    ----------
    knots : int or tuple of float
        How many knots at equal distances from ``low`` to ``high``, at least 2; or their places, ascending, for all
        columns.
    low, high : float or tuple of float, optional
        The outer knots, for all columns or one for each; given with a number of knots only.
    missing : bool
        NaN stands for a missing number: every column gets one more, which is 1 where the number is missing and 0
        elsewhere, and the hats of a missing number are 0. Without, NaN is refused.
    """

    kind: ClassVar[str] = "splines"
    knots: int | tuple[float, ...]
    low: float | tuple[float, ...] | None = None
    high: float | tuple[float, ...] | None = None
    missing: bool = False

    def __post_init__(self) -> None:
        checks.one_of("splines: missing", self.missing, (True, False))
        if isinstance(self.knots, numbers.Integral):
            checks.at_least("splines: knots", self.knots, 2)
            for name in ("low", "high"):
                value = getattr(self, name)
                if value is None:
                    raise InvalidInput(f"splines: {name} is missing; give it with a number of knots")
                if np.ndim(value):
                    object.__setattr__(self, name, as_numbers(f"splines: {name}", value))
                else:
                    as_numbers(f"splines: {name}", [value])
            if len({len(ends) for ends in (self.low, self.high) if isinstance(ends, tuple)}) > 1:
                raise InvalidInput("splines: low and high have different lengths; give one of each for every column")
        else:
            object.__setattr__(self, "knots", as_numbers("splines: knots", self.knots))
            if self.low is not None or self.high is not None:
                raise InvalidInput("splines: knots are places already; leave low and high out")
        places = self._places()
        if places.shape[1] < 2:
            raise InvalidInput("splines: there is one knot; at least 2 are needed")
        if not (np.diff(places) > 0).all():
            raise InvalidInput("splines: knots must ascend, and low lie below high, by more than float32 rounds away")

    def width(self, inputs: Shape) -> int:
        columns, places = count_of(inputs), self._places()
        if len(places) not in (1, columns):
            raise InvalidInput(f"splines has limits of {len(places)} columns, and a row has {columns} numbers")
        return columns * (int(places.shape[1]) + self.missing)

    def _places(self) -> FloatArray:
        """Knots of each column, or one row of them for all."""
        if isinstance(self.knots, tuple):
            return np.array([self.knots], np.float32)
        low, high = np.broadcast_arrays(np.atleast_1d(self.low), np.atleast_1d(self.high))  # type: ignore[arg-type]
        steps = np.linspace(0.0, 1.0, self.knots)
        return (low[:, None] * (1 - steps) + high[:, None] * steps).astype(np.float32)

    def _takes_missing(self) -> bool:
        return self.missing

    def _block(self, rows: FloatArray) -> FloatArray:
        rows, places = flat(rows), self._places()
        missing, count = np.isnan(rows), places.shape[1]
        hats = np.zeros((*rows.shape, count + self.missing), np.float32)
        each = np.arange(len(rows))
        for column in range(rows.shape[1]):
            knots = places[column if len(places) > 1 else 0]
            x = np.clip(np.where(missing[:, column], knots[0], rows[:, column]), knots[0], knots[-1])
            left = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, count - 2)
            share = (x - knots[left]) / (knots[left + 1] - knots[left])
            hats[each, column, left], hats[each, column, left + 1] = 1 - share, share
        return _with_missing(hats, missing, self.missing)


@dataclass(frozen=True, kw_only=True)
class Bins(BlockMap):
    """Turns each number into a row of zeros with a single 1, at the bin that holds it.

    Parameters
    ----------
    edges : tuple of float
        Ascending places that divide the numbers, the same for all columns; a number at an edge is in the bin above it.
        There is one bin more than edges: the first and the last are open.
    missing : bool
        NaN stands for a missing number and has a bin of its own, the last. Without, NaN is refused.
    """

    kind: ClassVar[str] = "bins"
    edges: tuple[float, ...]
    missing: bool = False

    def __post_init__(self) -> None:
        checks.one_of("bins: missing", self.missing, (True, False))
        object.__setattr__(self, "edges", as_numbers("bins: edges", self.edges))
        if not (np.diff(np.array(self.edges, np.float32)) > 0).all():
            raise InvalidInput(f"bins: edges are {self.edges}; they must ascend, by more than float32 rounds away")

    def width(self, inputs: Shape) -> int:
        return count_of(inputs) * (len(self.edges) + 1 + self.missing)

    def _takes_missing(self) -> bool:
        return self.missing

    def _block(self, rows: FloatArray) -> FloatArray:
        rows = flat(rows)
        missing, edges = np.isnan(rows), np.array(self.edges, np.float32)
        places = np.searchsorted(edges, rows, side="right")
        held = places[..., None] == np.arange(len(edges) + 1 + self.missing)
        return _with_missing(held.astype(np.float32), missing, self.missing)


def _with_missing(expanded: FloatArray, missing: Any, marked: bool) -> FloatArray:
    """Columns of missing numbers are zeros, but for the last one, which marks them."""
    expanded[missing] = 0
    if marked:
        expanded[..., -1] = missing
    return flat(expanded)
