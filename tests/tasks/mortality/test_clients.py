"""From admissions to clients: rows that belong together, classes in balance, the real sources."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lowkey.tasks.mortality.clients import HospitalClients, make_hospital_data
from lowkey.tasks.mortality.division import Layout
from lowkey.tasks.mortality.sources import load_admissions
from tests.tasks.mortality.tables import diabetes, real, write


def test_features_and_labels_stay_together(tmp_path: Path) -> None:
    """In this table insulin was raised for exactly those who died."""
    table = diabetes(120)
    table["insulin"] = ["Up" if code == "11" else "Steady" for code in table["discharge_disposition_id"]]
    admissions = load_admissions("diabetes130", write(tmp_path / "t.csv", table), any_version=True)
    data = make_hospital_data(admissions, Layout(admissions_per_client=12), rng=np.random.default_rng(0), min_count=2)
    raised = data.feature_names.index("drug=insulin:Up")
    np.testing.assert_array_equal(data.test[:, [raised]].toarray().ravel(), data.test_died)
    clients = HospitalClients(data)
    assert len(clients) == 8
    for client in range(8):
        inputs, died, patients = clients[client]
        np.testing.assert_array_equal(patients, data.train_patients[data.clients[client]])  # type: ignore[index]
        assert inputs.dtype == died.dtype == np.float32
        assert inputs.shape == (data.clients.sizes[client], len(data.feature_names))
        np.testing.assert_array_equal(inputs[:, [raised]].toarray().ravel(), died)
        assert died.sum() >= 1
    assert data.summary()["train_admissions"] + data.summary()["test_admissions"] == 120
    assert repr(data).startswith("HospitalData(source='diabetes130'")


def test_features_are_fitted_on_training_rows_alone(tmp_path: Path) -> None:
    """All counts of medications differ, so that some division holds out the smallest or the largest."""
    admissions = load_admissions("diabetes130", write(tmp_path / "t.csv", diabetes(120)), any_version=True)
    for seed in range(10):
        layout = Layout(admissions_per_client=12)
        data = make_hospital_data(admissions, layout, rng=np.random.default_rng(seed), min_count=2)
        medications = data.train[:, [data.feature_names.index("medications")]].toarray()
        assert medications.min() == 0
        assert medications.max() == pytest.approx(1, abs=1e-6)


def test_pooled_data_has_the_same_rows_in_one_place(tmp_path: Path) -> None:
    admissions = load_admissions("diabetes130", write(tmp_path / "t.csv", diabetes(120)), any_version=True)
    data = make_hospital_data(admissions, Layout(clients=8), rng=np.random.default_rng(0), min_count=2)
    pooled = data.pooled()
    assert len(pooled.clients) == 1
    assert sorted(pooled.clients[0]) == list(range(len(data.train_died)))
    assert pooled.test is data.test


def test_real_virtual_hospitals() -> None:
    admissions = load_admissions("diabetes130", real("diabetes130"))
    data = make_hospital_data(admissions, Layout(), rng=np.random.default_rng(0))
    found = data.summary()
    assert (found["train_deaths"], found["test_deaths"]) == (783, 195)
    assert found["clients"] == found["train_admissions"] // 203
    assert found["train_admissions"] + found["test_admissions"] == 57_752
    *others, last = data.clients.sizes
    assert 190 <= min(others) <= max(others) <= 220  # patients come whole
    assert 190 <= last <= 220 + 203  # what is left over
    assert min(data.train_died[data.clients[c]].sum() for c in range(len(data.clients))) >= 1


def test_real_hospitals() -> None:
    admissions = load_admissions("sih-sus", real("sih_sus"))
    found = make_hospital_data(admissions, Layout(kind="natural"), rng=np.random.default_rng(0)).summary()
    assert found["clients"] + found["excluded_hospitals"] == 726
    assert 350 <= found["clients"] <= 450
    assert found["train_admissions"] + found["test_admissions"] + found["excluded_admissions"] == 97_540
    assert 5 <= found["smallest_client"] < 20 < 5_000 < found["largest_client"]
