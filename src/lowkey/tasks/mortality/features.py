"""From columns to sparse numbers, fitted only on training rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

from lowkey import checks
from lowkey.errors import DataError, InvalidInput
from lowkey.tabular import SparseRows
from lowkey.tasks.mortality.admissions import Admissions

Rows: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class FeatureEncoder:
    """Turns admissions into sparse rows; made by :func:`fit_features`.

    Numbers are scaled to [0, 1] by the training rows' range; beyond it they are clipped, and missing ones become the
    training rows' median. A category that training rows have too rarely, or not at all, counts as *infrequent*; where
    no category is infrequent, an unseen one is all zeros. Codes that are too rare or unseen are left out.
    """

    columns: tuple[str, ...]
    names: tuple[str, ...] = field(repr=False)
    scale: Any = field(repr=False)
    one_hot: Any = field(repr=False)
    vocabularies: dict[str, pl.Series] = field(repr=False)

    def __call__(self, admissions: Admissions, rows: Rows) -> SparseRows:
        """Sparse rows of the given admissions, with one column for each of ``names``; never made dense."""
        if admissions.columns != self.columns:
            raise InvalidInput(
                f"admissions have the features {', '.join(admissions.columns)}; the encoder was fitted to "
                f"{', '.join(self.columns)}"
            )
        if len(rows) == 0:
            return sparse.csr_array(np.empty((0, len(self.names)), np.float32))
        parts: list[Any] = []
        if self.scale is not None:
            parts.append(self.scale.transform(_numbers(admissions, rows)))
        if self.one_hot is not None:
            parts.append(self.one_hot.transform(_texts(admissions, rows)))
        for name, vocabulary in self.vocabularies.items():
            parts.append(_indicators(admissions.codes[name][rows], vocabulary))
        return sparse.csr_array(sparse.hstack([sparse.csr_array(part) for part in parts], "csr", np.float32))


def fit_features(admissions: Admissions, rows: Rows, *, min_count: int = 100) -> FeatureEncoder:
    """Learn ranges, categories and codes from the training rows.

    Parameters
    ----------
    admissions : Admissions
        All rows.
    rows : Rows
        The training rows.
    min_count : int
        How many training rows a category or code needs to get its own column; 100 in the paper.

    Guarantees
    ----------
    There is no privacy here: ranges and vocabularies are statistics of all hospitals' training rows together, as in the
    paper, and no ε covers them. With hospitals that may not pool even these, agree on public ranges and code lists
    instead.
    """
    checks.at_least("min_count", min_count, 1)
    checks.at_least("number of training rows", len(rows), 1)
    names: list[str] = []
    scale = one_hot = None
    if admissions.numeric.width:
        numbers = _numbers(admissions, rows)
        if (empty := np.isnan(numbers).all(axis=0)).any():
            raise DataError(
                f"{admissions.numeric.columns[int(empty.argmax())]} is missing in all {len(rows)} training rows; "
                "leave this feature out"
            )
        scale = make_pipeline(SimpleImputer(strategy="median"), MinMaxScaler(clip=True)).fit(numbers)
        names += admissions.numeric.columns
    if admissions.categorical.width:
        one_hot = OneHotEncoder(
            min_frequency=min_count,
            handle_unknown="infrequent_if_exist",
            dtype=np.float32,
            feature_name_combiner=_column_name,
        ).fit(_texts(admissions, rows))
        names.extend(one_hot.get_feature_names_out(admissions.categorical.columns))
    vocabularies = {}
    for name in admissions.codes.columns:
        vocabularies[name] = _frequent(admissions.codes[name][rows], min_count)
        names += [_column_name(name, code) for code in vocabularies[name]]
    return FeatureEncoder(
        columns=admissions.columns, names=tuple(names), scale=scale, one_hot=one_hot, vocabularies=vocabularies
    )


def _column_name(feature: str, value: str) -> str:
    return f"{feature}={'infrequent' if value == 'infrequent_sklearn' else value}"


def _numbers(admissions: Admissions, rows: Rows) -> NDArray[np.float32]:
    return admissions.numeric[rows].cast(pl.Float32).fill_null(np.nan).to_numpy()


def _texts(admissions: Admissions, rows: Rows) -> NDArray[np.object_]:
    return admissions.categorical[rows].to_numpy().astype(object)


def _pairs(lists: pl.Series) -> pl.DataFrame:
    """Each row's distinct codes, one pair (row, code) each."""
    table = pl.DataFrame({"row": np.arange(len(lists), dtype=np.int32), "code": lists})
    return table.explode("code").drop_nulls().unique()


def _frequent(lists: pl.Series, min_count: int) -> pl.Series:
    counted = _pairs(lists)["code"].value_counts()
    return counted.filter(pl.col("count") >= min_count)["code"].sort()


def _indicators(lists: pl.Series, vocabulary: pl.Series) -> SparseRows:
    known = pl.DataFrame({"code": vocabulary, "column": np.arange(len(vocabulary), dtype=np.int32)})
    pairs = _pairs(lists).join(known, on="code")
    place = (pairs["row"].to_numpy(), pairs["column"].to_numpy())
    ones = np.ones(len(pairs), np.float32)
    return sparse.csr_array(sparse.coo_array((ones, place), shape=(len(lists), len(vocabulary))))
