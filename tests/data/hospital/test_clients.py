"""From admissions to clients: rows that belong together, classes in balance, the real sources."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lowkey.data.hospital import HospitalClients, Layout, balanced_rows, load_admissions, make_hospital_data
from lowkey.errors import InvalidInput
from tests.data.hospital.tables import diabetes, real, write


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
        inputs, died = clients[client]
        assert (inputs.dtype, died.dtype) == (np.float32, np.float32)
        assert inputs.shape == (data.clients.sizes[client], len(data.feature_names))
        np.testing.assert_array_equal(inputs[:, raised], died)
        assert died.sum() >= 1
    assert data.summary()["train_admissions"] + data.summary()["test_admissions"] == 120
    assert repr(data).startswith("HospitalData(source='diabetes130'")


def test_balanced_rows_keep_every_death_and_redraw_survivors() -> None:
    died = np.arange(50) % 10 == 0
    rng = np.random.default_rng(0)
    one, other = balanced_rows(died, rng), balanced_rows(died, rng)
    for rows in (one, other):
        assert len(rows) == len(set(rows)) == 10
        assert set(np.flatnonzero(died)) <= set(rows)
    assert set(one) != set(other)
    mostly_dead = np.arange(50) % 10 != 0
    assert sorted(balanced_rows(mostly_dead, rng)) == list(range(50))


@pytest.mark.parametrize("died", [np.zeros(3, bool), np.ones(1, bool)])
def test_one_class_cannot_be_balanced(died: np.ndarray) -> None:
    with pytest.raises(InvalidInput, match="min_deaths"):
        balanced_rows(died, np.random.default_rng(0))


def test_real_virtual_hospitals() -> None:
    admissions = load_admissions("diabetes130", real("diabetes130"))
    data = make_hospital_data(admissions, Layout(), rng=np.random.default_rng(0))
    found = data.summary()
    assert (found["train_deaths"], found["test_deaths"]) == (783, 195)
    assert found["clients"] == found["train_admissions"] // 203
    assert found["train_admissions"] + found["test_admissions"] == 57_752
    assert 190 <= found["smallest_client"] <= found["largest_client"] <= 220
    assert min(data.train_died[data.clients[c]].sum() for c in range(len(data.clients))) >= 1


def test_real_hospitals() -> None:
    admissions = load_admissions("sih-sus", real("sih_sus"))
    found = make_hospital_data(admissions, Layout(kind="natural"), rng=np.random.default_rng(0)).summary()
    assert found["clients"] + found["excluded_hospitals"] == 726
    assert 350 <= found["clients"] <= 450
    assert found["train_admissions"] + found["test_admissions"] + found["excluded_admissions"] == 97_540
    assert 10 <= found["smallest_client"] < 20 < 5_000 < found["largest_client"]
