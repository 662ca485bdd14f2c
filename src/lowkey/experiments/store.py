"""The run directory: configuration, environment, metrics, ledger and checkpoints. No file is ever seen half-written.

config.toml  environment.json  attempt.json  metrics.jsonl  ledger.jsonl  checkpoint-000042.safetensors  result.json
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lowkey.durable import Lock, read_table, replace_file
from lowkey.errors import InUse, InvalidInput, RunError
from lowkey.experiments.checkpoints import Checkpoint, DamagedCheckpointError, pack, unpack
from lowkey.experiments.config import Config, parse
from lowkey.experiments.nested import read
from lowkey.experiments.scores import evaluated_rounds
from lowkey.experiments.tables import to_record
from lowkey.federation import RoundRecord, RunState
from lowkey.privacy import Ledger
from lowkey.tasks import TASKS, Presentation

FAILURE_FILE = "failure.json"
ENCODER = "encoder"
"""Directory, in that of a run, of the run that asked what had to be known before."""
_KEPT_CHECKPOINTS = 2
_PACKAGES = ("lowkey", "numpy", "scipy", "torch", "dp-accounting", "cryptography", "safetensors")
_FREE_TO_CHANGE = (
    "federation.min_clients",
    "schedule",
    "runtime",
    "deployment",
    "paper",
    "name",
    "privacy.epsilon",
    "privacy.rounds",
    "privacy.spare_attempts",
    "privacy.max_contributions",
    "privacy.aggregation",
)


class RunDirectory:
    """One run on disk, made by :meth:`create` or opened by :meth:`open`."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path, self.config = path, config
        self._lock: Lock | None = None
        self._ledger: Ledger | None = None

    @classmethod
    def create(cls, path: Path, config: Config) -> RunDirectory:
        """Start a new run in an empty or missing directory."""
        cls.require_new(path)
        path.mkdir(parents=True, exist_ok=True)
        replace_file(path / "environment.json", json.dumps(_environment(config), indent=2).encode())
        replace_file(path / "config.toml", config.to_toml().encode())
        return cls(path, config)

    @staticmethod
    def require_new(path: Path) -> None:
        """Refuse a directory that is not empty, unless it only has what was asked before the run."""
        if _is_run(path / ENCODER) and not _is_run(path):
            return
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            hint = "add --resume to continue it, or choose another --out" if _is_run(path) else "choose another --out"
            raise RunError(f"{path} exists and is not empty; {hint}")

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open an existing run."""
        if not _is_run(path):
            raise RunError(f"{path} is not a run directory (it has no config.toml); check the path")
        return cls(path, parse(read(path / "config.toml")))

    def adopt(self, config: Config) -> None:
        """Continue with a changed configuration, if all results and promises so far stay true."""
        old, new = _fixed_settings(self.config), _fixed_settings(config)
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                raise RunError(
                    f"{self.path} was started with another {key} ({old.get(key)}, now {new.get(key)}); resume it with "
                    "its own settings, or start a new run with another --out"
                )
        started, now = self.features, config.features()
        if started is not None and started != now:
            raise RunError(
                f"{self.path} was started with the features '{started}', now they are '{now}'; resume it with its own "
                "feature map, or start a new run with another --out"
            )
        before, after = (c.privacy.max_contributions if c.privacy else None for c in (self.config, config))
        if after not in (before, "unlimited") and (before == "unlimited" or int(after or 0) < int(before or 0)):
            raise RunError(
                f"{self.path} was started with privacy.max_contributions = {before}, now it is {after}; a limit cannot "
                "be lowered later, since clients may have contributed more often already"
            )
        if config != self.config:
            replace_file(self.path / "config.toml", config.to_toml().encode())
        self.config = config

    def lock(self) -> None:
        """Make sure that no other process works on this run, until :meth:`unlock` or the end of this process."""
        self._lock = Lock(self.path / "lock", of=self.path)
        for partial in self.path.glob(".*.partial"):  # of a process that was killed while it wrote
            partial.unlink()

    def unlock(self) -> None:
        for held in (self._ledger, self._lock):
            if held is not None:
                held.close()
        self._ledger = self._lock = None

    def ledger(self) -> Ledger:
        """The record of what this run spends, open for writing until :meth:`unlock`."""
        if self._ledger is None:
            run = self._environment().get("run")
            if run is None:
                raise RunError(f"{self.path} was made by an earlier version of Lowkey; continue it with that version")
            self._ledger = Ledger(None, run=run) if self.config.privacy is None else self._open_ledger(run)
        return self._ledger

    def _open_ledger(self, run: str) -> Ledger:
        """The ledger on disk; the first one that this run opens, and no other."""
        path, known = self._ledger_file, self._environment().get("ledger")
        if known is not None and not path.exists():
            raise RunError(f"{path}, the ledger of {self.path}, is missing; restore it: what it recorded was spent")
        ledger = Ledger(path, run=run)
        if known is None:
            self._note(ledger=ledger.identity)
        elif ledger.identity != known:
            ledger.close()
            raise RunError(
                f"{path} is another ledger than the one that {self.path} began with; restore that one: what it "
                "recorded was spent"
            )
        return ledger

    @property
    def _ledger_file(self) -> Path:
        shared = self.config.federation.ledger
        return Path(shared) if shared else self.path / "ledger.jsonl"

    @property
    def claims_privacy(self) -> bool:
        """False for runs whose secrets were replayed at any time: their ε means nothing."""
        return bool(self._environment()["claims_privacy"])

    @property
    def features(self) -> str | None:
        """The public feature map that makes the model's inputs, in words; None for runs of earlier releases."""
        text = self._environment().get("features")
        return None if text is None else str(text)

    def presentation(self) -> Presentation:
        """How the run is judged and shown; of a task in a module of yours as noted in the run: nothing is imported."""
        if self.config.task in TASKS:
            return TASKS[self.config.task].presentation
        return to_record("presentation", Presentation, self._environment().get("presentation"))

    def withdraw_claim(self) -> None:
        """Record, permanently, that secrets of this run were replayed."""
        self._note(claims_privacy=False)

    def _note(self, **facts: Any) -> None:
        changed = self._environment() | facts
        replace_file(self.path / "environment.json", json.dumps(changed, indent=2).encode())

    def _environment(self) -> dict[str, Any]:
        return _table(self.path / "environment.json", claims_privacy=bool)

    def number_attempt(self, round_number: int) -> int:
        """The first number, from 0, that no attempt at this round has had; on return it is taken.

        The ledger knows the attempts that asked for vectors; clients also remember attempts that failed before.
        """
        file, taken = self.path / "attempt.json", -1
        if file.exists():
            last = _table(file, round=int, attempt=int)
            taken = last["attempt"] if last["round"] == round_number else -1
        attempt = max(taken + 1, self.ledger().next_attempt(round_number))
        replace_file(file, json.dumps({"round": round_number, "attempt": attempt}).encode())
        return attempt

    def append_metrics(self, record: RoundRecord) -> None:
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record.to_json()) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All rounds so far; a last line that is still being written is left out."""
        file = self.path / "metrics.jsonl"
        if not file.exists():
            return []
        try:
            metrics = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]]
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(f"{file} is damaged ({error}); restore it from a copy") from error
        if not all(isinstance(line, dict) and type(line.get("round")) is int for line in metrics):
            raise RunError(f"{file} is damaged (a line is no round); restore it from a copy")
        return metrics

    def trim_metrics(self, last_round: int) -> None:
        """Forget rounds that no checkpoint remembers: they will be run again."""
        kept = [m for m in self.metrics() if m["round"] <= last_round]
        replace_file(self.path / "metrics.jsonl", "".join(json.dumps(m) + "\n" for m in kept).encode())

    def summary(self) -> dict[str, Any]:
        """The figures of the run so far, only from its metrics.

        Best and final values are those of the scores by which the run is judged, all from the same round.
        """
        metrics, scores = self.metrics(), self.presentation().scores
        last = metrics[-1] if metrics else {}
        if self.config.only_asks:
            return {"preset": self.config.name, "rounds": last.get("round", 0), **_spent(last)}
        learned = [line for line in metrics if "answer" not in line] or [last]
        evaluated = evaluated_rounds(metrics, scores) or [{}]
        names = [score.name for score in scores]
        highest = scores[0].best(line.get(names[0], 0.0) for line in evaluated)
        best = next(line for line in evaluated if line.get(names[0], 0.0) == highest)
        return {
            "preset": self.config.name,
            "rounds": last.get("round", 0),
            **{f"best_{name}": best.get(name) for name in names},
            "best_round": best.get("round"),
            **{f"final_{name}": evaluated[-1].get(name) for name in names},
            **_by_clients(evaluated[-1], names),
            **_spent(last),
            "bytes_up_per_client": learned[-1].get("bytes_up_per_client"),
        }

    def answers(self) -> list[dict[str, Any]]:
        """What clients have answered, in the order of the questions."""
        return [{"round": line["round"], **line["answer"]} for line in self.metrics() if "answer" in line]

    def price(self, *others: RunDirectory) -> dict[str, Any]:
        """What this run has cost, with these others on its ledger if there are any: the settings of a ``tabular.Cost``.

        ε is None where none is promised: without privacy, or if secrets were replayed.

        Raises
        ------
        RunError
            If another run has a ledger of its own: nobody can know what both cost together.
        """
        from lowkey.privacy import claimed_epsilon

        privacy, known = self.config.privacy, self._environment()
        runs = [known["run"], *(other._environment()["run"] for other in others)]
        found: dict[str, Any] = {"epsilon": None, "delta": None, "run": ", ".join(runs)}
        if any(other._environment().get("ledger") != known.get("ledger") for other in others):
            raise RunError(
                "these runs have ledgers of their own, so that nobody knows what they cost together; ask again with "
                "one federation.ledger for all"
            )
        if privacy is None:
            return found
        with Ledger.read(self._ledger_file) as ledger:
            events = [event for run in runs for event in ledger.events_of(run)]
        if events and self.claims_privacy and all(other.claims_privacy for other in others):
            found |= {"epsilon": claimed_epsilon(events, privacy.delta), "delta": privacy.delta}
        return found | {"unit": privacy.protected, "ledger": known.get("ledger")}

    def write_answers(self) -> None:
        """Keep what clients have answered, if they were asked anything, as answers.json."""
        if answers := self.answers():
            replace_file(self.path / "answers.json", json.dumps(answers, indent=1, ensure_ascii=False).encode())

    def state(self) -> str:
        """The state of the run in words: running, finished, failed or stopped."""
        try:
            Lock(self.path / "lock", of=self.path).close()
        except InUse:
            return "running"
        if (self.path / "result.json").exists():
            return "finished"
        failure = self.path / FAILURE_FILE
        return f"failed: {_table(failure, error=str)['error']}" if failure.exists() else "stopped"

    def forget_end(self) -> None:
        """The run goes on: how an earlier part of it ended is no longer true."""
        for name in (FAILURE_FILE, "result.json"):
            (self.path / name).unlink(missing_ok=True)

    def write_failure(self, reason: str) -> None:
        """Write down the error that ended a run, for a run that nobody watches."""
        replace_file(self.path / FAILURE_FILE, json.dumps({"error": reason}).encode())

    def write_result(self, result: dict[str, Any]) -> None:
        replace_file(self.path / "result.json", (json.dumps(result) + "\n").encode())

    def save_checkpoint(self, state: RunState, ledger: Ledger) -> None:
        """Make a state durable, in one file that appears whole or not at all; remove all older files but the last."""
        content = pack(Checkpoint(state, ledger.head, self._fingerprint()))
        replace_file(self.path / f"checkpoint-{state.round:06d}.safetensors", content)
        for old in self._checkpoints()[:-_KEPT_CHECKPOINTS]:
            old.unlink()

    def load_checkpoint(self, ledger: Ledger) -> RunState | None:
        """The newest state; None when no round was finished yet."""
        checkpoints = self._checkpoints()
        if not checkpoints:
            return None
        newest = checkpoints[-1]
        try:
            found = unpack(newest)
        except DamagedCheckpointError as error:
            fallback = f"; remove it to resume from {checkpoints[-2].name}" if len(checkpoints) > 1 else ""
            raise RunError(f"{newest} is damaged ({error}){fallback}") from error
        if found.settings != self._fingerprint():
            raise RunError(f"{newest} belongs to another configuration; restore the config.toml that it was made with")
        if not ledger.knows(found.ledger_head):
            raise RunError(
                f"{newest} knows more private rounds than its ledger, or others; restore the ledger: what it lost "
                "was spent"
            )
        return found.state

    def _checkpoints(self) -> list[Path]:
        return sorted(self.path.glob("checkpoint-*.safetensors"))

    def _fingerprint(self) -> str:
        """Hash of every setting that must not change between start and resume."""
        return hashlib.sha256(json.dumps(_fixed_settings(self.config), sort_keys=True).encode()).hexdigest()[:16]


def _spent(line: Mapping[str, Any]) -> dict[str, Any]:
    kinds = ("paper", "rdp", "pld", "server", "server_limit")
    return {f"epsilon_{kind}": line.get(f"epsilon_{kind}") for kind in kinds}


def _by_clients(line: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Of an evaluation by clients: the interval of each score, and what the server's own test data says."""
    found: dict[str, Any] = {}
    for name in names:
        if f"{name}_low" in line:
            found[f"final_{name}_interval"] = [line[f"{name}_low"], line[f"{name}_high"]]
            if f"{name}_server" in line:
                found[f"final_{name}_server"] = line[f"{name}_server"]
    return found


def _table(path: Path, **needed: type) -> dict[str, Any]:
    try:
        return read_table(path, **needed)
    except InvalidInput as error:
        raise RunError(f"{error}; restore it from a copy") from error


def _is_run(path: Path) -> bool:
    return (path / "config.toml").is_file()


def _fixed_settings(config: Config) -> dict[str, Any]:
    """Dotted settings on which results and promises rest."""
    flat = _flatten(config.to_table())
    return {k: v for k, v in flat.items() if not any(k == free or k.startswith(f"{free}.") for free in _FREE_TO_CHANGE)}


def _flatten(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _environment(config: Config) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": dict(_versions(_PACKAGES)),
        "claims_privacy": True,
        "run": f"{config.name}/{secrets.token_hex(8)}",  # clients take part in runs of the app that they approved
        "presentation": asdict(config.find_task().presentation),
        "features": config.features(),
    }


def _versions(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    for name in names:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            yield name, "not installed"
