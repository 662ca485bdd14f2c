"""What a hospital keeps for itself: its own test rows, and its columns before they become features."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lowkey.errors import InvalidInput
from lowkey.experiments import find, override, parse
from lowkey.rng import generator
from lowkey.tasks import MORTALITY, Study
from lowkey.tasks.mortality.clients import HeldOutClients, HospitalTables, make_hospital_data
from lowkey.tasks.mortality.division import Layout, divide
from lowkey.tasks.mortality.sources import load_admissions
from lowkey.tasks.mortality.synthetic import make_synthetic_hospital_data
from tests.tasks.mortality.tables import diabetes, sih, write


def study(preset: str, *changes: str) -> Study:
    return parse(override(find(f"hospital/{preset}"), changes)).study


def test_every_real_hospital_has_its_own_test_rows() -> None:
    """Some have none; together they are the test side, each row once and at its hospital."""
    rng = np.random.default_rng(0)
    hospitals, died = rng.integers(0, 40, 1_500), rng.random(1_500) < 0.15
    hospitals[:12], died[:12] = 99, np.arange(12) < 3
    layout = Layout(kind="natural", min_deaths=1, test_share=0.02)
    division = divide(died, layout, rng=rng, hospitals=hospitals)
    assert len(division.held_out) == len(division.clients)
    assert sorted(division.held_out.rows) == list(range(len(division.test)))
    assert division.held_out.sizes.min() == 0
    for client in range(len(division.clients)):
        (owner,) = set(hospitals[division.train[division.clients[client]]])
        assert set(hospitals[division.test[division.held_out[client]]]) <= {owner}


def test_virtual_hospitals_are_dealt_whole_patients() -> None:
    patients = np.repeat(np.arange(600), 2)
    died = np.arange(1_200) % 20 == 0
    division = divide(died, Layout(clients=7), rng=np.random.default_rng(0), patients=patients)
    owners = [set(patients[division.test[division.held_out[client]]]) for client in range(7)]
    assert sum(map(len, owners)) == len(set.union(*owners)) == 120
    assert {len(owner) for owner in owners} == {17, 18}
    again = divide(died, Layout(clients=7), rng=np.random.default_rng(0), patients=patients)
    np.testing.assert_array_equal(division.held_out.rows, again.held_out.rows)


@pytest.mark.parametrize(("kind", "digest"), [("virtual", "fa9228c361145b54"), ("natural", "d76e1d5245172589")])
def test_the_division_is_what_it_was_before_test_rows_were_dealt(kind: str, digest: str) -> None:
    """Digests of the version without."""
    died, hospitals = np.arange(3_000) % 11 == 0, np.arange(3_000) % 13
    layout = Layout(kind=kind, admissions_per_client=50)  # type: ignore[arg-type]
    division = divide(died, layout, rng=generator(5, "partition"), hospitals=hospitals)
    parts = (division.train, division.test, division.clients.rows, division.clients.starts)
    assert hashlib.sha256(b"".join(part.astype(np.int64).tobytes() for part in parts)).hexdigest()[:16] == digest


def test_the_task_gives_test_rows_with_patients(tmp_path: Path) -> None:
    file = write(tmp_path / "table.csv", diabetes(120))
    settings = [f'data.source="{file}"', "data.any_version=true", "data.min_count=2", "federation.cohort=4"]
    virtual = study("diabetes130/fl-std", *settings, "federation.clients=8")
    assert MORTALITY.held_out is not None
    held_out, whole = MORTALITY.held_out(virtual), MORTALITY.test(virtual)
    assert whole is not None
    assert len(held_out) == 8
    parts = [held_out[client] for client in range(8)]
    assert sum(inputs.shape[0] for inputs, *_ in parts) == len(whole[1])
    assert sum(died.sum() for _, died, *_ in parts) == whole[1].sum()
    trained = {patient for client in range(8) for patient in MORTALITY.all_clients(virtual)[client][2]}
    assert not trained & {patient for _, _, patients, *_ in parts for patient in patients}
    one = study("diabetes130/fl-std", *settings, "federation.clients=1", "federation.cohort=1", "data.pooled=true")
    (inputs, *_), (everything, _) = MORTALITY.held_out(one)[0], whole
    assert inputs.shape == everything.shape
    groups = parts[0][3]
    assert "gender" in groups
    assert all(len(texts) == parts[0][0].shape[0] for texts in groups.values())


def test_tables_of_real_admissions(tmp_path: Path) -> None:
    content = diabetes(120)
    content["gender"][0] = "Unknown/Invalid"
    admissions = load_admissions("diabetes130", write(tmp_path / "t.csv", content), any_version=True)
    data = make_hospital_data(admissions, Layout(clients=4), rng=np.random.default_rng(0), min_count=2)
    tables = HospitalTables(data)
    assert len(tables) == 4
    seen = 0
    for client in range(4):
        columns, persons = tables[client]
        assert set(columns) == {*admissions.columns, "died"}
        assert columns["medications"].dtype == columns["died"].dtype == np.float64
        for row, number in enumerate(columns["medications"]):
            place = int(number) - 1
            assert persons[row] == content["patient_nbr"][place]
            assert columns["died"][row] == (content["discharge_disposition_id"][place] == "11")
            assert columns["drug"][row] == (f"insulin:{content['insulin'][place]}",)
            assert columns["gender"][row] in ("Male", "Female", None)
            assert (columns["admission_type"][row] is None) == (content["admission_type_id"][place] == "6")
            seen += 1
    assert seen == len(data.train_died)


def test_tables_of_hospitals_without_patient_ids(tmp_path: Path) -> None:
    file = write(tmp_path / "table.csv", sih(120))
    settings = [f'data.source="{file}"', "data.any_version=true", "federation.cohort=2", "federation.clients=2"]
    assert MORTALITY.tables is not None
    columns, persons = MORTALITY.tables(study("sih-sus/fl-std", *settings))[1]
    assert persons is None
    assert set(columns["sex"]) == {"3"}
    assert columns["sex"].dtype == object
    assert columns["age"].min() >= 18


@pytest.mark.parametrize("public", [False, True])
def test_tables_of_synthetic_admissions(public: bool) -> None:
    """The same columns, whichever features were made of them."""
    data = make_synthetic_hospital_data(scale=0.002, layout=Layout(clients=5), public=public)
    columns, persons = HospitalTables(data)[2]
    assert persons is None
    assert set(columns) == {"age", "mrci", "gender", "admission_type", "drug", "died"}
    other = make_synthetic_hospital_data(scale=0.002, layout=Layout(clients=5), public=not public)
    for name, column in HospitalTables(other)[2].columns.items():
        np.testing.assert_array_equal(columns[name], column, name)
    assert 15 <= columns["age"].min() <= columns["age"].max() <= 89
    assert set(columns["gender"]) <= {"male", "female", None}
    assert {"emergency", "urgent"} <= set(columns["admission_type"])
    assert 5 < np.mean([len(codes) for codes in columns["drug"]]) < 12
    assert len(HeldOutClients(data)) == 5


def test_rows_without_columns_are_told() -> None:
    data = make_synthetic_hospital_data(scale=0.002, layout=Layout(clients=5))
    with pytest.raises(InvalidInput, match="no columns but features"):
        HospitalTables(replace(data, raw=None))[0]
