"""App directories."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lowkey.deployment.apps import app_config, app_features, app_hash, new_app, preset_app
from lowkey.errors import ConfigError
from lowkey.flower.node import read_app_config
from lowkey.learning import make_trainer
from lowkey.tasks.fashion_mnist.maps import feature_map
from tests.conftest import tiny_config


def test_a_new_app_is_complete_and_its_settings_are_sound(tmp_path: Path) -> None:
    app = new_app(tmp_path / "three-hospitals")
    package = app / "three_hospitals"
    names = {"__init__.py", "client_app.py", "server_app.py", "task.py", "lowkey.toml"}
    assert {file.name for file in package.iterdir()} == names
    for file in package.glob("*.py"):
        compile(file.read_text(), str(file), "exec")
    config = read_app_config(package / "lowkey.toml")
    assert config.name == "three-hospitals"
    assert config.privacy is not None
    assert config.privacy.aggregation == "masked"


def test_an_app_of_a_preset_carries_its_settings(tmp_path: Path) -> None:
    config = tiny_config("demo/fl-cs", "schedule.rounds=7")
    preset_app(tmp_path / "app", config)
    assert read_app_config(tmp_path / "app/preset/lowkey.toml").federation == config.federation
    assert not (tmp_path / "app/preset/task.py").exists()


def test_an_app_of_a_preset_says_what_its_model_sees(tmp_path: Path) -> None:
    images, head = tiny_config("demo/fl-cs"), tiny_config("demo/private", "model.features=12")
    assert app_features(app_config(preset_app(tmp_path / "images", images))) == "the data as they are"
    features = app_features(app_config(preset_app(tmp_path / "head", head)))
    assert features == f"scattering, 12 numbers of an image, sha256 {feature_map(12).digest}"


@pytest.mark.parametrize("name", ["Hospitals", "3hospitals", "a_b", "a.b", "ä", "-a"])
def test_names_that_are_no_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name an app; use"):
        new_app(tmp_path / name)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["lowkey", "torch", "json", "class"])
def test_an_app_does_not_hide_a_module(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="Python has"):
        new_app(tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_directory_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "hospitals").mkdir()
    (tmp_path / "hospitals/mine").touch()
    with pytest.raises(ConfigError, match="not empty"):
        new_app(tmp_path / "hospitals")
    assert [file.name for file in (tmp_path / "hospitals").iterdir()] == ["mine"]


def test_an_empty_directory_is_used(tmp_path: Path) -> None:
    (tmp_path / "hospitals").mkdir()
    assert app_hash(new_app(tmp_path / "hospitals"))


def test_equal_directories_have_one_hash_whatever_their_place_and_times(tmp_path: Path) -> None:
    app = new_app(tmp_path / "hospitals")
    copy = tmp_path / "elsewhere"
    shutil.copytree(app, copy)
    for file in copy.rglob("*"):
        os.utime(file, (0, 0))
    assert app_hash(app) == app_hash(copy)


@pytest.mark.parametrize("file", ["pyproject.toml", "hospitals/lowkey.toml", "hospitals/task.py", "hospitals/new.py"])
def test_an_edit_changes_the_hash(tmp_path: Path, file: str) -> None:
    app = new_app(tmp_path / "hospitals")
    before = app_hash(app)
    with (app / file).open("a") as text:
        text.write("\n[tool.x]\ny = 1\n" if file == "pyproject.toml" else "\n# one more line\n")
    assert app_hash(app) != before


def test_what_is_not_shipped_is_not_in_the_hash(tmp_path: Path) -> None:
    app = new_app(tmp_path / "hospitals")
    before = app_hash(app)
    (app / "hospitals/patients.npz").write_bytes(b"secret")
    (app / "hospitals/__pycache__").mkdir()
    (app / "hospitals/__pycache__/task.cpython-311.pyc").write_bytes(b"x")
    assert app_hash(app) == before


def test_what_is_no_app_has_no_hash(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no pyproject\.toml"):
        app_hash(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    with pytest.raises(ConfigError, match="Flower can ship"):
        app_hash(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[[")
    with pytest.raises(ConfigError, match="Flower can ship"):
        app_hash(tmp_path)


def test_the_model_of_a_new_app_learns_from_patients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows by public limits, none longer than 1, and one update for each patient."""
    app = new_app(tmp_path / "my-hospitals")
    monkeypatch.syspath_prepend(str(app))
    config = read_app_config(app / "my_hospitals" / "lowkey.toml")
    numbers = np.array([[18.0, 60.0, 0.0], [100.0, 200.0, 20.0], [500.0, -9.0, 7.0], [40.0, 120.0, 1.0]])
    np.savez(tmp_path / "patients.npz", numbers=numbers, outcomes=[0, 1, 1, 0], patients=[7, 8, 8, 9])
    task = config.find_task()
    examples = task.data_at(config.study, {"data": str(tmp_path / "patients.npz"), "client": 0})
    assert np.linalg.norm(examples[0], axis=1).max() == pytest.approx(1, abs=1e-6)
    head = task.model(config.study)
    trainer: Any = make_trainer(head, [examples], config.training, persons_by="ids")
    (updates,) = trainer.train_persons(np.zeros(trainer.num_coordinates, np.float32), 0, np.random.default_rng(0))
    assert updates.shape == (3, 8)
    assert config.to_table()["server"]["rate"] > 0  # by rule
    assert config.privacy is not None
    assert config.privacy.unit == "person"
