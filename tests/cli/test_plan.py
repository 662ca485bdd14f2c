"""``lowkey plan``: a table for people, JSON for scripts, and settings that run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import lowkey

FEW = ["--clients", 60, "--features", 30, "--epsilon", 8, "--parameters", 1_663_370]


def run_plan(directory: Path, *arguments: object, rounds: int) -> dict[str, Any]:
    """What a run of the recommended settings ends with."""
    planned = lowkey("plan", *arguments, "--out", "plan.toml", cwd=directory)
    assert planned.returncode == 0, planned.stderr
    assert "plan.toml has these settings: lowkey run plan.toml" in planned.stdout
    again = lowkey("plan", *arguments, "--out", "plan.toml", cwd=directory)
    assert again.returncode == 2
    assert "plan.toml exists" in again.stderr
    done = lowkey(
        "run", "plan.toml", "--rounds", rounds, "--set", "runtime.workers=0", "--quiet", "--json", cwd=directory
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_a_plan_for_images_runs(tmp_path: Path) -> None:
    wishes = ["--set", "data.source=bundled", "--clients", 200, "--features", 60, "--epsilon", 8, "--parameters", 9]
    result = run_plan(tmp_path, "fashion-mnist/private", *wishes, rounds=4)
    assert result["rounds"] == 4
    assert result["final_accuracy"] > 0.2
    assert 0 < result["epsilon_pld"] <= 8


def test_a_plan_for_synthetic_hospitals_runs(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    wishes = ["--set", "data.scale=0.01", "--clients", 40, "--epsilon", 50, "--dropouts", 0, "--parameters", 9]
    result = run_plan(tmp_path, "hospital/synthetic/private", *wishes, rounds=9)
    assert result["rounds"] == 9
    assert 0 < result["epsilon_pld"] <= 50


def test_the_table_has_a_line_for_each_candidate_and_says_what_to_run() -> None:
    done = lowkey("plan", *FEW, "--examples", 25)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("60 clients with 25 examples each, 1500 in all; ε = 8, δ = 1e-05; 10% may drop out")
    for column in ("rounds", "noise", "vectors up", "protocol up", "ε models", "ε server", "harm", "signal"):
        assert column in lines[2]
    assert lines[3].startswith("1  head, 30 features")
    assert lines[3].endswith("feasible")
    assert "not feasible: signal to noise" in next(line for line in lines if "network, 1663370 parameters" in line)
    assert any(line.startswith("Recommended: head, 30 features, everybody, 66 rounds; ε = 8.00") for line in lines)


def test_json() -> None:
    done = lowkey("plan", *FEW, "--json")
    found = json.loads(done.stdout)
    first = found["candidates"][found["recommended"]]
    assert (first["model"], first["features"], first["sampling"], first["rounds"]) == ("head", 30, "all", 66)
    assert first["bytes_vectors_up"] == 60 * 30 * 24 // 8 + 6 * 5 * 24 // 8
    assert first["epsilon_released"] <= 8
    assert found["candidates"][-1]["feasible"] is False


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--clients and --features and --epsilon are missing"),
        ([*FEW, "--out", "x.toml"], "name a preset or TOML file that has one"),
        ([*FEW, "--set", "seed=1"], "--set changes settings of a preset"),
        ([*FEW, "--limit", 0], "--limit is 0"),
        (["nothing.toml"], "nothing.toml does not exist"),
        (
            ["fashion-mnist/private", "--clients", 5, "--out", "x.toml", "--parameters", 9],
            "x.toml was not written: Nothing here is worth running",
        ),
    ],
)
def test_errors(arguments: list[object], named: str, tmp_path: Path) -> None:
    done = lowkey("plan", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x.toml").exists()
