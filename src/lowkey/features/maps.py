"""What a public feature map is, and what all of them share: blocks of rows, checks, and the digest.

A map needs no training data: everybody who has the map computes the same features, up to rounding.
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.types import FloatArray

Shape: TypeAlias = int | tuple[int, ...]
"""Shape of one row: how many numbers it has, or the axes of an image."""

Rows: TypeAlias = Any
"""One row per example: an array, or a SciPy sparse array where the map takes one."""

_BLOCK = 1 << 22
"""Numbers of a block of rows, at the input or at the output: 16 MiB."""


class FeatureMap(Protocol):
    """A function of single rows that everybody can compute."""

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of all that the map is made of; equal digests mean equal features, up to rounding."""

    def width(self, inputs: Shape) -> int:
        """How many numbers a mapped row has, for rows of this shape; needs no data."""

    def __call__(self, rows: Rows) -> Rows:
        """The features of rows (n, ...) as float32 (n, width); each depends on its own row only."""


class BlockMap:
    """A map that works on one block of rows after the other, so that memory stays bounded.

    A subclass is a frozen record with a ``kind``, and defines ``width`` and ``_block``.
    """

    kind: ClassVar[str]
    takes_sparse: ClassVar[bool] = False
    """Whether rows may be a SciPy sparse array."""
    passes_missing: ClassVar[bool] = False
    """Whether NaN at the input may be NaN at the output."""

    @property
    def digest(self) -> str:
        return digest_of(self.kind, {field.name: getattr(self, field.name) for field in fields(self)})  # type: ignore[arg-type]

    def width(self, inputs: Shape) -> int:
        raise NotImplementedError

    def __call__(self, rows: Rows) -> Rows:
        if is_sparse(rows):
            if not self.takes_sparse:
                raise InvalidInput(
                    f"the map {self.kind!r} takes dense rows, and these are sparse; put a map before it that makes few "
                    "columns of them, such as hashing or projection, or pass rows.toarray()"
                )
            rows = _canonical(rows)
            _require_finite(self.kind, "input", rows, 0, allow_nan=self.passes_missing)
            with np.errstate(over="ignore", invalid="ignore"):
                mapped = self._sparse(rows)
            _require_finite(self.kind, "output", mapped, 0, allow_nan=self.passes_missing)
            return mapped
        rows = as_array(self.kind, rows)
        width = self.width(rows.shape[1:])
        mapped = np.empty((len(rows), width), np.float32)
        for part in blocks_of(len(rows), max(width, math.prod(rows.shape[1:]))):
            _require_finite(self.kind, "input", rows[part], part.start, allow_nan=self._takes_missing())
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # what is not finite is refused below
                mapped[part] = self._block(rows[part])
            _require_finite(self.kind, "output", mapped[part], part.start, allow_nan=self.passes_missing)
        return mapped

    def _block(self, rows: FloatArray) -> FloatArray:
        """Features of a few rows."""
        raise NotImplementedError

    def _sparse(self, rows: Any) -> Rows:
        """Features of sparse rows, for maps that take them; here, of dense blocks of them."""
        width = self.width(rows.shape[1])
        mapped = np.empty((rows.shape[0], width), np.float32)
        for part in blocks_of(rows.shape[0], max(width, rows.shape[1])):
            mapped[part] = self._block(rows[part].toarray())
        return mapped

    def _takes_missing(self) -> bool:
        """Whether NaN stands for a number that is missing."""
        return self.passes_missing


def digest_of(kind: str, settings: dict[str, Any]) -> str:
    """SHA-256 of a map's kind and settings; numbers that are equal count as equal, as 1 and 1.0 are."""
    text = json.dumps(["lowkey feature map 1", kind, _plain(settings)], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral) or float(value).is_integer():
        return int(value)
    return float(value)


def count_of(shape: Shape) -> int:
    """How many numbers a row of this shape has."""
    axes = shape if isinstance(shape, tuple) else (shape,)
    for axis in axes:
        checks.at_least("an axis of a row", axis, 1)
    return math.prod(axes)


def blocks_of(count: int, numbers_of_a_row: int) -> Iterator[slice]:
    """Slices of at most about four million numbers, and of one row at least."""
    step = max(1, _BLOCK // max(1, numbers_of_a_row))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def is_sparse(rows: Rows) -> bool:
    """Whether rows are a SciPy sparse array or matrix; does not import SciPy."""
    return hasattr(rows, "tocsr")


def as_array(kind: str, rows: Rows) -> FloatArray:
    """Dense rows as float32, with at least one axis beside that of the examples."""
    try:
        with np.errstate(over="ignore"):  # becomes infinite, which is refused later
            array = np.asarray(rows, np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the map {kind!r} takes rows of numbers, and these are none: {error}") from error
    if array.ndim < 2:
        raise InvalidInput(
            f"the map {kind!r} got an array of shape {array.shape}; it needs one row per example: reshape one row to "
            "(1, numbers), and one column to (rows, 1)"
        )
    return array


def _canonical(rows: Any) -> Any:
    """Sparse rows as CSR in float32, without an entry that is there twice."""
    if rows.ndim != 2:
        raise InvalidInput(f"sparse rows have the shape {rows.shape}; they must be a matrix with one row per example")
    rows = rows.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    with np.errstate(over="ignore"):
        return rows.astype(np.float32, copy=False)


def flat(rows: FloatArray) -> FloatArray:
    """Rows with one axis beside that of the examples."""
    return rows.reshape(len(rows), math.prod(rows.shape[1:]))


def _require_finite(kind: str, side: str, rows: Any, first: int, *, allow_nan: bool = False) -> None:
    """Refuse NaN and infinity, and name the row."""
    values = rows.data if is_sparse(rows) else rows
    bad = np.isinf(values) if allow_nan else ~np.isfinite(values)
    if not bad.any():
        return
    place = int(np.argwhere(bad)[0, 0])
    if is_sparse(rows):
        place = int(np.searchsorted(rows.indptr, place, side="right")) - 1
    found = values[bad][0]
    advice = {
        "input": "clean the data, or let splines or bins with missing=True expand columns that lack numbers",
        "output": "are its numbers too large? Scale the rows first",
    }[side]
    raise InvalidInput(f"row {first + place} of the {side} of the map {kind!r} holds {found}; {advice}")
