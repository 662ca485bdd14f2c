"""A fault drill on real processes: nodes, apps and servers are killed and misbehave, one after the other.

    python tools/drill.py [--only WORD] [--lanes 3] [--write docs/drill.md]

Four clients on loopback learn by a private scheme that tolerates one dropout. Each scenario strikes in a round of its
own; the table says how that round ended. It takes about half an hour: a node that was killed is let in again by Flower
only when its old session has expired. Scenarios are divided among federations that run side by side.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowkey.deployment import LocalFederation, Processes, local_federation, prepare
from lowkey.experiments import RunDirectory, load_config
from lowkey.privacy import ClientLedger, Entry, Ledger

NODES = 4
SETTINGS = [
    "schedule.rounds=500", "schedule.attempts=5", "privacy.epsilon=5000", "privacy.noise_multiplier=1.0",
    "privacy.dropouts=0.25", "privacy.colluders=0", "privacy.max_contributions=1000", "deployment.agree_seconds=30",
    "deployment.train_seconds=45", "deployment.gather_seconds=120",
]  # fmt: skip
STEPS = {
    "Invite": "advertise",
    "Adverts": "share",
    "Delivery": "contribute",
    "Survivors": "confirm",
    "Confirmations": "reveal",
}

FAULTS = '''
"""Faults on demand, from a file in the node's home."""
import json, os, time
from pathlib import Path
from flwr.app import Array, ArrayRecord
import numpy as np


def fault(message, context, call_next):
    home = Path(context.node_config["home"])
    request = message.content.config_records.get("request")
    file = home / "fault.json"
    if request is None or not file.exists():
        return call_next(message, context)
    wanted = json.loads(file.read_text())
    if request["round"] < wanted["round"] or request["kind"] != wanted["step"]:
        return call_next(message, context)
    file.unlink()
    what = wanted["what"]
    if what == "stop on arrival":
        (home / "reached").touch(); time.sleep(1000)
    if what == "die":
        os._exit(1)
    if what == "raise":
        raise RuntimeError("drill")
    if what == "late":
        time.sleep(wanted["seconds"])
    if what == "forget":
        context.state.clear()
    reply = call_next(message, context)
    if what == "stop before answering":
        (home / "reached").touch(); time.sleep(1000)
    if what == "stop after answering":
        (home / "reached").touch()
    if what == "redelivered":
        call_next(message, context)
    if what == "wrong round":
        reply.content.config_records["reply"]["round"] = request["round"] + 7
    if what == "garbage":
        reply.content.config_records["reply"].update(kind="Advert", message=os.urandom(200))
    if what == "wrong length":
        reply.content["vector"] = ArrayRecord({"vector": Array(np.zeros(100, np.uint8))})
    return reply
'''


@dataclass(frozen=True)
class Scenario:
    name: str
    what: str  # a fault of the node's app, or of a server
    step: str = "Invite"
    node: int = 0


def scenarios() -> Iterator[Scenario]:
    turn = 0
    for what, words in (
        ("stop on arrival", "killed when the message to {} arrives"),
        ("stop before answering", "killed after its work for {}, before it answers"),
        ("stop after answering", "killed after it answered {}"),
    ):
        for step, name in STEPS.items():
            yield Scenario(f"node {words.format(name)}", what, step, turn % NODES)
            turn += 1
    for what, step, words in (
        ("late", "Adverts", "answers later than the step allows"),
        ("redelivered", "Delivery", "gets a request twice and refuses the second"),
        ("wrong round", "Delivery", "answers another round"),
        ("garbage", "Invite", "sends random bytes as its keys"),
        ("wrong length", "Delivery", "sends a vector of another length"),
        ("forget", "Delivery", "has lost its state in mid-round"),
        ("raise", "Delivery", "app raises"),
        ("die", "Delivery", "app dies"),
    ):
        yield Scenario(f"node {words}", what, step, turn % NODES)
        turn += 1
    yield Scenario("server app killed between two rounds", "kill server")
    for step, name in STEPS.items():
        yield Scenario(f"server app killed in mid-round, at {name}", "kill server", step, 1)
    yield Scenario("SuperLink killed and started again in mid-round", "restart superlink", "Delivery", 2)


class Drill:
    def __init__(self, federation: LocalFederation, out: Path) -> None:
        self.federation, self.out = federation, out
        self.run = federation.submit(out)

    def rounds(self) -> list[dict[str, Any]]:
        return RunDirectory.open(self.out).metrics() if (self.out / "config.toml").exists() else []

    def wait(self, condition: Callable[[], bool], seconds: float = 400) -> bool:
        """Look until something is the case; nodes that have ended are started again, as a supervisor would."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if condition():
                return True
            self.federation.processes.revive("node-")
            time.sleep(0.2)
        return False

    def everybody_is_back(self) -> bool:
        """Whether a later round has all clients; returns when one has just ended."""
        seen = len(self.rounds())
        return self.wait(lambda: len(lines := self.rounds()) > seen and lines[-1]["survivors"] == NODES)

    def home(self, node: int) -> Path:
        return self.federation.home / "nodes" / f"{node:04d}"

    def strike(self, scenario: Scenario) -> int:
        """Let one fault happen in the round that begins now; returns that round."""
        number = int(self.rounds()[-1]["round"]) + 1
        home = self.home(scenario.node)
        if scenario.what == "kill server" and "mid-round" not in scenario.name:
            self.kill_server()
            return number
        what = "stop after answering" if scenario.what in ("kill server", "restart superlink") else scenario.what
        fault = {"round": number, "step": scenario.step, "what": what, "seconds": 50}
        (home / "fault.json").write_text(json.dumps(fault))
        if "stop" in what:
            self.wait((home / "reached").exists)
            (home / "reached").unlink(missing_ok=True)
            if scenario.what == "kill server":
                self.kill_server()
            elif scenario.what == "restart superlink":
                self.kill("superlink")
                self.federation.start_superlink()
            else:
                time.sleep(3 if "after answering" in what else 0)
                self.kill(f"node-{scenario.node:04d}")
        return number

    def kill(self, name: str) -> None:
        self.federation.processes.kill(name)
        if name.startswith("node-"):
            self.federation.start_node(int(name.removeprefix("node-")))

    def kill_server(self) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                ours = str(self.federation.home).encode() in (process / "environ").read_bytes()
                if ours and b"flwr-serverapp" in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
        time.sleep(1)
        self.run = self.federation.submit(self.out)

    def run_scenario(self, scenario: Scenario) -> dict[str, Any]:
        before = self.attempts()
        number = self.strike(scenario)
        began = time.monotonic()
        completed = self.wait(lambda: any(line["round"] == number for line in self.rounds()))
        waited = time.monotonic() - began
        line: dict[str, Any] = next((line for line in self.rounds() if line["round"] == number), {})
        here = [e for e in self.attempts()[len(before) :] if e.round == number]
        killed = "killed" in scenario.name or scenario.what == "die"
        back = completed and (not killed or self.everybody_is_back())
        return {
            "scenario": scenario.name,
            "outcome": "completed" if completed else "NOT COMPLETED",
            "survivors": line.get("survivors"),
            "attempts": 1 + max((e.attempt for e in here), default=0),
            "paid": sum(e.spent for e in here),
            "seconds": round(waited),
            "back": back,
        }

    def attempts(self) -> list[Entry]:
        file = self.out / "ledger.jsonl"
        return list(Ledger.read(file).entries) if file.exists() else []


def check_ledgers(drill: Drill) -> list[str]:
    """Nothing is under-counted: the server pays for each round at least once, clients for each they were part of."""
    spent: dict[int, int] = {}
    for entry in drill.attempts():
        spent[entry.round] = spent.get(entry.round, 0) + entry.spent
    rounds = [line["round"] for line in drill.rounds()]
    lines = [
        f"rounds run: {len(rounds)}, each once in metrics: {rounds == sorted(set(rounds))}",
        f"rounds without a price in the server's ledger: {sum(spent.get(r, 0) < 1 for r in rounds)}",
    ]
    for node in range(NODES):
        joined = ClientLedger.read(drill.home(node) / "ledger.jsonl").entries
        survived = sum(line["survivors"] == NODES for line in drill.rounds())
        lines.append(
            f"client {node}: {len(joined)} attempts in its own ledger, not fewer than the {survived} rounds with all "
            f"clients: {len(joined) >= survived}"
        )
    return lines


def leaked(drill: Drill) -> list[str]:
    """Private keys of the nodes must not be in any log or in Flower's database."""
    secrets = [(drill.home(n) / "identity.pem").read_text().splitlines()[1].encode() for n in range(NODES)]
    places = [*drill.federation.processes.logs.glob("*"), *(drill.federation.home / "flwr").glob("state.db*")]
    return [place.name for place in places if any(secret in place.read_bytes() for secret in secrets)]


def table(rows: Iterable[dict[str, Any]], notes: Iterable[str]) -> str:
    names = ("fault", "round", "clients in the sum", "attempts", "events paid", "seconds", "all are back")
    head = f"| {' | '.join(names)} |\n{'|---' * len(names)}|\n"
    body = "".join(
        f"| {r['scenario']} | {r['outcome']} | {r['survivors']} of {NODES} | {r['attempts']} | {r['paid']} | "
        f"{r['seconds']} | {'yes' if r['back'] else 'NO'} |\n"
        for r in rows
    )
    return head + body + "\n" + "".join(f"- {note}\n" for note in notes)


def run_lane(chosen: list[Scenario], rows: Path) -> None:
    """Run some scenarios in a federation of their own."""
    config = load_config("demo/fl-cs-dp", SETTINGS, nodes=NODES)
    with tempfile.TemporaryDirectory() as directory:
        home, out = Path(directory) / "home", Path(directory) / "run"
        prepare(home, config)
        (home / "app/preset/faults.py").write_text(FAULTS)
        app = home / "app/preset/client_app.py"
        text = app.read_text().replace('"lowkey.toml"))', '"lowkey.toml"), mods=[fault])')
        app.write_text(text.replace("import client_app", "import client_app\nfrom preset.faults import fault"))
        with local_federation(config, home) as federation:
            drill = Drill(federation, out)
            drill.wait(lambda: len(drill.rounds()) >= 1)
            for scenario in chosen:
                row = drill.run_scenario(scenario)
                print(json.dumps(row), flush=True)
                with rows.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            notes = [*check_ledgers(drill), f"logs and databases with a private key in them: {len(leaked(drill))}"]
    with rows.open("a") as file:
        file.write(json.dumps(notes) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--lanes", type=int, default=3, help="federations side by side")
    parser.add_argument("--lane", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help="file whose table to replace")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave no process behind
    chosen = [scenario for scenario in scenarios() if options.only in scenario.name]
    if options.lane is not None:
        run_lane(chosen[options.lane :: options.lanes], options.rows)
        return
    with tempfile.TemporaryDirectory() as directory, Processes(Path(directory)) as lanes:
        files = [Path(directory) / f"{lane}.jsonl" for lane in range(min(options.lanes, len(chosen)))]
        command = [sys.executable, __file__, "--only", options.only, "--lanes", str(len(files))]
        running = [
            lanes.start(f"lane-{n}", [*command, "--lane", str(n), "--rows", str(file)], os.environ)
            for n, file in enumerate(files)
        ]
        while any(process.poll() is None for process in running):
            time.sleep(1)
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        logs = [(Path(directory) / f"lane-{n}.log").read_text()[-2000:] for n, p in enumerate(running) if p.returncode]
    order = [scenario.name for scenario in chosen]
    rows = sorted((line for line in lines if isinstance(line, dict)), key=lambda r: order.index(r["scenario"]))
    notes = [note for line in lines if isinstance(line, list) for note in line]
    print(result := table(rows, notes), *logs)
    if options.write:
        start, end = "<!-- table -->\n", "<!-- end of table -->"
        page = options.write.read_text(encoding="utf-8")
        before, after = page.split(start)[0], page.split(end)[1]
        options.write.write_text(f"{before}{start}{result}{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
