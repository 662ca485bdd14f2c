"""What can be asked of all clients in one masked sum: a short vector of norm 1 at most from every protected unit."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lowkey.errors import CannotContribute, InvalidInput

Columns: TypeAlias = Mapping[str, NDArray[Any]]
"""Rows by column, all of one length: numbers as float64, NaN where missing; texts as objects, None where missing; codes
as objects that are tuples of texts, empty where there are none."""

Starts: TypeAlias = NDArray[np.intp]
"""Which rows are whose: unit u has the rows ``starts[u]`` up to, but without, ``starts[u + 1]``."""

Vectors: TypeAlias = NDArray[np.float64]


class Question(Protocol):
    """A frozen record; equal records ask the same.

    A *unit* is whom privacy protects: a client with all its rows, or a person with his or hers.

    Guarantees
    ----------
    No unit's vector is longer than 1, whatever its rows are, and it depends on no other unit's rows. Rows that the
    question cannot use raise :class:`lowkey.errors.CannotContribute`, with words that quote no data; whoever asks then
    asks unit by unit, so that one unit's rows silence that unit alone.
    """

    asks_of: ClassVar[Literal["table", "scores"]]
    """Whether it reads a client's own columns, or "score" and "label" (and groups) of its test rows under the model."""

    @property
    def name(self) -> str:
        """What the answer is called."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads."""
        ...

    @property
    def length(self) -> int:
        """How many numbers a vector has."""
        ...

    def vectors(self, rows: Columns, starts: Starts) -> Vectors:
        """One vector for each unit; a unit without rows has zeros."""
        ...

    def read(self, total: Total) -> Answer:
        """What the noisy sum says."""
        ...


@dataclass(frozen=True, kw_only=True)
class Total:
    """The noisy sum of all units' vectors.

    Attributes
    ----------
    value : array
        One number for each of the question's.
    noise : float
        Standard deviation of the noise in each of them; 0 where nothing is private.
    units : int
        How many clients, or persons, are expected to be in it: a public number.
    unit : {"client", "person"}
        Who they are.
    """

    value: Vectors = field(repr=False)
    noise: float
    units: int
    unit: Literal["client", "person"] = "client"


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval, which includes noise and, where there is any, sampling and clipping."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was found out.

    Attributes
    ----------
    question : str
        Its name.
    estimates : mapping
        Single numbers by name.
    tables : mapping
        Tables by name; each a mapping of columns, all of one length, whose entries are numbers, texts or None.
    notes : tuple of str
        What a reader must know, in whole sentences: what is averaged over whom, what was cut off.
    """

    question: str
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, list[Any]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def digest_of(kind: str, question: Question) -> str:
    """SHA-256 of a question with all its settings, as hexadecimal text."""
    text = json.dumps([kind, asdict(question)], sort_keys=True, separators=(",", ":"), allow_nan=False)  # type: ignore[call-overload]
    return hashlib.sha256(f"lowkey question 1\n{text}".encode()).hexdigest()


def column_of(rows: Columns, name: str) -> NDArray[Any]:
    """A column; a table without it cannot answer."""
    if name not in rows:
        raise CannotContribute(f"its table has no column {name!r}; it has {', '.join(rows) or 'none'}")
    return rows[name]


def numbers_of(rows: Columns, name: str) -> NDArray[np.float64]:
    """A column of numbers, NaN where missing."""
    column = column_of(rows, name)
    if column.dtype == object and all(entry is None or isinstance(entry, int | float | np.number) for entry in column):
        column = np.array([math.nan if entry is None else entry for entry in column], np.float64)
    if column.dtype.kind not in "fiub":
        raise CannotContribute(f"its column {name!r} is not of numbers; write numbers, or leave fields empty")
    return column.astype(np.float64)


def per_unit(values: Vectors, starts: Starts) -> Vectors:
    """Sums over the rows of each unit."""
    if len(starts) < 1 or starts[0] != 0 or starts[-1] != len(values):
        raise InvalidInput("starts must begin with 0 and end with the number of rows")
    found: Vectors = np.zeros((len(starts) - 1, values.shape[1]))
    some = np.flatnonzero(np.diff(starts))  # each by itself: no unit changes the last bits of another
    if some.size:
        found[some] = np.add.reduceat(values, starts[some], axis=0)
    return found


def within_one(vectors: Vectors) -> Vectors:
    """The same with every vector that is longer than 1 scaled to 1; a vector with anything but numbers is refused."""
    if not np.isfinite(vectors).all():
        raise CannotContribute("its answer holds NaN or infinite numbers; check the columns that are asked for")
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    found: Vectors = vectors / np.maximum(norms, 1.0)
    return found
