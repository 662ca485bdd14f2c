"""Public sources: cohort, label and ids of hand-made tables, the real counts, leaks, and bad files."""

from __future__ import annotations

import gzip
import zipfile
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from lowkey.errors import DataError, InvalidInput
from lowkey.tasks.mortality.source import Counts, Feature
from lowkey.tasks.mortality.sources import SOURCES, check_source, load_admissions
from tests.tasks.mortality.tables import diabetes, real, sih, write

MAKE = {"diabetes130": diabetes, "sih-sus": sih}


def test_diabetes_columns_by_kind(tmp_path: Path) -> None:
    table = diabetes(4)
    table["metformin"][1] = "Down"
    table["gender"][3] = "Unknown/Invalid"
    path = write(tmp_path / "table.csv", table)
    found = load_admissions("diabetes130", path, any_version=True)
    assert found.columns == ("age", "medications", "gender", "admission_type", "drug")
    assert found.numeric.rows() == [(5, 1), (15, 2), (25, 3), (35, 4)]
    assert found.categorical["gender"].to_list() == ["Male", "Female", "Male", "unknown"]
    assert found.categorical["admission_type"].to_list() == ["emergency", "urgent", "unknown", "emergency"]
    assert found.codes["drug"].to_list()[:2] == [["insulin:Up"], ["metformin:Down", "insulin:Steady"]]
    assert found.died.tolist() == [True, False, False, True]
    assert found.patients is not None
    assert found.patients.tolist() == ["100", "100", "101", "101"]
    assert found.hospitals is None
    with_codes = load_admissions("diabetes130", path, any_version=True, features=["age", "icd9"])
    assert with_codes.codes["icd9"].to_list()[0] == ["400", "428"]


def test_sih_columns_by_kind(tmp_path: Path) -> None:
    path = write(tmp_path / "table.csv", sih(3))
    found = load_admissions("sih-sus", path, any_version=True)
    assert found.columns == ("age", "sex", "race", "admission_type", "specialty", "procedure")
    assert found.categorical.row(1) == ("3", "99", "02", "03", "0303010061")
    assert found.hospitals is not None
    assert found.hospitals.tolist() == ["0000", "0001", "0000"]
    assert found.patients is None


@pytest.mark.parametrize(
    ("name", "column", "outside"),
    [
        ("diabetes130", "admission_type_id", "3"),
        ("diabetes130", "admission_type_id", "4"),
        ("diabetes130", "time_in_hospital", "2"),
        ("sih-sus", "age_years", "17"),
        ("sih-sus", "age_years", "NaN"),  # not known to be adult
        ("sih-sus", "age_years", ""),
        ("sih-sus", "espec", "02"),
        ("sih-sus", "ident", "5"),
        ("sih-sus", "still_in_hospital", "1"),
    ],
)
def test_who_is_outside_the_cohort(tmp_path: Path, name: str, column: str, outside: str) -> None:
    table = MAKE[name](6)
    table[column][2] = outside
    path = write(tmp_path / "table.csv", table)
    assert len(load_admissions(name, path, any_version=True)) == 5
    counts = check_source(name, path, any_version=True).counts
    assert (counts.rows, counts.deaths, counts.cohort_rows, counts.cohort_deaths) == (6, 2, 5, 2)


def test_a_missing_age_stays_missing_where_it_decides_nothing(tmp_path: Path) -> None:
    table = diabetes(3)
    table["age"][1] = "NaN"
    table["age"][2] = "?"
    path = write(tmp_path / "table.csv", table)
    assert load_admissions("diabetes130", path, any_version=True).numeric["age"].to_list() == [5, None, None]


@pytest.mark.parametrize("name", SOURCES)
def test_leaking_columns_change_nothing_that_is_learned_from(tmp_path: Path, name: str) -> None:
    before, after = MAKE[name](6), MAKE[name](6)
    changes = {
        "discharge_disposition_id": "11", "time_in_hospital": "14", "readmitted": "<30", "patient_nbr": "7",
        "morte": "1", "dias_perm": "99", "cnes": "0009",
    }  # fmt: skip
    for column in after.keys() & changes.keys():
        after[column] = [changes[column]] * 6
    everything = list(SOURCES[name].features)
    one, other = (
        load_admissions(name, write(tmp_path / f"{i}.csv", table), any_version=True, features=everything)
        for i, table in enumerate((before, after))
    )
    assert one.died.tolist() != other.died.tolist()
    for kind in ("numeric", "categorical", "codes"):
        assert getattr(one, kind).equals(getattr(other, kind))


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_with_a_leaking_feature_cannot_be_made(name: str) -> None:
    source = SOURCES[name]
    ids = {column for column in (source.patient, source.hospital) if column}
    for column in source.leaking | ids:
        leak = {"leak": Feature(kind="categorical", value=pl.col("gender") + pl.col(column))}
        with pytest.raises(InvalidInput, match=column):
            replace(source, features={**source.features, **leak})


def test_plain_gzipped_zipped_and_in_a_directory(tmp_path: Path) -> None:
    plain = write(tmp_path / "diabetic_data.csv", diabetes())
    packed = tmp_path / "some.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    archive = tmp_path / "some.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("notes.txt", "nothing")
        file.write(plain, "inside/diabetic_data.csv")
    found = {check_source("diabetes130", path, any_version=True).sha256 for path in (plain, packed, archive, tmp_path)}
    assert len(found) == 1


def test_a_reference_file_needs_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "table.csv", sih())
    seen = check_source("sih-sus", path, any_version=True)
    assert not seen.reference
    with pytest.raises(DataError, match=r"not the reference file.*any_version=True \(--any-version\)"):
        check_source("sih-sus", path)
    with pytest.raises(DataError, match="not the reference file"):
        load_admissions("sih-sus", path)
    known = replace(SOURCES["sih-sus"], sha256=seen.sha256, counts=seen.counts)
    monkeypatch.setattr("lowkey.tasks.mortality.sources.SOURCES", {"sih-sus": known})
    assert check_source("sih-sus", path).reference
    assert len(load_admissions("sih-sus", path)) == 6
    wrong = replace(known, counts=replace(seen.counts, deaths=3, hospitals=9))
    monkeypatch.setattr("lowkey.tasks.mortality.sources.SOURCES", {"sih-sus": wrong})
    with pytest.raises(DataError, match="deaths 2 instead of 3; hospitals 2 instead of 9"):
        check_source("sih-sus", path)


def test_bad_files_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"does not exist; get dataset_diabetes\.zip"):
        load_admissions("diabetes130", tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"holds none of sih_minimal\.csv"):
        load_admissions("sih-sus", tmp_path)
    with pytest.raises(DataError, match="separates its columns by ';'"):
        check_source("sih-sus", write(tmp_path / "semicolon.csv", sih(), ";"))
    with pytest.raises(DataError, match="has no column proc_solic; it must have all"):
        check_source("sih-sus", write(tmp_path / "narrow.csv", {k: v for k, v in sih().items() if k != "proc_solic"}))
    for name in ("broken.zip", "broken.csv.gz"):
        (tmp_path / name).write_bytes(b"not packed")
        with pytest.raises(DataError, match="cannot be read"):
            check_source("sih-sus", tmp_path / name)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as file:
        file.writestr("notes.txt", "nothing")
    with pytest.raises(DataError, match=r"no diabetic_data\.csv inside"):
        check_source("diabetes130", tmp_path / "other.zip")
    with pytest.raises(DataError, match="no rows"):
        check_source("sih-sus", write(tmp_path / "empty.csv", sih(0)), any_version=True)
    ragged = write(tmp_path / "ragged.csv", sih())
    ragged.write_text(ragged.read_text() + "1,2,3" * 20 + "\n")
    with pytest.raises(DataError, match="not a valid CSV"):
        check_source("sih-sus", ragged, any_version=True)


@pytest.mark.parametrize(
    ("name", "column", "value", "message"),
    [
        ("diabetes130", "age", "seventy", "column age holds 'seventy' in 1 rows"),
        ("diabetes130", "num_medications", "many", "column num_medications holds 'many'"),
        ("diabetes130", "discharge_disposition_id", "?", "1 of 6 rows have no usable discharge_disposition_id"),
        ("diabetes130", "patient_nbr", "", "no usable patient_nbr"),
        ("sih-sus", "morte", "2", "no usable morte"),
        ("sih-sus", "cnes", "", "no usable cnes"),
    ],
)
def test_bad_values_are_refused(tmp_path: Path, name: str, column: str, value: str, message: str) -> None:
    table = MAKE[name](6)
    table[column][2] = value
    with pytest.raises(DataError, match=message):
        load_admissions(name, write(tmp_path / "table.csv", table), any_version=True)


def test_nobody_in_the_cohort(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none is in the cohort"):
        load_admissions(
            "sih-sus", write(tmp_path / "t.csv", sih() | {"still_in_hospital": ["1"] * 6}), any_version=True
        )


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="one of diabetes130, sih-sus"):
        check_source("mimic", tmp_path)
    for features in (["time_in_hospital"], []):
        with pytest.raises(InvalidInput, match="choose at least one of age, gender"):
            load_admissions("diabetes130", tmp_path, features=features)


def test_real_diabetes130() -> None:
    found = check_source("diabetes130", real("diabetes130"))
    assert found.reference
    assert found.counts == Counts(rows=101_766, deaths=1_652, cohort_rows=57_752, cohort_deaths=978)


def test_real_sih_sus() -> None:
    found = check_source("sih-sus", real("sih_sus"))
    assert found.reference
    assert found.counts == Counts(rows=169_512, deaths=7_440, cohort_rows=97_540, cohort_deaths=6_999, hospitals=726)


def test_auto_looks_where_it_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOWKEY_HOSPITAL_DATA", raising=False)
    with pytest.raises(DataError, match=r"set data.source to it, or LOWKEY_HOSPITAL_DATA"):
        load_admissions("sih-sus", "auto")
    monkeypatch.setenv("LOWKEY_HOSPITAL_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"holds no sih_minimal.csv"):
        load_admissions("sih-sus", "auto")
    (tmp_path / "sih_sus").mkdir()
    write(tmp_path / "sih_sus" / "sih_minimal.csv", sih(60))
    assert len(load_admissions("sih-sus", "auto", any_version=True)) == 60
