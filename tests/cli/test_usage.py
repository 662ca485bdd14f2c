"""Mistakes in the arguments: a short message and exit code 2, whichever release of typer is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import lowkey


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


def test_ctrl_c_has_its_own_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lowkey.cli.run.simulate", interrupted)
    done = lowkey("run", "demo/fl-std", "--out", "run", cwd=tmp_path)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
