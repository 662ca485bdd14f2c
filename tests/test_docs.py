"""The study of docs/tasks.md, taken from the page and run: what readers copy must work."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import lowkey
from lowkey.cli.app import app
from lowkey.experiments import load_config

PAGE = Path(__file__).parents[1] / "docs" / "tasks.md"
TINY = [
    "data.examples=10", "model.hidden=4", "federation.clients=20", "federation.cohort=5", "schedule.rounds=2",
    "runtime.workers=0",
]  # fmt: skip


def blocks(language: str) -> list[str]:
    """What stands on the page in fences of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory that a reader has after copying the first two files of the page."""
    (tmp_path / "my_task.py").write_text(blocks("python")[0], encoding="utf-8")
    (tmp_path / "my_study.toml").write_text(blocks("toml")[0], encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("my_task", None)


def lines_of(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def run(study: Path, *changes: str) -> list[dict[str, object]]:
    out = study / "run"
    options = [part for change in (*TINY, *changes) for part in ("--set", change)]
    result = CliRunner().invoke(app, ["run", str(study / "my_study.toml"), "--out", str(out), "--quiet", *options])
    assert result.exit_code == 0, result.output
    return lines_of(out)


def test_the_study_runs_from_the_command_line(study: Path) -> None:
    metrics = run(study)
    assert [line["round"] for line in metrics] == [1, 2]
    assert all(0 < float(str(line["epsilon_pld"])) <= 2.0 for line in metrics)
    assert all(0 <= float(str(line["accuracy"])) <= 1 for line in metrics)


def test_the_module_reads_the_data_of_one_node(study: Path) -> None:
    config = load_config(study / "my_study.toml", TINY)
    np.savez(study / "readings.npz", inputs=np.ones((3, 8)), targets=np.array([0, 1, 1]))
    inputs, targets = config.find_task().data_at(config.study, {"client": 0, "data": str(study / "readings.npz")})
    assert inputs.shape == (3, 8)
    assert targets.tolist() == [0, 1, 1]


def test_the_pieces_for_rare_events_fit_together(study: Path) -> None:
    """The second block of the page, in a task whose model has one output."""
    one_output = blocks("python")[0].replace("nn.Linear(hidden, 2)", "nn.Linear(hidden, 1)")
    module = one_output.replace("model_settings=Network\n", "model_settings=Network, **rare\n")
    assert module.count("**rare") == 1
    head, task = module.split("task = lowkey.Task(")
    (study / "my_task.py").write_text(f"{head}{blocks('python')[1]}\n\ntask = lowkey.Task({task}", encoding="utf-8")
    (first, last) = run(study)
    assert {"balanced_accuracy", "auroc", "sensitivity", "specificity", "calibration"} <= first.keys() & last.keys()
    summary = lowkey.RunDirectory.open(study / "run").summary()
    assert {"best_balanced_accuracy", "final_auroc"} <= summary.keys()
