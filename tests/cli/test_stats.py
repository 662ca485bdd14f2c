"""``lowkey stats`` and ``lowkey evaluate``: tables for people, JSON for scripts, answers beside the run."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.command import lowkey

QUESTIONS = """
name = "ages"
task = "mortality"
data = {name = "synthetic", scale = 0.01, encoding = "public"}
model = {kind = "head"}
training = {kind = "full-gradient", balanced = true}
federation = {scheme = "fl-std-dp", clients = 50, cohort = 50}
schedule = {rounds = 5}
runtime = {workers = 0}
privacy = {clip = "normalise", epsilon = 20.0, dropouts = 0.0, colluders = 0.0}

[[questions]]
kind = "mean"
name = "age"
limits = {age = [0, 110]}

[[questions]]
kind = "quantiles"
name = "ages"
column = "age"
low = 0
high = 110
bins = 22
at = [0.1, 0.5, 0.9]
"""


def test_statistics_and_then_an_evaluation(tmp_path: Path) -> None:
    (tmp_path / "ages.toml").write_text(QUESTIONS, encoding="utf-8")
    learning = ("--set", "schedule.patience=3", "--set", 'evaluation={where="clients", every=1}')  # have no part in it
    asked = lowkey("stats", "ages.toml", "--out", "stats", "--quiet", *learning, cwd=tmp_path)
    assert asked.returncode == 0, asked.stderr
    for part in ("estimate", "to (95 %)", "quantile 0.5", "Every client counts alike", "cost     ε ", "answers.json"):
        assert part in asked.stdout
    answers = json.loads((tmp_path / "stats" / "answers.json").read_text("utf-8"))
    assert [answer["question"] for answer in answers] == ["age", "ages"]
    again = lowkey("stats", "ages.toml", "--out", "stats", "--quiet", cwd=tmp_path)
    assert again.returncode == 2
    assert "add --resume" in again.stderr

    trained = lowkey("run", "ages.toml", "--set", "questions=[]", "--out", "run", "--quiet", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    refused = lowkey("evaluate", "run", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--epsilon" in refused.stderr
    evaluated = lowkey(
        "evaluate", "run", "--epsilon", 40, "--set", "evaluation.question.rows=5", "--quiet", "--json", cwd=tmp_path
    )
    assert evaluated.returncode == 0, evaluated.stderr
    result = json.loads(evaluated.stdout.splitlines()[-1])
    low, high = result["final_auroc_interval"]
    assert low <= result["final_auroc"] <= high
    assert 19 < result["epsilon_pld"] <= 40
    assert result["answers"][0]["estimates"]["auroc"]["value"] == result["final_auroc"]
    assert (tmp_path / "run" / "evaluation-1" / "answers.json").exists()
