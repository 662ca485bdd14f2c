"""What presets learn from: clients, model, objective, and data that does not fit the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowkey.errors import ConfigError, DataError
from lowkey.experiments import find, override, parse
from lowkey.learning import CLASSIFICATION, Examples, model_vector
from lowkey.tasks import FASHION_MNIST, MORTALITY, Study
from lowkey.tasks.mortality.parts import OBJECTIVE
from tests.tasks.mortality.tables import diabetes, sih, write


def hospital(preset: str, *changes: str) -> Study:
    return parse(override(find(f"hospital/{preset}"), changes)).study


def of_diabetes(tmp_path: Path, *changes: str) -> Study:
    file = write(tmp_path / "table.csv", diabetes(120))
    return hospital(
        "diabetes130/fl-std",
        f'data.source="{file}"',
        "data.any_version=true",
        "data.min_count=2",
        "federation.clients=8",
        "federation.cohort=4",
        *changes,
    )


def held_out(study: Study) -> Examples:
    examples = MORTALITY.test(study)
    assert examples is not None
    return examples


def test_virtual_hospitals_are_as_many_as_asked(tmp_path: Path) -> None:
    study = of_diabetes(tmp_path)
    clients, (rows, died) = MORTALITY.all_clients(study), held_out(study)
    assert len(clients) == 8
    inputs, targets, _ = clients[0]
    assert inputs.shape[1] == rows.shape[1]
    assert set(targets) == {0.0, 1.0}
    assert rows.shape[0] == len(died)
    hidden, width = 200, rows.shape[1]
    assert model_vector(MORTALITY.model(study)).size == (width + 1) * hidden + (hidden + 1) * hidden + hidden + 1
    assert MORTALITY.objective(study) is OBJECTIVE
    assert FASHION_MNIST.objective(parse(find("fashion-mnist/fl-std")).study) is CLASSIFICATION


def test_real_hospitals_must_be_counted_right(tmp_path: Path) -> None:
    file = write(tmp_path / "table.csv", sih(120))
    settings = [f'data.source="{file}"', "data.any_version=true", "data.min_count=2", "federation.cohort=2"]
    with pytest.raises(ConfigError, match=r"sih-sus has 2 with these settings; set federation.clients=2"):
        MORTALITY.all_clients(hospital("sih-sus/fl-std", *settings, "federation.clients=3"))
    assert len(MORTALITY.all_clients(hospital("sih-sus/fl-std", *settings, "federation.clients=2"))) == 2


def test_pooled_data_has_one_owner_and_the_same_test(tmp_path: Path) -> None:
    apart = of_diabetes(tmp_path)
    pooled = of_diabetes(tmp_path, "federation.clients=1", "federation.cohort=1", "data.pooled=true")
    assert (held_out(apart)[0] != held_out(pooled)[0]).nnz == 0
    everything, died, _ = MORTALITY.all_clients(pooled)[0]
    assert everything.shape[0] == len(died) == sum(len(MORTALITY.all_clients(apart)[c][1]) for c in range(8))


def test_synthetic_hospitals_have_the_papers_network() -> None:
    study = hospital("synthetic/fl-std", "data.scale=0.002", "federation.clients=10", "federation.cohort=5")
    assert model_vector(MORTALITY.model(study)).size == 1_496_601
    assert len(MORTALITY.all_clients(study)) == 10


def test_missing_data_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOWKEY_HOSPITAL_DATA", raising=False)
    with pytest.raises(DataError, match=r"doi:10.24432/C5230J"):
        MORTALITY.all_clients(hospital("diabetes130/fl-std"))
