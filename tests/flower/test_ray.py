"""Flower's own simulation engine runs the same app; needs Ray, which is not installed by default."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lowkey.deployment import prepare
from lowkey.deployment.local import QUIET
from lowkey.deployment.processes import Processes, free_ports, wait_for_port
from lowkey.experiments import load_config
from lowkey.experiments.checkpoints import unpack
from lowkey.flower.node import REPLAY_VARIABLE
from lowkey.rng import ReplaySecrets
from lowkey.simulation import run
from tests.flower.loopback import PRIVATE


def test_the_same_app_under_flowers_simulation_engine(tmp_path: Path) -> None:
    pytest.importorskip(
        "ray", reason="the simulation engine needs Ray: pip install -c constraints.txt 'flwr[simulation]'"
    )
    preset, changes = PRIVATE
    config = load_config(preset, [*changes, "schedule.rounds=1", "runtime.workers=0"], nodes=4)
    prepare(tmp_path / "home", config)
    [port] = free_ports(1)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **QUIET, "PATH": path, "FLWR_HOME": str(tmp_path), REPLAY_VARIABLE: "7"}
    connection = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (tmp_path / "config.toml").write_text(connection)
    out = tmp_path / "run"
    with Processes(tmp_path / "logs") as processes:
        link = ["flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port)]
        process = processes.start("superlink", [*link, "--disable-runtime-dependency-installation"], environment)
        assert wait_for_port(port, process, 60)
        settings = f'out="{out}" enrolled="{tmp_path}/home/enrolled.toml" homes="{tmp_path}/home/nodes"'
        cluster = "num-supernodes=4 client-resources-num-cpus=1 init-args-num-cpus=2"
        command = [
            sys.executable,
            "-c",
            "from flwr.cli.app import app; app()",
            "run",
            str(tmp_path / "home/app"),
            "here",
        ]
        subprocess.run(
            [*command, "--run-config", settings, "--federation-config", cluster], env=environment, check=True
        )
        deadline = time.monotonic() + 200
        while not (out / "result.json").exists() and time.monotonic() < deadline:
            time.sleep(0.5)
    run(config, tmp_path / "simulated", secrets=ReplaySecrets(7))
    deployed, simulated = (unpack(next(d.glob("checkpoint-*"))).state.weights for d in (out, tmp_path / "simulated"))
    np.testing.assert_array_equal(deployed, simulated)
