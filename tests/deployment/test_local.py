"""Real SuperLink and SuperNode processes on loopback, with TLS and authenticated nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lowkey.deployment.running import run_locally
from lowkey.experiments import RunDirectory, load_config
from lowkey.experiments.checkpoints import unpack
from lowkey.flower.node import REPLAY_VARIABLE
from lowkey.rng import ReplaySecrets
from lowkey.simulation import run
from tests.flower.loopback import OPEN, PRIVATE


def alive(word: str) -> list[str]:
    """Command lines of processes that name this word; zombies have none."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in command and int(process.name) != os.getpid():
            found.append(command)
    return found


def none_left(word: str, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while alive(word) and time.monotonic() < deadline:
        time.sleep(0.2)
    return not alive(word)


@pytest.mark.parametrize("scheme", [OPEN, PRIVATE], ids=["open", "private"])
def test_real_nodes_learn_the_same_model_as_a_simulation(tmp_path: Path, scheme: tuple[str, list[str]]) -> None:
    preset, changes = scheme
    config = load_config(preset, [*changes, "schedule.rounds=1", "runtime.workers=0"], nodes=3)
    result = run_locally(config, tmp_path / "run", environment={REPLAY_VARIABLE: "7"})
    run(config, tmp_path / "simulated", secrets=ReplaySecrets(7))

    deployed, simulated = (
        unpack(next((tmp_path / name).glob("checkpoint-000001*"))).state for name in ("run", "simulated")
    )
    np.testing.assert_array_equal(deployed.weights, simulated.weights)
    assert result["stopped"] == "rounds"
    finished = RunDirectory.open(tmp_path / "run")
    assert finished.state() == "finished"
    assert finished.metrics()[0]["survivors"] == 3
    assert none_left(str(tmp_path))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["Ctrl-C", "stop", "kill -9"])
def test_nothing_is_left_behind_when_the_command_is_stopped(tmp_path: Path, how: signal.Signals) -> None:
    command = [sys.executable, "-c", "from lowkey.cli import main; main()", "run", "demo/fl-std"]
    options = ["--runtime", "flower", "--nodes", "1", "--rounds", "50", "--out", str(tmp_path / "run"), "--quiet"]
    process = subprocess.Popen([*command, *options])
    log = tmp_path / "run.flower/logs/node-0000.log"
    deadline = time.monotonic() + 120
    while not (log.exists() and "SuperNode ID" in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert len(alive(str(tmp_path))) >= 3
    process.send_signal(how)
    assert process.wait(60) == (-how if how == signal.SIGKILL else 130)
    assert none_left(str(tmp_path)), alive(str(tmp_path))


def test_a_run_that_cannot_start_says_why_and_leaves_nothing_behind(tmp_path: Path) -> None:
    changes = [*PRIVATE[1], "schedule.rounds=1", "data.source=/nonexistent"]
    config = load_config(PRIVATE[0], changes, nodes=3)
    with pytest.raises(Exception, match=r"nonexistent|finished:failed"):
        run_locally(config, tmp_path / "run")
    assert none_left(str(tmp_path))
