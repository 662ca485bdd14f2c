"""Tables of one's own at nodes: what an app brings, and a table that does not fit."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lowkey.deployment import app_hash, new_app, read_status
from lowkey.deployment.apps import preset_app, update_preset_app
from lowkey.errors import ConfigError
from lowkey.experiments import RunDirectory
from lowkey.tabular import fit, load_encoder, read_schema
from tests.cli.command import lowkey
from tests.cli.test_cli import error_of
from tests.flower.loopback import Setting
from tests.tasks.test_table import config, example


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return example(tmp_path)


def test_an_app_brings_the_encoder_and_the_schema(place: Path) -> None:
    made = config(place)
    app = preset_app(place / "app", made)
    assert (app / "encoder.json").read_bytes() == (place / "encoder.json").read_bytes()
    before = app_hash(app)
    fit(read_schema(place / "schema.toml")).save(place / "encoder.json")
    update_preset_app(app, made)
    assert app_hash(app) == before
    schema = read_schema(place / "schema.toml")
    fit(replace(schema, columns=schema.columns[1:])).save(place / "encoder.json")
    update_preset_app(app, made)
    assert app_hash(app) != before
    (place / "encoder.json").unlink()
    with pytest.raises(ConfigError, match=r"encoder\.json does not exist, and the app needs it"):
        preset_app(place / "another", made)
    assert not (place / "another").exists()


def test_the_approval_of_an_app_shows_its_encoder(place: Path) -> None:
    """An app that somebody made by hand: the encoder lies in its package."""
    app = new_app(place / "hospitals")
    text = config(place).to_toml().replace('encoder = "encoder.json"', 'encoder = "hospitals/encoder.json"')
    (app / "hospitals" / "lowkey.toml").write_text(text.replace('"schema.toml"', '"hospitals/schema.toml"'))
    (place / "home").mkdir()
    approve = ("flower", "approve", app, "--home", place / "home")
    assert "which does not come with the app; copy it to" in error_of(*approve)
    shutil.copy(place / "encoder.json", app / "hospitals")
    assert 'add "/hospitals/encoder.json" to fab-include' in error_of(*approve)
    assert not (place / "home" / "approved.txt").exists()
    project = (app / "pyproject.toml").read_text()
    (app / "pyproject.toml").write_text(project.replace('lowkey.toml"]', 'lowkey.toml", "/hospitals/encoder.json"]'))
    assert load_encoder(place / "encoder.json").digest in lowkey(*approve).stdout


def test_a_node_whose_table_does_not_fit_says_so_at_home_and_the_round_goes_on(place: Path) -> None:
    setting = Setting(place, str(place / "study.toml"), nodes=3)
    (place / "b.csv").write_text("patient,age,sex,lactate,ward,drugs,died\np,old,f,1,icu,,0\n")
    setting.serve()
    assert RunDirectory.open(setting.out).metrics()[0]["survivors"] == 3
    fits, does_not = (read_status(setting.home / "nodes" / f"000{client}") for client in (0, 1))
    assert fits["contributed"]
    assert not does_not["contributed"]
    assert "the column 'age' holds no number in 1 of 1 rows, first in row 1" in does_not["reason"]
