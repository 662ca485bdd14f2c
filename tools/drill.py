"""A fault drill on real processes: nodes, apps and servers are killed, misbehave and lie, one after the other.

    python tools/drill.py [--only WORD] [--lanes 3] [--write docs/drill.md]

Four clients on loopback learn by a private scheme that tolerates one dropout. Each scenario strikes in a round of its
own; the table says how that round ended. It takes about half an hour: a node that was killed is let in again by Flower
only when its old session has expired. Scenarios are divided among federations that run side by side. The exit code is 1
if a row or a note says that something was lost, under-paid, not refused, or not done in time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowkey.deployment import LocalFederation, Processes, local_federation, prepare
from lowkey.experiments import FAILURE_FILE, RunDirectory, load_config
from lowkey.privacy import ClientLedger, Entry, Ledger

NODES = 4
REVIVE_SECONDS = 10.0
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
"""Faults on demand, from files in the node's home and, for the server, in the home of the federation."""
import copy, json, os, time
from pathlib import Path
from flwr.app import Array, ArrayRecord, ConfigRecord
import numpy as np
from lowkey.federation import Scheme, Survivors
from lowkey.secagg import decode, encode

HEADER = np.lib.format.magic(1, 0) + (118).to_bytes(2, "little")  # of an array in a file


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
    before = copy.deepcopy(context.state)
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
    if what == "set back":
        second_list(message, context, call_next, before, home / "second")
    if what in VECTORS:
        reply.content["vector"] = VECTORS[what]
    return reply


def array(shape, data):
    return ArrayRecord({"vector": Array(dtype="uint8", shape=shape, stype="numpy.ndarray", data=data)})


VECTORS = {
    "wrong length": ArrayRecord({"vector": Array(np.zeros(100, np.uint8))}),
    "no vector in its record": ArrayRecord({"other": Array(np.zeros(100, np.uint8))}),
    "a table instead of a vector": ConfigRecord({"vector": 1}),
    "a header that is not one": array((100,), HEADER + b"(" * 118),
    "a header of 2^62 numbers": array(
        (2**62,), HEADER + b"{'descr': '|u1', 'fortran_order': False, 'shape': (4611686018427387904,), }".ljust(118)
    ),
}


def second_list(message, context, call_next, before, file):
    """A server that has got an old context back asks for the confirmation of another list of survivors."""
    after, request = context.state, message.content.config_records["request"]
    told = request["message"]
    me, survivors = context.node_config["client"], decode(Survivors, told).survivors
    other = next(client for client in survivors if client != me)
    request["message"] = encode(Survivors, Survivors(survivors=tuple(c for c in survivors if c != other)))
    context.state = before
    try:
        call_next(message, context)
        outcome = "CONFIRMED"
    except Exception as error:
        outcome = f"refused: {type(error).__name__}"
    context.state, request["message"] = after, told
    file.with_suffix(".new").write_text(outcome)
    file.with_suffix(".new").replace(file)


def rename_on_demand():
    """At the server: sessions of one attempt get the name of another run, when a file says so."""
    home, session = Path(os.environ["LOWKEY_DRILL"]), Scheme.session

    def renamed(run, number, *rest):
        if (home / "rename").exists():
            (home / "rename").unlink()
            (home / "renamed").write_text(str(number))
            run = f"another-{run}"
        return session(run, number, *rest)

    Scheme.session = staticmethod(renamed)
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
        ("no vector in its record", "Delivery", "sends a record without a vector"),
        ("a table instead of a vector", "Delivery", "sends a table instead of a vector"),
        ("a header that is not one", "Delivery", "sends an array whose header cannot be read"),
        ("a header of 2^62 numbers", "Delivery", "sends an array that says it has 2^62 numbers"),
        ("set back", "Survivors", "whose context is set back is to confirm a second list of survivors"),
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
    yield Scenario("server gives its run another name for one attempt", "rename")
    yield Scenario("a second server takes up the ledger of this one through a link", "link")


class Drill:
    def __init__(self, federation: LocalFederation, out: Path) -> None:
        self.federation, self.out, self.revived = federation, out, 0.0
        self.run = federation.submit(out)

    def rounds(self) -> list[dict[str, Any]]:
        return RunDirectory.open(self.out).metrics() if (self.out / "config.toml").exists() else []

    def wait(self, condition: Callable[[], bool], seconds: float = 400) -> bool:
        """Look until something is the case; nodes that have ended are started again, as a supervisor would.

        Not more often than it does: a node that is refused and started at once takes a core from the others.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if condition():
                return True
            if time.monotonic() > self.revived + REVIVE_SECONDS:
                self.federation.processes.revive("node-")
                self.revived = time.monotonic()
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
        if scenario.what == "rename":
            told = self.federation.home / "renamed"
            (self.federation.home / "rename").touch()
            self.wait(lambda: told.exists() and bool(told.read_text()))
            return int(told.read_text())
        if scenario.what == "link":
            self.second_run()
            return int(self.rounds()[-1]["round"]) + 1
        if scenario.what == "kill server" and "mid-round" not in scenario.name:
            self.kill_server()
            return number
        what = "stop after answering" if scenario.what in ("kill server", "restart superlink") else scenario.what
        fault = {"round": number, "step": scenario.step, "what": what, "seconds": 40}
        (home / "fault.json").write_text(json.dumps(fault))
        if "stop" in what:
            self.wait((home / "reached").exists)
            (home / "reached").unlink(missing_ok=True)
            if scenario.what == "kill server":
                self.kill_server()
            elif scenario.what == "restart superlink":
                self.federation.processes.kill("superlink")
                self.federation.start_superlink()
            else:
                time.sleep(3 if "after answering" in what else 0)
                self.federation.kill_node(scenario.node)
                self.federation.start_node(scenario.node)
        return number

    def second_run(self) -> None:
        """Start another run whose ledger is a link to the one of this run, and wait until it is refused."""
        other = self.out.with_name("second")
        other.mkdir()
        for name in ("config.toml", "environment.json"):
            shutil.copy(self.out / name, other)
        (other / "ledger.jsonl").symlink_to(self.out / "ledger.jsonl")
        run = self.federation.submit(other)
        failure = other / FAILURE_FILE
        self.wait(lambda: failure.exists() or (other / "metrics.jsonl").exists(), 120)
        if failure.exists():
            reason = json.loads(failure.read_text())["error"].rpartition("/")[2]
            self.verdict = f"{'refused' if 'in use' in reason else 'FAILED OTHERWISE'}: {reason}"
        else:
            self.federation.flwr(["stop", run, "local"])

    def kill_server(self) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                ours = str(self.federation.home).encode() in (process / "environ").read_bytes()
                if ours and b"flwr-serverapp" in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
        time.sleep(1)
        self.run = self.federation.submit(self.out)

    def run_scenario(self, scenario: Scenario) -> dict[str, Any]:
        before, self.verdict = self.attempts(), ""
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
            "verdict": self.refusal(scenario),
            "survivors": line.get("survivors"),
            "attempts": 1 + max((e.attempt for e in here), default=0),
            "paid": len(here),
            "seconds": round(waited),
            "back": back,
        }

    def refusal(self, scenario: Scenario) -> str:
        """What was refused, of those faults that must be; empty for others."""
        match scenario.what:
            case "set back":
                second = self.home(scenario.node) / "second"
                return second.read_text() if second.exists() else "NOT TRIED"
            case "rename":
                joined = [e.run for n in range(NODES) for e in self.joined(n) if e.run.startswith("another-")]
                return f"JOINED BY {len(joined)} CLIENTS" if joined else "refused by all clients"
            case "link":
                return self.verdict or "SECOND RUN NOT REFUSED"
        return ""

    def joined(self, node: int) -> Sequence[Any]:
        """Attempts in a client's own ledger."""
        return ClientLedger.read(self.home(node) / "ledger.jsonl").entries

    def attempts(self) -> list[Entry]:
        file = self.out / "ledger.jsonl"
        return list(Ledger.read(file).entries) if file.exists() else []


def check_ledgers(drill: Drill) -> list[str]:
    """Nothing is under-counted: the server pays for each round at least once, clients for each they were part of."""
    spent: dict[int, int] = {}
    for entry in drill.attempts():
        spent[entry.round] = spent.get(entry.round, 0) + 1
    rounds = [line["round"] for line in drill.rounds()]
    lines = [
        f"rounds run: {len(rounds)}, each once in metrics: {rounds == sorted(set(rounds))}",
        f"rounds without a price in the server's ledger: {sum(spent.get(r, 0) < 1 for r in rounds)}",
    ]
    for node in range(NODES):
        joined = drill.joined(node)
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
    names = ("fault", "round", "refusal", "clients in the sum", "attempts", "events paid", "seconds", "all are back")
    head = f"| {' | '.join(names)} |\n{'|---' * len(names)}|\n"
    body = "".join(
        f"| {r['scenario']} | {r['outcome']} | {r['verdict']} | {r['survivors']} of {NODES} | {r['attempts']} | "
        f"{r['paid']} | {r['seconds']} | {'yes' if r['back'] else 'NO'} |\n"
        for r in rows
    )
    return head + body + "\n" + "".join(f"- {note}\n" for note in notes)


def is_good(found: dict[str, Any] | str) -> bool:
    """Whether a round was completed, all came back and what must be refused was refused; or a note says so."""
    if isinstance(found, str):
        return found.endswith(("True", ": 0"))
    refused = found["verdict"] == "" or "refused" in found["verdict"]
    return found["outcome"] == "completed" and found["back"] and refused


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
        server = home / "app/preset/server_app.py"
        server.write_text(f"{server.read_text()}\nfrom preset.faults import rename_on_demand\nrename_on_demand()\n")
        with local_federation(config, home, environment={"LOWKEY_DRILL": str(home)}) as federation:
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
    parser.add_argument("--minutes", type=float, default=60, help="what is not done by then counts as hanging")
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
        deadline = time.monotonic() + 60 * options.minutes
        while any(process.poll() is None for process in running) and time.monotonic() < deadline:
            time.sleep(1)
        lines = [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]
        logs = [(Path(directory) / f"lane-{n}.log").read_text()[-2000:] for n, p in enumerate(running) if p.poll() != 0]
    order = [scenario.name for scenario in chosen]
    rows = sorted((line for line in lines if isinstance(line, dict)), key=lambda r: order.index(r["scenario"]))
    notes = [note for line in lines if isinstance(line, list) for note in line]
    print(result := table(rows, notes), *logs)
    if options.write:
        start, end = "<!-- table -->\n", "<!-- end of table -->"
        page = options.write.read_text(encoding="utf-8")
        before, after = page.split(start)[0], page.split(end)[1]
        options.write.write_text(f"{before}{start}{result}{end}{after}", encoding="utf-8")
    sys.exit(bool(logs) or len(rows) < len(chosen) or not all(map(is_good, [*rows, *notes])))


if __name__ == "__main__":
    main()
