"""A client's own table: CSV, Parquet or a data frame, read by column, with errors that quote none of its fields."""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lowkey.analytics import Columns
from lowkey.errors import DataError

_log = logging.getLogger(__name__)
_YES, _NO = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")


class Field(Protocol):
    """What must be known of a column before it can be read."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> Literal["number", "category", "codes"]: ...

    @property
    def separator(self) -> str: ...


def read_table(path: str | Path) -> pl.DataFrame:
    """All rows of a file: of a CSV file as text, of a Parquet file with its own types.

    Raises
    ------
    DataError
        With what is wrong with the file, and nothing that stands in it but names of columns.
    """
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise DataError(f"{path} is neither a .csv nor a .parquet file; convert it to one of these")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check the path") from None
    try:
        table = pl.read_parquet(io.BytesIO(content)) if path.suffix == ".parquet" else _read_csv(path, content)
    except (pl.exceptions.PolarsError, OSError):
        what = "Parquet" if path.suffix == ".parquet" else "CSV"
        raise DataError(
            f"{path} is not a valid {what} file, in UTF-8 and with as many fields in every row as in the first; "
            "write it again"
        ) from None
    return _named(table, str(path))


def _read_csv(path: Path, content: bytes) -> pl.DataFrame:
    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        header = next(csv.reader(io.StringIO(content.partition(b"\n")[0].decode().rstrip("\r"))), [])
    except (UnicodeDecodeError, csv.Error):
        raise DataError(f"{path} has no first row in UTF-8 that names its columns; write it again") from None
    if len(header) == 1 and (other := next((mark for mark in (";", "\t", "|") if mark in header[0]), None)):
        raise DataError(f"{path} separates its columns by {other!r}; they must be separated by ','; convert it")
    if not header:
        raise DataError(f"{path} is empty; its first row must name the columns")
    if twice := [name for name in header if header.count(name) > 1]:
        raise DataError(f"{path} has the column {twice[0].strip()!r} twice; rename one of them")
    return pl.read_csv(content, infer_schema=False)


def _named(table: pl.DataFrame, what: str) -> pl.DataFrame:
    """The same without blanks around the names of columns."""
    names = [name.strip() for name in table.columns]
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(f"{what} has the column {twice[0]!r} twice; rename one of them")
    return table.rename(dict(zip(table.columns, names, strict=True)))


def series_of(table: pl.DataFrame, field: Field, missing: Iterable[str]) -> pl.Series:
    """A column as numbers (float64), texts or lists of texts, by its kind; null where missing."""
    column = column_of(table, field.name)
    if field.kind == "number":
        return _numbers(column, field.name, missing)
    if field.kind == "codes":
        return _codes(column, field, missing)
    return _texts(column, field.name, missing)


def column_of(table: pl.DataFrame, name: str) -> pl.Series:
    """A column by its name."""
    if name not in table.columns:
        raise DataError(
            f"the table has no column {name!r}; it has {', '.join(table.columns) or 'none'}: rename a column, or add "
            "an empty one where nothing is known"
        )
    return table[name]


def raw_columns(table: pl.DataFrame, fields: Iterable[Field], missing: Iterable[str]) -> Columns:
    """Columns as private statistics read them."""
    found: dict[str, NDArray[Any]] = {}
    for field in fields:
        series = series_of(table, field, missing)
        if field.kind == "number":
            found[field.name] = series.fill_null(np.nan).to_numpy()
            continue
        values = np.empty(len(series), object)
        values[:] = [tuple(texts or ()) for texts in series.to_list()] if field.kind == "codes" else series.to_list()
        found[field.name] = values
    return found


def readable(
    table: pl.DataFrame, fields: Iterable[Field], missing: Iterable[str], *, label: str, person: str | None
) -> NDArray[np.bool_]:
    """Which rows are of persons (or, without ids, are rows) of whom every field can be read.

    For where persons are protected: a field of one person must not keep a hospital's other persons out. The log of
    this machine counts what should be left out. Of a table of which nothing would be left all rows count, so that
    whoever reads on says what is wrong with it.
    """
    fields, missing = list(fields), list(missing)
    columns = [column_of(table, field.name) for field in fields]
    bad = ~_is_outcome(_outcomes(table, label, missing))
    for field, column in zip(fields, columns, strict=True):
        if field.kind == "number" and not _holds_numbers(column):
            bad |= _unread(_texts(column, field.name, missing, quoted=True))
    ids = None
    if person is not None:
        ids = _texts(column_of(table, person), person, missing)
        bad |= ids.is_null() | ids.is_in(ids.filter(bad & ids.is_not_null()).unique().to_list()).fill_null(value=False)
    if bad.all():
        return np.ones(len(table), bool)
    if bad.any():
        who = f"{int(bad.sum())} of {len(table)} rows"
        if ids is not None:
            who += f", of {ids.filter(bad).drop_nulls().n_unique()} persons,"
        _log.warning("%s are left out: a field of theirs cannot be read; 'lowkey encoder apply' says which", who)
    return (~bad).to_numpy()


def labels_of(table: pl.DataFrame, name: str, missing: Iterable[str]) -> NDArray[np.float32]:
    """A column of outcomes: 1 or 0, true or false, yes or no; every row must have one."""
    texts = _outcomes(table, name, missing)
    _require(~_is_outcome(texts), name, "no outcome", "write 0 or 1")
    return texts.is_in(_YES).to_numpy().astype(np.float32)


def _outcomes(table: pl.DataFrame, name: str, missing: Iterable[str]) -> pl.Series:
    return _texts(column_of(table, name), name, missing, quoted=True).str.to_lowercase()


def _is_outcome(texts: pl.Series) -> pl.Series:
    return texts.is_in([*_YES, *_NO]).fill_null(value=False)


def persons_of(table: pl.DataFrame, name: str, missing: Iterable[str]) -> NDArray[np.str_]:
    """A column that says whose each row is."""
    texts = _texts(column_of(table, name), name, missing)
    _require(texts.is_null(), name, "no person", "say whose each row is")
    return np.array(texts.to_list(), np.str_)


def _numbers(column: pl.Series, name: str, missing: Iterable[str]) -> pl.Series:
    if _holds_numbers(column):
        return column.cast(pl.Float64).fill_nan(None)
    texts = _texts(column, name, missing, quoted=True)
    _require(_unread(texts), name, "no number", "write 12.5, or leave the field empty")
    return texts.cast(pl.Float64, strict=False).fill_nan(None)


def _holds_numbers(column: pl.Series) -> bool:
    return column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null)


def _unread(texts: pl.Series) -> pl.Series:
    """Where there is a text that is no number."""
    return texts.cast(pl.Float64, strict=False).is_null() & texts.is_not_null()


def _texts(column: pl.Series, name: str, missing: Iterable[str], *, quoted: bool = False) -> pl.Series:
    """Texts without blanks around them and, where they may be quoted, without quotes."""
    if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object):
        raise DataError(f"the column {name!r} is of type {column.dtype}; it must hold numbers or texts")
    texts = column.cast(pl.String).str.strip_chars()
    if quoted:
        texts = texts.str.strip_chars("\"'").str.strip_chars()
    return texts.set(texts.is_in(list(missing)).fill_null(value=False), None)


def _codes(column: pl.Series, field: Field, missing: Iterable[str]) -> pl.Series:
    if isinstance(column.dtype, pl.List) and not column.dtype.inner.is_nested():
        lists = column.cast(pl.List(pl.String))
    else:
        lists = _texts(column, field.name, ()).str.split(field.separator)
    stripped = pl.element().str.strip_chars()
    return lists.list.eval(stripped.filter(~stripped.is_in(list(missing)) & stripped.is_not_null()))


def _require(wrong: pl.Series, name: str, what: str, advice: str) -> None:
    if wrong.any():
        raise DataError(
            f"the column {name!r} holds {what} in {int(wrong.sum())} of {len(wrong)} rows, first in row "
            f"{int(wrong.arg_true()[0]) + 1} after the names; {advice}"
        )
