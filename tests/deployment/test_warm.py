"""The standby of a node: jobs are done by forks of a process that has everything imported."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from lowkey.deployment import warm
from lowkey.deployment.guard import write_guard


@pytest.fixture
def guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    home = tmp_path / ("a" * 90) / "home"  # longer than paths of sockets may be
    home.mkdir(parents=True)
    (home / "approved.txt").touch()
    write_guard(home / "guard", home / "approved.txt")
    executor = subprocess.Popen(["sleep", "100"])
    monkeypatch.setenv("EXECUTOR", str(executor.pid))
    monkeypatch.setenv("FLWR_HOME", str(home / "flwr"))
    yield home / "guard" / "flwr-clientapp"
    executor.kill()
    executor.wait()


def call(guard: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(guard), "--parent-pid", os.environ["EXECUTOR"], *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


def test_jobs_give_the_same_with_and_without_a_standby_which_ends_with_the_executor(guard: Path) -> None:
    socket = guard.parents[1] / "flwr/standby"
    cold = call(guard, "--help")
    assert cold.returncode == 0
    assert wait_for(socket.exists)
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    warm = call(guard, "--help")
    assert (warm.returncode, warm.stdout) == (cold.returncode, cold.stdout)
    assert call(guard, "--no-such-option").returncode == 2
    subprocess.run(["kill", os.environ["EXECUTOR"]], check=True)
    assert wait_for(lambda: not socket.exists())


def standby(socket: Path) -> str:
    """Process number of the standby."""
    pattern = f"lowkey.deployment.warm {socket}"
    return subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=True).stdout.strip()


def test_nobody_else_gets_at_the_memory_of_a_standby_or_at_what_it_compiles(guard: Path) -> None:
    flwr = guard.parents[1] / "flwr"
    planted = flwr / "numba/planted.nbi"
    planted.parent.mkdir(parents=True)
    planted.touch()
    call(guard, "--help")
    assert wait_for((flwr / "standby").exists)
    process = Path("/proc", standby(flwr / "standby"))
    assert "Max core file size        0                    0" in (process / "limits").read_text()
    assert not planted.exists()
    assert stat.S_IMODE(planted.parent.stat().st_mode) == 0o700
    assert list(planted.parent.rglob("*.nbi"))  # the standby has compiled, and its forks need not


def test_a_dead_standby_is_replaced(guard: Path) -> None:
    socket = guard.parents[1] / "flwr/standby"
    call(guard, "--help")
    assert wait_for(socket.exists)
    subprocess.run(["kill", "-9", standby(socket)], check=True)
    time.sleep(0.2)
    assert call(guard, "--help").returncode == 0
    assert wait_for(lambda: call(guard, "--help").returncode == 0)


def test_the_program_of_the_guard_starts_quickly() -> None:
    heavy = "{'flwr', 'numpy', 'torch', 'pydantic'}"
    code = f"import lowkey.deployment.guard, lowkey.deployment.warm, sys; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("name", [*warm._NEEDED, *warm._WITH_TORCH])
def test_what_the_standby_imports_by_name_exists(name: str) -> None:
    assert find_spec(name) is not None
