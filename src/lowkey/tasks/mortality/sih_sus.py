"""SIH/SUS: admissions to Brazilian public hospitals (Ministério da Saúde, DATASUS; open government data), minimised.

A convenience sample of states and months with real hospitals, very unequal in size and case mix; no drugs, no patient
id. The cohort is adults outside obstetrics who have left the hospital; forms that continue an earlier long stay
(``ident`` 5) are left out, so that every row is one admission. ``icd10``, the main diagnosis, may have been coded at
discharge and is not a default; the procedure is the one that was requested on admission.
"""

from __future__ import annotations

import polars as pl

from lowkey.tabular import Hashed, Limits, Listed
from lowkey.tasks.mortality.source import Counts, Feature, Source

_OBSTETRICS = "02"
_age = pl.col("age_years").cast(pl.Float32, strict=False)


def _category(column: str) -> Feature:
    return Feature(kind="categorical", value=pl.col(column))


SIH_SUS = Source(
    name="sih-sus",
    title="SIH/SUS hospital admissions (DATASUS), minimised",
    obtain="get the SIH/SUS extract sih_minimal.csv.gz (cite Ministério da Saúde, DATASUS, SIH/SUS)",
    files=("sih_minimal.csv", "sih_minimal.csv.gz"),
    sha256="a829e49bccbafc7a627fe673ce9cd4d7185e39fdf0593d38e159709ae11db906",
    counts=Counts(rows=169_512, deaths=7_440, cohort_rows=97_540, cohort_deaths=6_999, hospitals=726),
    died=pl.col("morte").replace_strict({"0": False, "1": True}, default=None, return_dtype=pl.Boolean),
    cohort=(_age >= 18)
    & (pl.col("espec") != _OBSTETRICS)
    & (pl.col("ident") == "1")
    & (pl.col("still_in_hospital") == "0"),
    leaking=frozenset({"morte", "dias_perm", "still_in_hospital"}),
    features={
        "age": Feature(kind="numeric", value=_age),
        "sex": _category("sexo"),
        "race": _category("raca_cor"),
        "admission_type": _category("car_int"),
        "specialty": _category("espec"),
        "procedure": _category("proc_solic"),
        "icd10": _category("diag_princ"),
    },
    default=("age", "sex", "race", "admission_type", "specialty", "procedure"),
    public={
        "age": Limits(18, 100),  # of adults
        "sex": Listed(("1", "3")),
        "race": Listed(("01", "02", "03", "04", "05")),
        "admission_type": Listed(("01", "02", "03", "04", "05", "06")),
        "specialty": Listed((*(f"{number:02}" for number in range(1, 15)), "87")),
        # SIGTAP: the first 4 digits are group and subgroup, the first 6 the form of organisation
        "procedure": Hashed({4: 128, 6: 512, None: 4096}),
    },
    wide={"age": (0, 120)},
    hospital="cnes",
)
