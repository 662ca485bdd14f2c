"""From columns to sparse numbers by public rules alone: nothing is fitted, so no ε is needed.

Every feature becomes a block of columns whose part of a row has norm 1 at most: a number is scaled by public limits, a
text from a public list gets a column of its own, any other text the column that a public hash gives it. A block of K
columns (2 for a number) is weighted by K to the power ⅛, so that rare categories are neither lost nor loud, and all
blocks together are scaled so that no row is longer than 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl
from scipy import sparse

from lowkey.errors import InvalidInput
from lowkey.tasks.mortality.admissions import Admissions
from lowkey.tasks.mortality.features import Rows, SparseRows
from lowkey.tasks.mortality.source import Limits, Listed, PublicRule

_POWER = 1 / 8


def bucket(text: str, buckets: int) -> int:
    """The column of a text; the same on every machine."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, person=b"lowkey admission").digest()
    return int.from_bytes(digest, "little") % buckets


def public_features(
    admissions: Admissions, rows: Rows, rules: Mapping[str, PublicRule]
) -> tuple[SparseRows, tuple[str, ...]]:
    """Sparse rows of the given admissions, none longer than 1, and the names of their columns.

    Parameters
    ----------
    admissions : Admissions
        All rows.
    rows : Rows
        Which of them.
    rules : mapping of str to PublicRule
        The rule of each feature.
    """
    blocks: list[tuple[str, SparseRows, int]] = []
    for name in admissions.columns:
        rule = rules.get(name)
        if rule is None:
            raise InvalidInput(
                f"the feature {name} has no public rule; leave it out of data.features, or set data.encoding = 'fitted'"
            )
        if isinstance(rule, Limits):
            blocks.append((name, _number(admissions.numeric[name][rows], rule), 2))
            continue
        lists = _as_lists(admissions, name, rows)
        if isinstance(rule, Listed):
            places = {value: place for place, value in enumerate(rule.values)}
            blocks.append((name, _indicators(lists, places, len(places)), len(places)))
            continue
        for length, size in rule.columns.items():
            label = name if length is None else f"{name}[:{length}]"
            short = lists if length is None else lists.list.eval(pl.element().str.slice(0, length))
            blocks.append((label, _hashed(short, label, size), size))
    return joined(blocks, len(rows))


def joined(blocks: Iterable[tuple[str, SparseRows, int]], count: int) -> tuple[SparseRows, tuple[str, ...]]:
    """Blocks side by side with a constant, each weighted by its public number of categories."""
    blocks = [*blocks, ("constant", sparse.csr_array(np.ones((count, 1), np.float32)), 1)]
    weights = np.array([categories**_POWER for _, _, categories in blocks])
    weights /= np.linalg.norm(weights)
    parts = [part * np.float32(weight) for (_, part, _), weight in zip(blocks, weights, strict=True)]
    names = tuple(
        f"{name}#{i}" if part.shape[1] > 1 else name for name, part, _ in blocks for i in range(part.shape[1])
    )
    return sparse.csr_array(sparse.hstack(parts, "csr", np.float32)), names


def _number(values: pl.Series, limits: Limits) -> SparseRows:
    """From −1 to 1 between the limits, and there beyond them; what is missing is in the middle."""
    middle, half = (limits.low + limits.high) / 2, (limits.high - limits.low) / 2
    scaled = (values.cast(pl.Float64).fill_null(middle).fill_nan(middle).to_numpy() - middle) / half
    return sparse.csr_array(np.clip(scaled, -1, 1)[:, None].astype(np.float32))


def _as_lists(admissions: Admissions, name: str, rows: Rows) -> pl.Series:
    codes = name in admissions.codes.columns
    texts = admissions.codes[name][rows] if codes else admissions.categorical[name][rows].reshape((-1, 1))
    return texts.cast(pl.List(pl.String))


def _hashed(lists: pl.Series, label: str, buckets: int) -> SparseRows:
    texts = lists.explode().drop_nulls().unique().to_list()
    return _indicators(lists, {text: bucket(f"{label}={text}", buckets) for text in texts}, buckets)


def _indicators(lists: pl.Series, columns: Mapping[str, int], size: int) -> SparseRows:
    """One over the root of their number for each of a row's known texts, so that a row has norm 1 or 0."""
    known = pl.DataFrame(
        {"text": list(columns), "column": list(columns.values())}, schema={"text": pl.String, "column": pl.Int32}
    )
    pairs = (
        pl.DataFrame({"row": np.arange(len(lists), dtype=np.int32), "text": lists})
        .explode("text")
        .drop_nulls()
        .join(known, on="text")
        .select("row", "column")
        .unique()
    )
    row, column = pairs["row"].to_numpy(), pairs["column"].to_numpy()
    counts = np.bincount(row, minlength=len(lists))
    values = (1 / np.sqrt(counts[row])).astype(np.float32)
    return sparse.csr_array(sparse.coo_array((values, (row, column)), shape=(len(lists), size)))
