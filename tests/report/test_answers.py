"""Reports of runs whose clients were asked: answers with intervals, evaluations by clients, groups."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lowkey.analytics import ScoreQuestion, Total
from lowkey.experiments import RunDirectory
from lowkey.figures import human, with_ranges
from lowkey.report import write_report
from lowkey.report.answers import sections
from lowkey.report.runs import load_runs
from lowkey.report.tables import cost_megabits
from lowkey.simulation import run
from tests.conftest import tiny_hospital

AGE = '{kind = "quantiles", name = "age <b>", column = "age", low = 0, high = 110, bins = 11, at = [0.5]}'
DRUGS = '{kind = "frequencies", name = "drugs", column = "drug", vocabulary = [%s]}'


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that asks, learns, and lets clients evaluate twice."""
    path = tmp_path_factory.mktemp("runs") / "asked"
    drugs = DRUGS % ", ".join(f'"{number}"' for number in range(60))
    changes = [f"questions=[{AGE}, {drugs}]", "data.scale=0.01", "federation.clients=50", "federation.cohort=50"]
    clients = ["evaluation.where=clients", "evaluation.every=1", "evaluation.question.prevalence=0.5"]
    run(tiny_hospital("hospital/synthetic/fl-std", *changes, *clients), path)
    return path


def test_answers_and_intervals_are_in_the_report(asked: Path, tmp_path: Path) -> None:
    (summary,), files = write_report([asked], tmp_path, title="x")
    assert {"evaluation-calibration.png", "evaluation-thresholds.png"} <= {file.name for file in files}
    assert "calibration.png" not in {file.name for file in files}, "the server's picture would need its test data"
    text, page = (tmp_path / "report.md").read_text(), (tmp_path / "report.html").read_text()
    low, high = summary["final_auroc_interval"]
    assert f"{summary['final_auroc']:.3f} ({low:.3f} to {high:.3f})" in text
    answers = RunDirectory.open(asked).answers()
    median = answers[0]["estimates"]["quantile 0.5"]
    assert f"| quantile 0.5 | {human(median['value'])} | {human(median['low'])} | {human(median['high'])} |" in text
    assert text.count("\n## evaluation, round") == 1, "the last evaluation, not all of them"
    assert f"\n## evaluation, round {answers[-1]['round']}\n" in text
    assert "has 62 rows, of which the first 40 are shown" in text
    assert "is mostly too good" in text
    assert "choosing it there is not private" not in text
    assert "age &lt;b&gt;, round 1" in page
    assert "<b>" not in page
    assert not re.search(r"(src|href)=\"(?!data:)", page)


def test_cost_and_upload_are_of_rounds_that_learn(asked: Path) -> None:
    (loaded,) = load_runs([asked])
    assert len(loaded.learned) == 2 < len(loaded.metrics)
    sent = loaded.learned[0]["bytes_up_per_client"]
    assert cost_megabits(loaded) == pytest.approx(2 * 8 * sent / 1e6)


def test_a_run_that_only_asks_has_a_report(tmp_path: Path) -> None:
    config = tiny_hospital("hospital/synthetic/fl-std", "schedule.rounds=0", f"questions=[{AGE}]", "paper={round=1}")
    run(config, tmp_path / "run")
    write_report([tmp_path / "run"], tmp_path / "report", title="x")
    text = (tmp_path / "report" / "report.md").read_text()
    assert "## age <b>, round 1" in text
    assert "95 % intervals" in text
    for absent in ("Best balanced accuracy", "Cost is that", "the model's inputs", ".png"):
        assert absent not in text


def test_groups_are_compared_and_small_ones_are_not(asked: Path) -> None:
    question = ScoreQuestion(bins=4, prevalence=0.3, groups=("sex=female", "sex=other"), least=100)
    rng = np.random.default_rng(0)
    label = (rng.random(3000) < 0.3).astype(float)
    rows: dict[str, Any] = {
        "score": rng.normal(label * 1.5 - 1.5), "label": label,
        "sex": np.where(np.arange(3000) % 100 == 0, "other", "female").astype(object),
    }  # fmt: skip
    total = question.vectors(rows, np.arange(3001)).sum(axis=0)
    answer = question.read(Total(value=total, noise=2.0, units=3000, unit="person")).to_json()
    (loaded,) = load_runs([asked])
    last = loaded.metrics[-1] | {"answer": answer}
    groups = sections([replace(loaded, metrics=[*loaded.metrics[:-1], last])])[-1].tables[-1]
    assert groups.title == "groups"
    assert groups.header == ("group", "rows", "prevalence", "AUROC", "sensitivity", "specificity")
    female, other = groups.rows
    assert female[0] == "sex=female"
    assert re.fullmatch(r"0\.8\d+ \(0\.\d+ to 0\.\d+\)", female[3])
    assert other == ("sex=other", "–", "–", "–", "–", "–")


def test_ends_go_behind_what_they_are_the_ends_of() -> None:
    columns: dict[str, list[Any]] = {
        "entry": ["a"],
        "share": [0.25],
        "low": [0.2],
        "high": [0.31],
        "b": [1.0],
        "b low": [0.0],
        "b high": [None],
    }
    assert with_ranges(columns) == {"entry": ["a"], "share": ["0.25 (0.2 to 0.31)"], "b": ["1 (0 to –)"]}
    assert with_ranges({"low": [1.0], "c_low": [12345.6]}) == {"low": ["1"], "c low": ["12,346"]}
