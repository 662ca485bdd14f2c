"""docs/statistics.md and evaluation.md: tables in step with the results, examples that run, no setting left out."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lowkey.analytics import QUESTIONS, ScoreQuestion
from lowkey.experiments import RunDirectory, load_config, parse
from lowkey.simulation import run

ROOT = Path(__file__).parents[2]
STATISTICS, EVALUATION = (
    (ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in ("statistics", "evaluation")
)
SMALL = {"data": {"scale": 0.01}, "federation": {"clients": 50, "cohort": 50}, "runtime": {"workers": 0}}


def tomls(page: str) -> list[dict[str, Any]]:
    return [tomllib.loads(text) for text in re.findall(r"^```toml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("analytics_tables", ROOT / "tools/analytics_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(ROOT)
    return module


@pytest.mark.parametrize("name", ["statistics", "evaluation"])
def test_tables_are_those_of_the_results(
    tool: ModuleType, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, made = tool.filled(name)
    assert made == page, "run python tools/analytics_tables.py"
    (tmp_path / f"{name}.md").write_text(page.replace("| 0.2 |", "| 0.3 |"), encoding="utf-8")
    monkeypatch.setattr(tool, "DOCS", tmp_path)
    changed, mended = tool.filled(name)
    assert changed != mended == page


def test_the_statistics_of_the_page_are_asked(tmp_path: Path) -> None:
    first, codes, confirmed = tomls(STATISTICS)
    for number, table in enumerate((first, codes, codes | confirmed)):
        made = table | {"schedule": {"rounds": 0}}
        for name, values in SMALL.items():
            made[name] = made.get(name, {}) | values
        made["federation"].pop("ledger", None)
        config = parse(made).resolve()
        run(config, tmp_path / str(number))
        answers = RunDirectory.open(tmp_path / str(number)).answers()
        assert [answer["question"] for answer in answers] == [question["name"] for question in table["questions"]]


def flat(table: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}={value}"


def test_the_evaluation_of_the_page_runs(tmp_path: Path) -> None:
    (table,) = tomls(EVALUATION)
    config = load_config(
        "hospital/synthetic/private", [*flat(table), *flat(SMALL), "schedule.rounds=8", "privacy.epsilon=500"]
    )
    assert config.evaluation.every == 10
    result = run(config, tmp_path / "run")
    low, high = result["final_auroc_interval"]
    assert low <= result["final_auroc"] <= high
    assert 0.5 < result["final_auroc_server"] < 1


def test_every_kind_and_setting_is_on_the_page() -> None:
    rows = {row.split("`")[1]: row for row in STATISTICS.splitlines() if row.startswith("| `")}
    assert set(rows) == set(QUESTIONS)
    for kind in QUESTIONS:
        names = {field.name for field in fields(QUESTIONS[kind])} if kind != "scores" else set()
        for name in names - {"name", "by", "values", "weight", "most_rows"}:
            if kind == "quantiles" and name in ("column", "edges", "low", "high", "bins"):
                continue  # "the same" as those of a histogram
            assert f"`{name}" in rows[kind], f"{name} of {kind} is not on the page"
    for name in ("by", "values", "weight", "most_rows"):
        assert f"`{name}" in STATISTICS
    for field in fields(ScoreQuestion):
        assert field.name == "name" or re.search(rf"\b{field.name}\b`? ?=|`{field.name}`", EVALUATION), field.name


def test_the_readme_has_the_figures_of_the_results() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = json.loads((ROOT / "results/evaluation.json").read_text(encoding="utf-8"))["rows"]
    few, hospitals, many = (f"{row['auroc']['mean_absolute_error']:.3f}" for row in rows if row["epsilon"] == 1)
    shown = " ".join(text.split())
    assert f"off by {few} with ten hospitals" in shown
    assert f"by {hospitals} with 410" in shown
    assert f"by {many} with 5,011" in shown
