"""A run on a federation on this machine; it is followed by the files that it writes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lowkey.deployment.local import LocalFederation, local_federation
from lowkey.errors import RunError
from lowkey.experiments import FAILURE_FILE, Config, RunDirectory
from lowkey.protocols import Observer

_LOOK_SECONDS = 0.5
_STATUS_SECONDS = 20.0
_REVIVE_SECONDS = 5.0  # a node that was killed is refused until its old session has expired


def run_locally(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    observers: Sequence[Observer] = (),
    say: Callable[[str], None] = lambda _text: None,
    environment: Mapping[str, str] = {},
) -> dict[str, Any]:
    """Run ``config`` on a federation of real nodes on this machine; everything is kept in ``out``.

    Parameters
    ----------
    config : Config
        From :func:`lowkey.load_config`, for the number of nodes.
    out : Path
        Run directory, as in a simulation; new, or with ``resume`` an existing one.
    observers : sequence of Observer
        Called with the metrics of every round.
    say : callable
        Called with a sentence about each step before the first round.
    environment : mapping of str to str
        More environment variables for the server's app and all nodes.
    """
    if not resume:
        RunDirectory.require_new(out)
    done = RunDirectory.open(out).metrics() if resume else []
    (out / "result.json").unlink(missing_ok=True)
    home = out.with_name(f"{out.name}.flower")
    with local_federation(config, home, say=say, environment=environment) as federation:
        run = federation.submit(out)
        say("waiting for the nodes")
        return follow(federation, run, out, observers, after=done[-1]["round"] if done else 0)


def follow(
    federation: LocalFederation, run: str, out: Path, observers: Sequence[Observer] = (), *, after: int = 0
) -> dict[str, Any]:
    """Watch a run until it has a result; its files say how it ended, and Flower's status when they do not.

    Observers see the rounds after the round ``after``, each once.
    """
    looked, revived = time.monotonic(), time.monotonic()
    while True:
        for metrics in RunDirectory.open(out).metrics() if (out / "config.toml").is_file() else []:
            if metrics["round"] > after:
                after = metrics["round"]
                for observer in observers:
                    observer(metrics)
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
