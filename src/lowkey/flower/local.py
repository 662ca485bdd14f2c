"""A whole federation on this machine: SuperLink, SuperExec and authenticated SuperNodes on loopback, with TLS.

Beside the run directory, in RUN.flower/: authority and certificates (tls/), the app (app/), a home for each node
(nodes/0000/), logs (logs/).
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowkey.errors import ConfigError, RunError
from lowkey.experiments import Config, RunDirectory
from lowkey.experiments.store import FAILURE_FILE
from lowkey.flower.apps import app_hash, preset_app
from lowkey.flower.certificates import new_certificates, new_node_key
from lowkey.flower.enrolment import (
    LIST_FILE,
    SECRET_FILE,
    Enrolled,
    new_identity,
    read_enrolment,
    write_enrolment,
    write_secret,
)
from lowkey.flower.guard import approve, write_guard
from lowkey.flower.processes import Processes, free_ports, wait_for_port

_CONNECTION = "local"
_START_SECONDS = 90.0
_LOOK_SECONDS = 0.5
_STATUS_SECONDS = 20.0
_REVIVE_SECONDS = 5.0  # a node that was killed is refused until its old session has expired
QUIET = {  # nothing here may reach out: no telemetry, no update check, no installation
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


def for_nodes(config: Config, nodes: int) -> Config:
    """The same settings with one client per node: its share of the data, and a cohort of no more than all of them.

    To be resolved afterwards, since noise and rounds that reach an ε depend on the number of clients.
    """
    if nodes < 1:
        raise ConfigError(f"--nodes is {nodes}; at least 1 is needed")
    federation = config.federation.model_copy(update={"cohort": min(config.federation.cohort, nodes)})
    changed: dict[str, Any] = {"data": config.data.model_copy(update={"clients": nodes}), "federation": federation}
    if config.privacy is not None:
        if nodes < 3:
            raise ConfigError(f"--nodes is {nodes}; secure aggregation hides nothing among fewer than 3 clients")
        fresh = {"secagg": "masked", "sampling": None, "roster": None}
        changed["privacy"] = config.privacy.model_copy(update=fresh)
    return config.model_copy(update=changed)


@dataclass(frozen=True, kw_only=True)
class LocalFederation:
    """A running federation.

    Attributes
    ----------
    home : its directory.
    processes : superlink, superexec and one node-NNNN per client.
    port : of the SuperLink.
    node_ports : of the nodes' own interfaces.
    """

    home: Path
    processes: Processes
    port: int
    node_ports: Sequence[int]

    def flwr(self, *commands: Sequence[str]) -> list[dict[str, Any]]:
        """Run commands of Flower's CLI, all in one process, and give what each prints as JSON."""
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
        """What a process of this federation finds in its environment; Flower finds its own programs by name."""
        flwr_home = self.home / "flwr" / who
        flwr_home.mkdir(parents=True, exist_ok=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, **QUIET, "PATH": path, "FLWR_HOME": str(flwr_home)}

    def start_node(self, client: int, **more: str) -> subprocess.Popen[bytes]:
        """Start the node of a client; ``more`` goes into its environment."""
        node = self.home / "nodes" / f"{client:04d}"
        settings = f'client={client} home="{node}"'
        command = [
            "flower-supernode", "--superlink", f"127.0.0.1:{self.port}", "--root-certificates",
            str(self.home / "tls/ca.crt"), "--auth-supernode-private-key", str(node / "node.key"),
            "--host", "127.0.0.1", "--port", str(self.node_ports[client]), "--node-config", settings,
        ]  # fmt: skip
        environment = self.environment(f"node-{client:04d}")
        environment["PATH"] = f"{node / 'guard'}{os.pathsep}{environment['PATH']}"
        environment |= {"OMP_NUM_THREADS": "1", **more}  # nodes share the cores
        return self.processes.start(f"node-{client:04d}", command, environment)

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
        """Start what runs the server's half of the app; ``more`` goes into its environment."""
        command = [
            "flower-superexec", "--root-certificates", str(self.home / "tls/ca.crt"), "--runtime-api-address",
            f"127.0.0.1:{self.port}", "--superexec-auth-secret-file", str(self.home / "tls/superexec.secret"),
        ]  # fmt: skip
        self.processes.start("superexec", command, self.environment("superexec") | more)

    def submit(self, out: Path) -> str:
        """Start a run that keeps everything in ``out``; gives Flower's number of it."""
        settings = f'out="{out.resolve()}" enrolled="{(self.home / LIST_FILE).resolve()}"'
        [started] = self.flwr(["run", str(self.home / "app"), _CONNECTION, "--run-config", settings])
        return str(started["run-id"])

    def status(self, run: str) -> str:
        """What Flower says of a run, such as "finished:failed"."""
        [found] = self.flwr(["ls", _CONNECTION, "--run-id", run])
        return str(found["runs"][0]["status"])

    def save_log(self, run: str) -> Path:
        """Keep what the server's half of the app has written so far, beside the other logs."""
        log = self.processes.logs / "server-app.log"
        log.write_text(self._flwr([["log", run, _CONNECTION, "--show"]]), encoding="utf-8")
        return log


@contextmanager
def local_federation(
    config: Config, home: Path, *, say: Callable[[str], None] = lambda _text: None, environment: Mapping[str, str] = {}
) -> Iterator[LocalFederation]:
    """Start a federation with one node for each client of ``config``, and end it without a trace of a process.

    Parameters
    ----------
    config : resolved, with ``data.clients`` nodes.
    home : directory of keys, app and logs; one that exists is used again, with the same clients.
    say : told what is going on.
    environment : additions for the server's app and all nodes.
    """
    clients = config.data.clients
    home = home.resolve()
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


def run_locally(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    observe: Callable[[Mapping[str, Any]], None] = lambda _metrics: None,
    say: Callable[[str], None] = lambda _text: None,
    environment: Mapping[str, str] = {},
) -> dict[str, Any]:
    """Play ``config`` on a federation of real nodes on this machine; everything is kept in ``out``.

    Parameters
    ----------
    config : from :func:`for_nodes`.
    out : run directory, as of a simulation; new, or with ``resume`` an existing one.
    observe : called with each line of metrics.jsonl.
    say : told what is going on before the first round.
    environment : additions for the server's app and all nodes.
    """
    if resume:
        RunDirectory.open(out)
    else:
        RunDirectory.require_new(out)
    (out / "result.json").unlink(missing_ok=True)
    home = out.with_name(f"{out.name}.flower")
    with local_federation(config, home, say=say, environment=environment) as federation:
        run = federation.submit(out)
        say("waiting for the nodes")
        return follow(federation, run, out, observe)


def follow(
    federation: LocalFederation, run: str, out: Path, observe: Callable[[Mapping[str, Any]], None]
) -> dict[str, Any]:
    """Watch a run until it has a result; its files say how it ended, and Flower's status when they do not."""
    shown, looked, revived = 0, time.monotonic(), time.monotonic()
    while True:
        for metrics in (RunDirectory.open(out).metrics() if (out / "config.toml").is_file() else [])[shown:]:
            shown += 1
            observe(metrics)
        if (out / "result.json").exists():
            result: dict[str, Any] = json.loads((out / "result.json").read_text(encoding="utf-8"))
            return result
        if (out / FAILURE_FILE).exists():
            raise RunError(json.loads((out / FAILURE_FILE).read_text(encoding="utf-8"))["error"])
        if time.monotonic() - revived > _REVIVE_SECONDS:
            revived = time.monotonic()
            federation.processes.revive("node-")
        if time.monotonic() - looked > _STATUS_SECONDS:
            looked = time.monotonic()
            if (status := federation.status(run)).startswith("finished") and not (out / "result.json").exists():
                raise RunError(f"the run ended as '{status}'; see {federation.save_log(run)}")
        time.sleep(_LOOK_SECONDS)


def prepare(home: Path, config: Config) -> None:
    """Keys, enrolment and app; what is there already stays, as clients keep their keys."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (home / "tls/ca.crt").exists():
        new_certificates(home / "tls", ["localhost", "127.0.0.1"])
        write_secret(home / "tls/superexec.secret", secrets.token_bytes(32))
    nodes = [home / "nodes" / f"{client:04d}" for client in range(config.data.clients)]
    enrolled: list[Enrolled] = []
    for client, node in enumerate(nodes):
        if not (node / SECRET_FILE).exists():
            new_identity(node, client, f"node {client}")
            new_node_key(node / "node.key")
        enrolled += read_enrolment(node / "identity.toml")
    for place in (home, *nodes):
        write_enrolment(place / LIST_FILE, enrolled)
    if not (home / "app").exists():
        preset_app(home / "app", config)
    else:
        (home / "app/preset/lowkey.toml").write_text(config.to_toml(), encoding="utf-8")
    digest = app_hash(home / "app")
    for node in nodes:
        approve(node / "approved.txt", digest, config.name)
        write_guard(node / "guard", node / "approved.txt")


def _write_connection(federation: LocalFederation) -> None:
    federation.environment("cli")
    text = (
        f'[superlink]\ndefault = "{_CONNECTION}"\n[superlink.{_CONNECTION}]\n'
        f'address = "127.0.0.1:{federation.port}"\nroot-certificates = "{federation.home / "tls/ca.crt"}"\n'
    )
    (federation.home / "flwr/cli/config.toml").write_text(text, encoding="utf-8")


def _json_values(text: str) -> Iterator[dict[str, Any]]:
    """All JSON objects in a text, whatever stands between them."""
    decoder, position = json.JSONDecoder(), 0
    while (position := text.find("{", position)) >= 0:
        try:
            value, position = decoder.raw_decode(text, position)
        except ValueError:
            position += 1
            continue
        yield value
