"""The example of docs/hospital.md, on a small table and for two rounds."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from tests.tasks.mortality.tables import diabetes, write

SHORT = ("schedule.rounds=2", "training.steps=1", "runtime.workers=0")  # not all rows have the same codec


@pytest.fixture
def consortium() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "consortium.py"
    spec = importlib.util.spec_from_file_location("consortium", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def settings(tmp_path: Path) -> tuple[str, ...]:
    file = write(tmp_path / "table.csv", diabetes(1500))
    return (f"data.source={json.dumps(str(file))}", "data.any_version=true", *SHORT)


def test_all_ways_to_train_side_by_side(
    consortium: ModuleType, settings: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "consortium"
    consortium.compare("diabetes130", out, settings)
    printed = capsys.readouterr().out
    assert all(f"\n{row:>16}  " in printed for row in consortium.ROWS)
    assert (out / "report.html").exists()
    before = {file: file.stat().st_mtime_ns for file in out.glob("*/metrics.jsonl")}
    consortium.compare("diabetes130", out, settings)
    assert {file: file.stat().st_mtime_ns for file in out.glob("*/metrics.jsonl")} == before


def test_the_curve_has_every_point_and_a_picture(
    consortium: ModuleType, settings: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consortium, "HOSPITALS", {"diabetes130": (20, 40)})
    monkeypatch.setattr(consortium, "EPSILONS", (1, 8))
    points = consortium.curve("diabetes130", tmp_path / "curve", (*settings, "schedule.evaluate_every=1"))
    assert len(points) == 2 * (1 + 2 * 2)
    spent = {(p["row"], p["hospitals"], round(p["epsilon_pld"])) for p in points if p["epsilon_pld"]}
    assert len(spent) == 8
    consortium.draw("diabetes130", points, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 10_000
