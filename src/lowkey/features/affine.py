"""Maps that shift, scale, choose and add columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.features.maps import BlockMap, Shape, count_of, flat
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class Constant(BlockMap):
    """Appends a column with the same number in every row: a bias that counts in the norm of a row.

    Parameters
    ----------
    value : float
        The number.
    """

    kind: ClassVar[str] = "constant"
    takes_sparse: ClassVar[bool] = True
    value: float = 1.0

    def __post_init__(self) -> None:
        _require_numbers("constant: value", (self.value,))

    def width(self, inputs: Shape) -> int:
        return count_of(inputs) + 1

    def _block(self, rows: FloatArray) -> FloatArray:
        return np.concatenate([flat(rows), np.full((len(rows), 1), self.value, np.float32)], 1)

    def _sparse(self, rows: Any) -> Any:
        import scipy.sparse

        column = np.full((rows.shape[0], 1), self.value, np.float32)
        return scipy.sparse.hstack([rows, scipy.sparse.csr_array(column)], format="csr", dtype=np.float32)


@dataclass(frozen=True, kw_only=True)
class Centred(BlockMap):
    """(row − mean) / scales, with public numbers.

    Means and scales of private data are public only once they were released privately; what that cost is accounted
    where it was done.

    Parameters
    ----------
    mean : tuple of float
        What is subtracted, one number for each column.
    scales : tuple of float, optional
        What each column is divided by, all above 0.
    """

    kind: ClassVar[str] = "centred"
    mean: tuple[float, ...]
    scales: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", as_numbers("centred: mean", self.mean))
        if self.scales is None:
            return
        object.__setattr__(self, "scales", as_numbers("centred: scales", self.scales))
        if len(self.scales) != len(self.mean):
            raise InvalidInput(
                f"centred has {len(self.mean)} means and {len(self.scales)} scales; give one of each for every column"
            )
        for scale in self.scales:
            checks.positive("centred: a scale", scale)

    def width(self, inputs: Shape) -> int:
        if count_of(inputs) != len(self.mean):
            raise InvalidInput(f"centred has {len(self.mean)} means, and a row has {count_of(inputs)} numbers")
        return len(self.mean)

    def _block(self, rows: FloatArray) -> FloatArray:
        moved: FloatArray = flat(rows) - np.array(self.mean, np.float32)
        if self.scales is not None:
            moved /= np.array(self.scales, np.float32)
        return moved


@dataclass(frozen=True, kw_only=True)
class Columns(BlockMap):
    """Some columns of a row, for maps that are meant for these only.

    Parameters
    ----------
    chosen : tuple of int
        Numbers of the columns, from 0, in the order in which they are wanted.
    """

    kind: ClassVar[str] = "columns"
    takes_sparse: ClassVar[bool] = True
    passes_missing: ClassVar[bool] = True
    chosen: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "chosen", tuple(self.chosen))
        if not self.chosen:
            raise InvalidInput("columns: chosen is empty; give the number of at least one column")
        for column in self.chosen:
            checks.at_least("columns: a column", column, 0)

    def width(self, inputs: Shape) -> int:
        if max(self.chosen) >= count_of(inputs):
            raise InvalidInput(
                f"columns: column {max(self.chosen)} is chosen, and a row has {count_of(inputs)} numbers, from 0"
            )
        return len(self.chosen)

    def _block(self, rows: FloatArray) -> FloatArray:
        return flat(rows)[:, list(self.chosen)]

    def _sparse(self, rows: Any) -> Any:
        self.width(rows.shape[1])
        return rows[:, list(self.chosen)]


def as_numbers(name: str, values: Any) -> tuple[float, ...]:
    """A tuple of finite floats from a list, tuple or array; at least one."""
    try:
        listed = np.asarray(values, np.float64).tolist() if hasattr(values, "__array__") else list(values)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} is {values!r}; it must be a list of numbers") from error
    if not isinstance(listed, list) or not listed:
        raise InvalidInput(f"{name} is {values!r}; it must be a list of at least one number")
    _require_numbers(name, listed)
    return tuple(map(float, listed))


def _require_numbers(name: str, values: Any) -> None:
    for value in values:
        checks.number(name, value)
        if not math.isfinite(value):
            raise InvalidInput(f"{name} holds {value}; it must be finite")
