"""A whole federation on this machine: SuperLink, SuperExec and authenticated SuperNodes on loopback, with TLS.

Beside the run directory, in RUN.flower/: authority and certificates (tls/), the app (app/), a home for each node
(nodes/0000/), logs (logs/).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowkey.deployment.home import EXECUTOR_SECRET, LIST_FILE, NODE_KEY
from lowkey.deployment.preparation import prepare
from lowkey.deployment.processes import Processes, free_ports, wait_for_port
from lowkey.errors import RunError
from lowkey.experiments import Config
from lowkey.tasks import place_of

_CONNECTION = "local"
_START_SECONDS = 90.0
QUIET = {  # nothing here may use the internet: no telemetry, no update check, no installation
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
}
_FLWR_COMMANDS = """
import json, sys
from flwr.cli.app import app
for command in json.loads(sys.argv[1]):
    app(command, standalone_mode=False)
"""


@dataclass(frozen=True, kw_only=True)
class LocalFederation:
    """A running federation.

    Attributes
    ----------
    home : Path
        Directory of the federation.
    processes : Processes
        The processes "superlink" and "superexec", and per client "node-NNNN" and "node-NNNN-executor".
    port : int
        Port of the SuperLink.
    node_ports : sequence of int
        Ports of the nodes' own interfaces.
    """

    home: Path
    processes: Processes
    port: int
    node_ports: Sequence[int]

    def flwr(self, *commands: Sequence[str]) -> list[dict[str, Any]]:
        """Run commands of Flower's CLI, all in one process, and return what each prints as JSON."""
        return list(_json_values(self._flwr([[*command, "--format", "json"] for command in commands])))

    def _flwr(self, commands: Sequence[Sequence[str]]) -> str:
        done = subprocess.run(
            [sys.executable, "-c", _FLWR_COMMANDS, json.dumps(commands)],
            env=self.environment("cli"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RunError(f"flwr {' '.join(commands[-1])} failed: {(done.stderr or done.stdout).strip()[-500:]}")
        return done.stdout

    def environment(self, who: str) -> dict[str, str]:
        """The environment of a process of this federation; Flower finds its own programs by name."""
        flwr_home = self.home / "flwr" / who
        flwr_home.mkdir(parents=True, exist_ok=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, **QUIET, "PATH": path, "FLWR_HOME": str(flwr_home)}

    def start_node(self, client: int, **more: str) -> None:
        """Start the node of a client and the executor of its apps; ``more`` goes into the environment of apps.

        Only this executor, which has the secret, gets the node's tasks, and it finds the guard in place of Flower's
        programs.
        """
        name, node = f"node-{client:04d}", self.home / "nodes" / f"{client:04d}"
        secret = ["--superexec-auth-secret-file", str(node / EXECUTOR_SECRET)]
        command = [
            "flower-supernode", "--superlink", f"127.0.0.1:{self.port}", "--root-certificates",
            str(self.home / "tls/ca.crt"), "--auth-supernode-private-key", str(node / NODE_KEY),
            "--host", "127.0.0.1", "--port", str(self.node_ports[client]), "--isolation", "process", *secret,
            "--node-config", f'client={client} home="{node}"',
        ]  # fmt: skip
        environment = self.environment(name)
        self.processes.start(name, command, environment)
        command = [
            "flower-superexec", "--insecure", "--runtime-api-address", f"127.0.0.1:{self.node_ports[client]}", *secret
        ]  # fmt: skip
        environment["PATH"] = f"{node / 'guard'}{os.pathsep}{environment['PATH']}"
        environment |= {"OMP_NUM_THREADS": "1", **more}  # all nodes use the same cores
        self.processes.start(f"{name}-executor", command, environment)

    def kill_node(self, client: int) -> None:
        """End a node with all its processes at once, as a power cut would."""
        for name in (f"node-{client:04d}", f"node-{client:04d}-executor"):
            self.processes.kill(name)

    def start_superlink(self) -> None:
        """Start the SuperLink, which keeps its state on disk, and wait until it listens."""
        command = [
            "flower-superlink", "--host", "127.0.0.1", "--port", str(self.port), "--ssl-ca-certfile",
            str(self.home / "tls/ca.crt"), "--ssl-certfile", str(self.home / "tls/server.pem"), "--ssl-keyfile",
            str(self.home / "tls/server.key"), "--enable-supernode-auth", "--isolation", "process",
            "--superexec-auth-secret-file", str(self.home / "tls/superexec.secret"),
            "--database", str(self.home / "flwr/state.db"), "--disable-runtime-dependency-installation",
        ]  # fmt: skip
        process = self.processes.start("superlink", command, self.environment("superlink"))
        if not wait_for_port(self.port, process, _START_SECONDS):
            raise RunError(f"Flower's SuperLink did not start; see {self.processes.logs / 'superlink.log'}")

    def start_superexec(self, **more: str) -> None:
        """Start the process that runs the server's half of the app; ``more`` goes into its environment."""
        command = [
            "flower-superexec", "--root-certificates", str(self.home / "tls/ca.crt"), "--runtime-api-address",
            f"127.0.0.1:{self.port}", "--superexec-auth-secret-file", str(self.home / "tls/superexec.secret"),
        ]  # fmt: skip
        self.processes.start("superexec", command, self.environment("superexec") | more)

    def submit(self, out: Path) -> str:
        """Start a run that keeps everything in ``out``; return Flower's number of it."""
        settings = f'out="{out.resolve()}" enrolled="{(self.home / LIST_FILE).resolve()}"'
        [started] = self.flwr(["run", str(self.home / "app"), _CONNECTION, "--run-config", settings])
        return str(started["run-id"])

    def status(self, run: str) -> str:
        """Flower's status of a run, such as "finished:failed"."""
        [found] = self.flwr(["ls", _CONNECTION, "--run-id", run])
        return str(found["runs"][0]["status"])

    def save_log(self, run: str) -> Path:
        """Save what the server's half of the app has written so far next to the other logs; return the file."""
        log = self.processes.logs / "server-app.log"
        log.write_text(self._flwr([["log", run, _CONNECTION, "--show"]]), encoding="utf-8")
        return log


@contextmanager
def local_federation(
    config: Config, home: Path, *, say: Callable[[str], None] = lambda _text: None, environment: Mapping[str, str] = {}
) -> Iterator[LocalFederation]:
    """Start a federation with one node for each client of ``config``, and stop all its processes at the end.

    Parameters
    ----------
    config : Config
        Resolved, with ``federation.clients`` nodes.
    home : Path
        Directory of keys, app and logs; an existing one is used again, with the same clients.
    say : callable
        Called with a sentence about each step of the start.
    environment : mapping of str to str
        More environment variables for the server's app and all nodes.
    """
    clients = config.federation.clients
    home = home.resolve()
    environment = _with_task(config) | dict(environment)
    prepare(home, config)
    port, *node_ports = free_ports(1 + clients)
    with Processes(home / "logs") as processes:
        federation = LocalFederation(home=home, processes=processes, port=port, node_ports=node_ports)
        _write_connection(federation)
        say("starting Flower's SuperLink")
        federation.start_superlink()
        federation.start_superexec(**environment)
        if not (home / "registered").exists():
            say(f"registering {clients} nodes")
            keys = (home / "nodes" / f"{client:04d}" / "node.pub" for client in range(clients))
            federation.flwr(*(["supernode", "register", str(key), _CONNECTION] for key in keys))
            (home / "registered").touch()
        say(f"starting {clients} nodes")
        for client in range(clients):
            federation.start_node(client, **environment)
        yield federation


def _with_task(config: Config) -> dict[str, str]:
    """Lets all processes here import a task that is a module of the user's; real nodes get it with their app."""
    place = place_of(config.task)
    if place is None:
        return {}
    known = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{place}{os.pathsep}{known}" if known else str(place)}


def _write_connection(federation: LocalFederation) -> None:
    federation.environment("cli")
    text = (
        f'[superlink]\ndefault = "{_CONNECTION}"\n[superlink.{_CONNECTION}]\n'
        f'address = "127.0.0.1:{federation.port}"\nroot-certificates = "{federation.home / "tls/ca.crt"}"\n'
    )
    (federation.home / "flwr/cli/config.toml").write_text(text, encoding="utf-8")


def _json_values(text: str) -> Iterator[dict[str, Any]]:
    """All JSON objects in a text; anything between them is ignored."""
    decoder, position = json.JSONDecoder(), 0
    while (position := text.find("{", position)) >= 0:
        try:
            value, position = decoder.raw_decode(text, position)
        except ValueError:
            position += 1
            continue
        yield value
