"""Hospital admissions before they are encoded: columns by kind, labels, ids of patients and hospitals."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lowkey.errors import InvalidInput

UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Admissions:
    """One row per admission of the cohort.

    Parameters
    ----------
    source : str
        Where the rows come from.
    numeric : pl.DataFrame
        Numbers, null where missing; they will be scaled to [0, 1].
    categorical : pl.DataFrame
        Text, "unknown" where missing; each has one of several values, and will be one-hot encoded.
    codes : pl.DataFrame
        Lists of text; each has any number of values, which will become indicators.
    died : NDArray[np.bool_]
        Whether the patient died in hospital: the label.
    patients : NDArray[np.str_] or None
        Id of each row's patient; with None every row counts as a different patient.
    hospitals : NDArray[np.str_] or None
        Id of each row's hospital, or None.
    """

    source: str
    numeric: pl.DataFrame = field(repr=False)
    categorical: pl.DataFrame = field(repr=False)
    codes: pl.DataFrame = field(repr=False)
    died: NDArray[np.bool_] = field(repr=False)
    patients: NDArray[np.str_] | None = field(default=None, repr=False)
    hospitals: NDArray[np.str_] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        parts = {"numeric": self.numeric, "categorical": self.categorical, "codes": self.codes}
        lengths = {name: len(table) for name, table in parts.items() if table.width}
        ids = {"patients": self.patients, "hospitals": self.hospitals}
        lengths |= {name: len(values) for name, values in ids.items() if values is not None}
        for name, length in lengths.items():
            if length != len(self.died):
                raise InvalidInput(f"{name} has {length} rows, but there are {len(self.died)} labels; they must match")

    def __len__(self) -> int:
        return len(self.died)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all features before encoding."""
        return (*self.numeric.columns, *self.categorical.columns, *self.codes.columns)
