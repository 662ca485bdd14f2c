"""Diabetes 130-US hospitals, 1999-2008: stays of patients with diabetes (UCI 296; Strack et al., 2014; CC BY 4.0).

It has no hospital id. Unlike the paper's, two of its features know more than the first day: drugs cover the whole stay,
and diagnoses are coded at discharge, which is why ``icd9`` is not a default. ``medications``, the number of distinct
drugs, stands for the paper's medication regimen complexity index.
"""

from __future__ import annotations

import polars as pl

from lowkey.tabular import Limits, Listed
from lowkey.tasks.mortality.source import Counts, Feature, Source

DRUGS = (
    "metformin", "repaglinide", "nateglinide", "chlorpropamide", "glimepiride", "acetohexamide", "glipizide",
    "glyburide", "tolbutamide", "pioglitazone", "rosiglitazone", "acarbose", "miglitol", "troglitazone", "tolazamide",
    "examide", "citoglipton", "insulin", "glyburide-metformin", "glipizide-metformin", "glimepiride-pioglitazone",
    "metformin-rosiglitazone", "metformin-pioglitazone",
)  # fmt: skip

_EXPIRED = ("11", "19", "20", "21")
_ELECTIVE_OR_NEWBORN = ("3", "4")
_ADMISSION_TYPES = {"1": "emergency", "2": "urgent", "7": "trauma center"}  # all others are forms of "unknown"


def _given(drug: str) -> pl.Expr:
    """The drug with the change of its dose, such as insulin:Up; null when it was not given."""
    return pl.when(pl.col(drug) != "No").then(pl.concat_str(pl.lit(f"{drug}:"), pl.col(drug)))


_decade = pl.col("age").str.extract(r"^\[(\d+)-", 1).cast(pl.Float32, strict=False)

DIABETES130 = Source(
    name="diabetes130",
    title="Diabetes 130-US hospitals 1999-2008",
    obtain="get dataset_diabetes.zip from UCI, doi:10.24432/C5230J (CC BY 4.0; cite Strack et al. 2014)",
    files=("diabetic_data.csv", "diabetic_data.csv.gz", "dataset_diabetes.zip", "dataset_diabetes/diabetic_data.csv"),
    sha256="0689e7ec031237dc63031b938805c48377748761a3b26acab621567afa24df97",
    counts=Counts(rows=101_766, deaths=1_652, cohort_rows=57_752, cohort_deaths=978),
    died=pl.col("discharge_disposition_id").is_in(_EXPIRED),
    cohort=~pl.col("admission_type_id").is_in(_ELECTIVE_OR_NEWBORN)
    & (pl.col("time_in_hospital").cast(pl.Int32, strict=False) >= 3),
    leaking=frozenset({"discharge_disposition_id", "time_in_hospital", "readmitted"}),
    features={
        "age": Feature(kind="numeric", value=_decade + 5),  # the middle of ten years
        "gender": Feature(
            kind="categorical", value=pl.when(pl.col("gender").is_in(["Male", "Female"])).then(pl.col("gender"))
        ),
        "admission_type": Feature(
            kind="categorical",
            value=pl.col("admission_type_id").replace_strict(_ADMISSION_TYPES, default=None, return_dtype=pl.String),
        ),
        "medications": Feature(kind="numeric", value=pl.col("num_medications").cast(pl.Float32, strict=False)),
        "drug": Feature(kind="codes", value=pl.concat_list([_given(drug) for drug in DRUGS]).list.drop_nulls()),
        "icd9": Feature(kind="codes", value=pl.concat_list("diag_1", "diag_2", "diag_3").list.drop_nulls()),
    },
    default=("age", "gender", "admission_type", "medications", "drug"),
    public={
        "age": Limits(18, 100),  # of adults
        "gender": Listed(("Female", "Male")),
        "admission_type": Listed(tuple(_ADMISSION_TYPES.values())),
        "medications": Limits(0, 40),
        "drug": Listed(tuple(f"{drug}:{change}" for drug in DRUGS for change in ("Down", "Steady", "Up"))),
    },
    wide={"age": (0, 120), "medications": (0, 100)},
    patient="patient_nbr",
)
