"""Write the tables of three invented hospitals: a.csv, b.csv, c.csv.

    python examples/three_hospitals/make.py DIRECTORY

They differ in size and in their patients. Fields are missing, some patients come back, and only hospital c has a ward
for burns. Every number is made up.
"""

import csv
import sys
from pathlib import Path

import numpy as np

COLUMNS = ("patient", "age", "sex", "lactate", "ward", "drugs", "died")
PATIENTS = {"a": 500, "b": 900, "c": 1600}
WARDS = {"a": ("icu", "surgery", "er"), "b": ("icu", "er"), "c": ("icu", "surgery", "er", "burns")}
DRUGS = ("aspirin", "insulin", "heparin", "morphine", "noradrenaline", "statin")
DRUG_RISK = (-0.2, 0.2, 0.1, 0.5, 1.4, -0.4)
WARD_RISK = {"icu": 1.2, "surgery": 0.0, "er": -0.3, "burns": 0.8}


def rows(hospital: str, seed: int = 0) -> list[list[str]]:
    """The rows of a hospital, with its column names first."""
    rng = np.random.default_rng([seed, ord(hospital)])
    table = [list(COLUMNS)]
    for patient in range(PATIENTS[hospital]):
        age = float(np.clip(rng.normal(60 + 5 * (hospital == "c"), 16), 18, 99))
        sex = str(rng.choice(["f", "m", ""], p=[0.48, 0.5, 0.02]))
        for _ in range(1 + int(rng.poisson(0.3))):
            ward = str(rng.choice(WARDS[hospital]))
            lactate = float(rng.lognormal(0.5, 0.6))
            given = np.flatnonzero(rng.random(len(DRUGS)) < 0.3)
            score = 0.05 * (age - 60) + 0.5 * (lactate - 2) + WARD_RISK[ward] + sum(DRUG_RISK[drug] for drug in given)
            died = rng.random() < 1 / (1 + np.exp(3.3 - score))
            known = rng.random() < {"a": 0.95, "b": 0.8, "c": 0.6}[hospital]
            drugs = ";".join(DRUGS[drug] for drug in given)
            lab = f"{lactate:.1f}" if known else ""
            table.append([f"{hospital}{patient}", f"{age:.0f}", sex, lab, ward, drugs, str(int(died))])
    return table


def write_tables(directory: Path, seed: int = 0) -> list[Path]:
    """Write all tables; return their files."""
    directory.mkdir(parents=True, exist_ok=True)
    files = [directory / f"{hospital}.csv" for hospital in PATIENTS]
    for hospital, file in zip(PATIENTS, files, strict=True):
        with file.open("w", newline="", encoding="utf-8") as handle:
            csv.writer(handle).writerows(rows(hospital, seed))
    return files


if __name__ == "__main__":
    for path in write_tables(Path(sys.argv[1])):
        print(path)
