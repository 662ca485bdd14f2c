"""A study of one's own on real nodes of this machine: as it is simulated, so it is deployed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.experiments.test_own_task import MODULE, SETTINGS


def test_a_study_of_ones_own_runs_on_flower(tmp_path: Path) -> None:
    (tmp_path / "my_study.py").write_text(MODULE)
    (tmp_path / "my_study.toml").write_text(SETTINGS)
    out = tmp_path / "elsewhere" / "run"
    command = [sys.executable, "-m", "lowkey", "run", str(tmp_path / "my_study.toml"), "--out", str(out), "--json"]
    options = ["--rounds", "2", "--runtime", "flower", "--nodes", "3", "--track", "tensorboard", "--quiet"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["preset"], result["rounds"]) == ("my_study", 2)
    assert result["final_accuracy"] is not None
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["survivors"] for line in lines] == [3, 3]
    assert list((out / "tensorboard").iterdir())  # trackers see deployed runs, too
    told = subprocess.run(
        [sys.executable, "-P", "-m", "lowkey", "status", str(out)], capture_output=True, text=True, check=True
    )
    assert "share of clouds told apart" in told.stdout
