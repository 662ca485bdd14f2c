"""From a client's table to rows of features, as an encoder says."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lowkey.durable import replace_file
from lowkey.errors import DataError, InvalidInput
from lowkey.tabular.blocks import Part, SparseRows, blocks_of, joined
from lowkey.tabular.encoder import Column, Encoder
from lowkey.tabular.rules import Limits, Listed
from lowkey.tabular.tables import labels_of, persons_of, read_table, series_of


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """A client's rows as features.

    Attributes
    ----------
    rows : SparseRows
        One row per row of the table, none longer than 1.
    labels : NDArray[np.float32] or None
        1 where the outcome happened, 0 where not.
    persons : NDArray[np.str_] or None
        Whose each row is.
    treated : mapping of str to (mapping of str to int)
        By column, in how many rows a field was missing, a text was not listed, or a number was clipped: for the
        client's own eyes.
    """

    rows: SparseRows = field(repr=False)
    labels: NDArray[np.float32] | None = field(default=None, repr=False)
    persons: NDArray[np.str_] | None = field(default=None, repr=False)
    treated: Mapping[str, Mapping[str, int]] = field(default_factory=dict, repr=False)

    def save(self, path: Path) -> None:
        """Write an .npz file that ``scipy.sparse.load_npz`` reads, with "labels" and "persons" where they are known."""
        rows = self.rows
        parts: dict[str, Any] = {"labels": self.labels, "persons": self.persons}
        parts = {name: values for name, values in parts.items() if values is not None}
        parts |= {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr, "shape": rows.shape}
        content = io.BytesIO()
        np.savez_compressed(content, format=b"csr", _is_array=True, **parts)
        replace_file(path, content.getvalue(), mode=0o600)


def apply(
    encoder: Encoder, table: pl.DataFrame | str | Path, *, label: str | None = None, person: str | None = None
) -> Encoded:
    """Encode a table; the same table gives the same rows everywhere.

    Parameters
    ----------
    encoder : Encoder
        What becomes of each column.
    table : pl.DataFrame, str or Path
        The table, or its CSV or Parquet file.
    label, person : str or None
        Columns with the outcome and with whose each row is, if they are wanted.

    Raises
    ------
    DataError
        If the table does not fit: it names the column and the first row, and quotes no field.
    """
    for role, name in (("label", label), ("person", person)):
        if name in {column.name for column in encoder.columns}:
            raise InvalidInput(
                f"the {role} column is {name!r}, which the encoder makes features of; take it out of the encoder"
            )
    frame = table if isinstance(table, pl.DataFrame) else read_table(table)
    blocks: list[Part] = []
    treated = {}
    for column in encoder.columns:
        values = series_of(frame, column, encoder.missing)
        if column.kind == "category":
            values = values.reshape((-1, 1)).cast(pl.List(pl.String))
        treated[column.name] = _treated(column, values)
        blocks += blocks_of(column.name, column.rule, values)
    rows, _ = joined(blocks, len(frame))
    if rows.shape[1] != encoder.width:
        raise DataError(f"the rows have {rows.shape[1]} features; the encoder says {encoder.width}")
    return Encoded(
        rows=rows,
        labels=None if label is None else labels_of(frame, label, encoder.missing),
        persons=None if person is None else persons_of(frame, person, encoder.missing),
        treated=treated,
    )


def _treated(column: Column, values: pl.Series) -> dict[str, int]:
    rule = column.rule
    if isinstance(rule, Limits):
        clipped = (values < rule.low) | (values > rule.high)
        return {"missing": values.null_count(), "clipped": _count(clipped)}
    found = {"missing": _count(values.list.drop_nulls().list.len().fill_null(0) == 0)}
    if isinstance(rule, Listed):
        strange = pl.element().is_not_null() & ~pl.element().is_in(list(rule.values))
        found["unknown"] = _count(values.list.eval(strange).list.any())
    return found


def _count(where: Any) -> int:
    return int(where.fill_null(value=False).sum())
