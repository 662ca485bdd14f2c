"""A study of one's own: a module with a task, a TOML file beside it, and the same commands as for presets."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowkey.cli.app import app
from lowkey.errors import ConfigError
from lowkey.experiments import RunDirectory, load_config
from lowkey.tasks import find_task

MODULE = '''
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

import lowkey


@dataclass(frozen=True, kw_only=True)
class Clouds:
    """The table [data]."""

    distance: float = 2.0
    examples: int = 12


@dataclass(frozen=True, kw_only=True)
class Width:
    """The table [model]."""

    hidden: int = 4


def draw(study, who, size):
    rng = np.random.default_rng([study.seed, who])
    labels = rng.integers(0, 2, size)
    return rng.normal(size=(size, 3)).astype(np.float32) + study.data.distance * labels[:, None], labels


def model(study):
    torch.manual_seed(study.seed)
    return nn.Sequential(nn.Linear(3, study.model.hidden), nn.ReLU(), nn.Linear(study.model.hidden, 2))


def clients(study):
    return [draw(study, client, study.data.examples) for client in range(study.clients)]


task = lowkey.Task(
    model=model,
    clients=clients,
    test=lambda study: draw(study, 10_000, 300),
    scores=(lowkey.Score("accuracy", "share of clouds told apart"),),
    data=Clouds,
    model_settings=Width,
)
'''
SETTINGS = """
task = "my_study"

[data]
distance = 3.0

[model]
hidden = 6

[federation]
scheme = "fl-std"
clients = 20
cohort = 10

[schedule]
rounds = 8

[runtime]
workers = 0
"""


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Path]:
    """The directory of the study; modules and places that were imported from it are forgotten afterwards."""
    (tmp_path / "my_study.py").write_text(MODULE)
    (tmp_path / "my_study.toml").write_text(SETTINGS)
    places, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = places
    for name in set(sys.modules) - modules:
        if name.startswith("my_"):
            del sys.modules[name]


def forget() -> None:
    """As in another process: the module is not imported, nor is its directory known."""
    sys.path[:] = [place for place in sys.path if not (Path(place) / "my_study.py").exists()]
    sys.modules.pop("my_study", None)


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_study_runs_from_its_settings(study: Path) -> None:
    out = study / "run"
    text = call("run", study / "my_study.toml", "--out", out, "--quiet")
    result = json.loads((out / "result.json").read_text())
    assert result["final_accuracy"] > 0.9
    assert f"share of clouds told apart  {result['final_accuracy']:.4f} final" in text
    assert (result["preset"], result["rounds"]) == ("my_study", 8)
    weights = 3 * 6 + 6 + 6 * 2 + 2
    assert result["bytes_up_per_client"] == 4 * weights  # hidden = 6 has reached the model
    kept = RunDirectory.open(out).config
    assert (kept.study.data.distance, kept.study.data.examples, kept.study.model.hidden) == (3.0, 12, 6)


def test_settings_of_the_study_can_be_changed_on_the_command_line(study: Path) -> None:
    near = ["--set", "data.distance=0.0", "--set", "model.hidden=2", "--rounds", 2, "--quiet", "--json"]
    result = json.loads(call("run", study / "my_study.toml", *near, "--out", study / "run").splitlines()[-1])
    assert result["final_accuracy"] < 0.7  # the clouds lie on each other
    assert result["bytes_up_per_client"] == 4 * (3 * 2 + 2 + 2 * 2 + 2)


def test_a_private_study_with_worker_processes(study: Path) -> None:
    private = ["federation.scheme=fl-std-dp", "privacy={clip_norm=1.0, noise_multiplier=1.0, delta=0.01}"]
    changes = [part for change in (*private, "runtime.workers=2") for part in ("--set", change)]
    text = call("run", study / "my_study.toml", *changes, "--rounds", 2, "--out", study / "run", "--quiet")
    assert "ε" in text


def test_reading_a_run_never_runs_code_that_it_names(study: Path) -> None:
    """A run directory from somebody else: its task is a module beside it."""
    out = study / "run"
    call("run", study / "my_study.toml", "--out", out, "--quiet", "--rounds", 1)
    forget()
    (out / "my_study.py").write_text("raise SystemExit('code of a run directory was run')")
    (study / "my_study.py").write_text("raise SystemExit('code of a run directory was run')")
    environment = json.loads((out / "environment.json").read_text())
    (out / "environment.json").write_text(json.dumps(environment | {"task_from": str(out)}))
    call("status", out)
    call("report", out, "--out", study / "report")
    assert "my_study" not in sys.modules


def test_the_run_of_a_study_is_opened_from_anywhere(
    study: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path_factory.mktemp("elsewhere") / "run"
    call("run", study / "my_study.toml", "--out", out, "--quiet", "--rounds", 2)
    monkeypatch.chdir(out)
    forget()
    assert "share of clouds told apart" in call("status", out)
    call("report", out, "--out", out.parent / "report")
    assert "my_study" not in sys.modules
    with pytest.raises(ConfigError, match="go to its directory, or name its TOML file"):
        call("run", "--resume", "--out", out, "--rounds", 3, "--quiet")
    monkeypatch.chdir(study)
    more = json.loads(call("run", "--resume", "--out", out, "--rounds", 3, "--quiet", "--json").splitlines()[-1])
    assert more["rounds"] == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data.distence=1.0", r"unknown key data\.distence; did you mean data\.distance\?"),
        ("model.hiden=3", r"unknown key model\.hiden; did you mean model\.hidden\?"),
        ("data.examples=few", r"data\.examples.*'few'"),
        ("federation.clients=0", r"federation\.clients is 0"),
    ],
)
def test_a_wrong_setting_of_the_study_is_refused_before_anything_happens(
    study: Path, change: str, message: str
) -> None:
    command = ["run", str(study / "my_study.toml"), "--set", change, "--out", str(study / "run"), "--quiet"]
    with pytest.raises(ConfigError, match=message):
        CliRunner().invoke(app, command, catch_exceptions=False)
    assert not (study / "run").exists()


def test_as_many_datasets_as_clients(study: Path) -> None:
    (study / "my_study.py").write_text(MODULE.replace("range(study.clients)", "range(7)"))
    with pytest.raises(ConfigError, match=r"federation\.clients is 20, but the task has data of 7 clients; set"):
        call("run", study / "my_study.toml", "--out", study / "run", "--quiet")
    assert not (study / "run").exists()


def test_a_module_that_does_not_exist(study: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"task is 'my_stduy', which is neither a task of Lowkey \(fashion-mnist, mor"
    ):
        call("run", study / "my_study.toml", "--set", "task=my_stduy", "--out", study / "run", "--quiet")
    with pytest.raises(ConfigError, match=r"task is 'fashion-mnits'.*did you mean 'fashion-mnist'\?"):
        find_task("fashion-mnits")
    assert not (study / "run").exists()


@pytest.mark.parametrize("content", ["", "task = 3\n", "def task(): ...\n"], ids=["none", "number", "function"])
def test_a_module_without_a_task(study: Path, content: str) -> None:
    (study / "my_study.py").write_text(content)
    with pytest.raises(
        ConfigError, match=r"the module my_study has no Task called 'task'; write: task = lowkey\.Task\("
    ):
        call("run", study / "my_study.toml", "--out", study / "run", "--quiet")
    assert not (study / "run").exists()


def test_what_the_module_itself_lacks_is_not_taken_for_the_module(study: Path) -> None:
    (study / "my_study.py").write_text("import my_missing_library\n")
    with pytest.raises(ModuleNotFoundError, match="my_missing_library"):
        call("run", study / "my_study.toml", "--out", study / "run", "--quiet")


def test_a_task_needs_data_and_a_score(study: Path) -> None:
    (study / "my_study.py").write_text(MODULE.replace("    clients=clients,\n", ""))
    with pytest.raises(ConfigError, match=r"needs clients .* local_data .* or both"):
        load_config(study / "my_study.toml").find_task()
    sys.modules.pop("my_study", None)
    local = MODULE.replace("    clients=clients,\n", "    local_data=lambda study, node: draw(study, 0, 5),\n")
    (study / "my_study.py").write_text(local)
    with pytest.raises(ConfigError, match="knows the data of one node"):
        call("run", study / "my_study.toml", "--out", study / "run", "--quiet")
