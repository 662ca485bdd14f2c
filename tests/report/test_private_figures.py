"""The pictures of docs/private-learning.md, from results with all runs, few runs and missing rows."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("private_figures", ROOT / "tools/private_figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "private_figures", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", ROOT / "results")
    return module


@pytest.fixture
def results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "results/private.json").read_text("utf-8"))
    return found


def words(figure: Any, panel: int) -> str:
    axes = figure.axes[panel]
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    return "\n".join([text.get_text() for text in axes.texts] + ticks)


def test_means_and_numbers_of_runs_are_those_of_the_results(tool: ModuleType, results: dict[str, Any]) -> None:
    row = results["sih-sus ε=1"]
    shown = words(tool.draw("epsilon", results), 1)
    assert f"{row['mean, least, most']['auroc'][0]:.3f}" in shown
    assert f"1\n({len(row['runs'])})" in shown
    assert "FL-CS-DP\n0.745" in shown
    assert "private-small*\n0.854" in words(tool.draw("bytes", results), 0)


def test_rows_that_are_missing_or_have_one_run_are_drawn_as_they_are(tool: ModuleType, results: dict[str, Any]) -> None:
    few = copy.deepcopy({key: row for key, row in results.items() if key in ("fashion ε=1", "sih-sus ε=1")})
    del few["sih-sus ε=1"]["runs"][1:]
    assert "1\n(1)" in words(tool.draw("epsilon", few), 1)
    assert "none" not in words(tool.draw("epsilon", few), 0)
    assert "private-small" not in words(tool.draw("bytes", few), 0)
    assert "FL-CS-DP" in words(tool.draw("epsilon", {}), 2)


def test_upload_is_of_rosters_and_not_of_cohorts(tool: ModuleType) -> None:
    """208,000 bytes in 200 rounds from 160 of 6,000 clients."""
    point = next(point for point in tool.networks(tool.PANELS[0]) if point.name == "FL-CS-DP")
    assert point.megabits == pytest.approx(208_000 * 8e-6 * 200 * 160 / 6000)
    assert point.epsilon == pytest.approx(0.99985, abs=1e-5)
