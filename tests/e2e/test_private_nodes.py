"""The recommended way to learn privately, on real nodes of this machine, with masks and in every phase."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SMALL = ["privacy.epsilon=60.0", "privacy.dropouts=0.0", "privacy.colluders=0.0"]
HOSPITALS = ["data.scale=0.002", "schedule.rounds=3", "schedule.calibration=1"]
IMAGES = ["model.features=40", "schedule.rounds=3", "privacy.bits=28"]


@pytest.mark.parametrize(
    ("preset", "changes", "sizes"),
    [
        ("hospital/synthetic/private", HOSPITALS, [7281, 7281, 5]),  # weights, weights, slope and intercept
        ("demo/private", IMAGES, [40, 410, 410]),  # centre, weights, weights
    ],
)
def test_four_nodes_learn_all_phases(preset: str, changes: list[str], sizes: list[int], tmp_path: Path) -> None:
    settings = [part for change in (*changes, *SMALL) for part in ("--set", change)]
    options = ["--runtime", "flower", "--nodes", "4", "--out", str(tmp_path / "run"), "--quiet", "--json"]
    command = [sys.executable, "-m", "lowkey", "run", preset, *settings, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    rounds: list[dict[str, Any]] = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert [line["survivors"] for line in rounds] == [4, 4, 4]
    assert [line["bytes_up_per_client"] for line in rounds] == [-(-28 * size // 8) for size in sizes]
    assert rounds[-1]["epsilon_pld"] <= 60
    assert rounds[-1]["epsilon_server"] == pytest.approx(rounds[-1]["epsilon_pld"], rel=1e-3)
    assert ("calibration_slope" in rounds[-1]) == preset.startswith("hospital")
