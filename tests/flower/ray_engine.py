"""Runs a configuration on Flower's own simulation engine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from lowkey.deployment import prepare
from lowkey.deployment.local import QUIET
from lowkey.deployment.processes import Processes, free_ports, wait_for_port
from lowkey.experiments import Config


def on_ray(config: Config, place: Path, *, nodes: int, seconds: float, more: Mapping[str, str] | None = None) -> Path:
    """Run a configuration on Flower's simulation engine; returns the run directory."""
    prepare(place / "home", config)
    [port] = free_ports(1)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **QUIET, "PATH": path, "FLWR_HOME": str(place), **(more or {})}
    connection = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (place / "config.toml").write_text(connection)
    out = place / "run"
    with Processes(place / "logs") as processes:
        link = ["flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port)]
        process = processes.start("superlink", [*link, "--disable-runtime-dependency-installation"], environment)
        if not wait_for_port(port, process, 60):
            raise SystemExit(f"Flower's server did not start; see {place / 'logs'}")
        settings = f'out="{out}" enrolled="{place}/home/enrolled.toml" homes="{place}/home/nodes"'
        cluster = f"num-supernodes={nodes} client-resources-num-cpus=1 init-args-num-cpus=2"
        flwr = [sys.executable, "-c", "from flwr.cli.app import app; app()", "run", str(place / "home/app"), "here"]
        subprocess.run([*flwr, "--run-config", settings, "--federation-config", cluster], env=environment, check=True)
        deadline = time.monotonic() + seconds
        while not (out / "result.json").exists() and time.monotonic() < deadline:
            time.sleep(0.5)
    return out
