"""Mistakes in the arguments: a short message and exit code 2, whichever release of typer is installed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.test_cli import SMALL, lowkey


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "--nonsense"], "--nonsense"),
        (["nonsense"], "nonsense"),
        (["privacy", "epsilon"], "--clients"),
        (["run", "x", "y"], "(y)"),
        (["presets"], "Missing command"),
    ],
)
def test_a_usage_mistake_is_named_and_help_is_offered(arguments: list[str], named: str) -> None:
    done = lowkey(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert named in done.stderr
    assert done.stderr.startswith("Usage: ")
    assert "--help' for help" in done.stderr


def test_a_usage_mistake_in_a_process_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-m", "lowkey", "run", "--nonsense"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--nonsense" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_arguments_show_the_help() -> None:
    done = lowkey()
    assert done.returncode == 2
    assert "presets" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_a_run_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lowkey", "run", "demo/fl-std", *SMALL, "--rounds", "100000", "--out", "run"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            _wait_for(tmp_path / "run" / "metrics.jsonl")
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in error


def _wait_for(path: Path, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < until, f"{path} did not appear"
        time.sleep(0.05)
