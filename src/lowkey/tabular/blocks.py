"""From columns to sparse blocks, and from blocks to rows of which none is longer than 1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import numpy as np
import polars as pl
from scipy import sparse

from lowkey.tabular.rules import Hashed, Limits, Listed, Rule, bucket

POWER = 1 / 8

SparseRows: TypeAlias = "sparse.csr_array[np.float32, tuple[int, int]]"
"""One row per row of the table; float32 values, int32 indices."""

Part: TypeAlias = tuple[str, SparseRows, int]
"""A block: its name, its columns, and as how many categories it counts."""


def blocks_of(name: str, rule: Rule, values: pl.Series) -> Iterator[Part]:
    """The blocks of a column.

    Parameters
    ----------
    name : str
        Of the column.
    rule : Rule
        What becomes of it.
    values : pl.Series
        For limits, numbers; for other rules, lists of texts. Null or an empty list is missing.
    """
    if isinstance(rule, Limits):
        yield name, _number(values, rule), 2
        if rule.missing:
            yield f"{name} is missing", _flags(values), 2
        return
    if isinstance(rule, Listed):
        places, size = {value: place for place, value in enumerate(rule.values)}, len(rule.values)
        other = size if rule.other else None
        size += rule.other
        yield _with_missing(name, values, places, size, rule.missing, other)
        return
    for length, size in rule.columns.items():
        label = Hashed.label(name, length)
        short = values if length is None else values.list.eval(pl.element().str.slice(0, length))
        texts = short.explode().drop_nulls().unique().to_list()
        places = {text: bucket(f"{label}={text}", size) for text in texts}
        yield _with_missing(label, short, places, size, rule.missing)


def joined(blocks: Iterable[Part], count: int) -> tuple[SparseRows, tuple[str, ...]]:
    """Blocks side by side with a constant, each weighted by its public number of categories."""
    blocks = [*blocks, ("constant", sparse.csr_array(np.ones((count, 1), np.float32)), 1)]
    weights = np.array([categories**POWER for _, _, categories in blocks])
    weights /= np.linalg.norm(weights)
    parts = [part * np.float32(weight) for (_, part, _), weight in zip(blocks, weights, strict=True)]
    names = tuple(
        f"{name}#{i}" if part.shape[1] > 1 else name for name, part, _ in blocks for i in range(part.shape[1])
    )
    return sparse.csr_array(sparse.hstack(parts, "csr", np.float32)), names


def _number(values: pl.Series, limits: Limits) -> SparseRows:
    """From −1 to 1 between the limits, and there beyond them."""
    middle, half = (limits.low + limits.high) / 2, (limits.high - limits.low) / 2
    fill = middle if limits.fill is None else limits.fill
    scaled = (values.cast(pl.Float64).fill_null(fill).fill_nan(fill).to_numpy() - middle) / half
    return sparse.csr_array(np.clip(scaled, -1, 1)[:, None].astype(np.float32))


def _flags(values: pl.Series) -> SparseRows:
    missing = values.cast(pl.Float64).fill_nan(None).is_null().to_numpy()
    return sparse.csr_array(missing[:, None].astype(np.float32))


def _with_missing(
    name: str, lists: pl.Series, places: Mapping[str, int], size: int, missing: bool, other: int | None = None
) -> Part:
    place = size if missing else None
    return name, _indicators(lists, places, size + missing, other, place), size + missing


def _indicators(
    lists: pl.Series, columns: Mapping[str, int], size: int, other: int | None, missing: int | None
) -> SparseRows:
    """One over the root of their number for each of a row's columns, so that a row has norm 1 or 0."""
    known = pl.DataFrame(
        {"text": list(columns), "column": list(columns.values())}, schema={"text": pl.String, "column": pl.Int32}
    )
    rows = np.arange(len(lists), dtype=np.int32)
    said = pl.DataFrame({"row": rows, "text": lists}, schema_overrides={"text": pl.List(pl.String)})
    said = said.explode("text").drop_nulls()
    pairs = said.join(known, on="text", how="inner" if other is None else "left").select("row", "column")
    if other is not None:
        pairs = pairs.with_columns(pl.col("column").fill_null(other))
    row, column = (part.to_numpy() for part in pairs.unique())
    if missing is not None:
        silent = np.setdiff1d(rows, said["row"].to_numpy())
        row = np.concatenate([row, silent])
        column = np.concatenate([column, np.full(len(silent), missing, np.int32)])
    counts = np.bincount(row, minlength=len(lists))
    values = (1 / np.sqrt(counts[row])).astype(np.float32)
    return sparse.csr_array(sparse.coo_array((values, (row, column)), shape=(len(lists), size)))
