"""Tiny tables in the layout of the public files, written by the tests themselves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

import polars as pl
import pytest

from lowkey.tasks.mortality.diabetes130 import DRUGS

Columns: TypeAlias = dict[str, list[str]]


def diabetes(rows: int = 6) -> Columns:
    """Stays in the cohort: one row in three dies, two rows per patient, insulin for everyone."""
    table = {drug: ["No"] * rows for drug in DRUGS}
    return table | {
        "patient_nbr": [str(100 + i // 2) for i in range(rows)],
        "gender": [("Male", "Female")[i % 2] for i in range(rows)],
        "age": [f"[{10 * (i % 10)}-{10 * (i % 10) + 10})" for i in range(rows)],
        "admission_type_id": [("1", "2", "6")[i % 3] for i in range(rows)],
        "discharge_disposition_id": [("11", "1", "6")[i % 3] for i in range(rows)],
        "time_in_hospital": ["3"] * rows,
        "num_medications": [str(i + 1) for i in range(rows)],
        "diag_1": [str(400 + i % 2) for i in range(rows)],
        "diag_2": ["428"] * rows,
        "diag_3": ["?"] * rows,
        "insulin": [("Up", "Steady")[i % 2] for i in range(rows)],
        "readmitted": ["NO"] * rows,
    }


def sih(rows: int = 6) -> Columns:
    """Admissions in the cohort: one row in three dies, two hospitals."""
    return {
        "cnes": [f"000{i % 2}" for i in range(rows)],
        "espec": [("01", "03")[i % 2] for i in range(rows)],
        "sexo": [("1", "3")[i % 2] for i in range(rows)],
        "raca_cor": ["99"] * rows,
        "car_int": ["02"] * rows,
        "proc_solic": [f"030301006{i % 2}" for i in range(rows)],
        "diag_princ": ["J189"] * rows,
        "ident": ["1"] * rows,
        "dias_perm": ["2"] * rows,
        "morte": [str(int(i % 3 == 0)) for i in range(rows)],
        "age_years": [str(18 + i % 80) for i in range(rows)],
        "still_in_hospital": ["0"] * rows,
    }


def write(path: Path, columns: Columns, separator: str = ",") -> Path:
    pl.DataFrame(columns).write_csv(path, separator=separator)
    return path


def real(name: str) -> Path:
    """Directory of a public file; skips the test where there is none."""
    beside = Path(__file__).parents[3].parent / "shared" / "data"
    place = Path(os.environ.get("LOWKEY_HOSPITAL_DATA", beside)) / name
    if not place.is_dir():
        pytest.skip(f"set LOWKEY_HOSPITAL_DATA to a directory with {name}/")
    return place
