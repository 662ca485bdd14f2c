"""Run a configured experiment in a run directory, from the start or from where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lowkey.experiments import Config, RunDirectory
from lowkey.experiments.build import build
from lowkey.federation import Federation, RoundRecord, RunState, initial_state
from lowkey.protocols import Observer
from lowkey.rng import OSSecrets, Secrets
from lowkey.simulation.keys import SimulatedKeys
from lowkey.simulation.memory import Memory
from lowkey.simulation.runtime import open_runtime
from lowkey.timing import StageClock


def run_experiment(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    observers: Sequence[Observer] = (),
    started: Callable[[RunState], None] = lambda _state: None,
    secrets: Secrets | None = None,
) -> dict[str, Any]:
    """Play all rounds of ``config`` and keep everything in ``out``.

    Parameters
    ----------
    config : must be resolved.
    out : run directory; new, or with ``resume`` an existing one, whose settings must agree.
    observers : called after every round.
    started : called once, when data is loaded and the first round is about to begin.
    secrets : for tests only.

    Returns
    -------
    The summary that ``lowkey run --json`` prints, also kept as result.json.
    """
    began = time.perf_counter()
    secrets = secrets or OSSecrets()
    experiment = build(config)  # before anything is written: bad data or settings leave no half-made run behind
    first = initial_state(experiment.scheme, experiment.initial_weights)
    directory = RunDirectory.open(out) if resume else RunDirectory.create(out, config)
    directory.lock()
    unsaved: RunState | None = None
    try:
        directory.adopt(config)
        if not secrets.claims_privacy:
            directory.withdraw_claim()
        ledger = directory.ledger()
        state = directory.load_checkpoint(ledger) or first
        directory.trim_metrics(state.round)

        def save(after: RunState, record: RoundRecord) -> None:
            nonlocal unsaved
            directory.append_metrics(record)
            unsaved = after
            if after.round % config.runtime.checkpoint_every == 0:
                directory.save_checkpoint(after, ledger)
                unsaved = None

        clock, keys = StageClock(), SimulatedKeys(config.data.clients, secrets)
        with open_runtime(
            scheme=experiment.scheme,
            trainer=experiment.trainer,
            secrets=secrets,
            clock=clock,
            workers=config.runtime.workers,
            device=config.runtime.device,
            memory=Memory(directory.path / "clients.json" if experiment.scheme.private else None),
            keys=keys,
        ) as ask:
            federation = Federation(
                scheme=experiment.scheme,
                ask=ask,
                evaluate=experiment.evaluator,
                ledger=ledger,
                secrets=secrets,
                clock=clock,
                directory=keys.directory,
            )
            started(state)
            state, stopped = federation.run(state, experiment.schedule, save=save, observers=observers)
        result = directory.summary() | {"stopped": stopped, "seconds": round(time.perf_counter() - began, 2)}
        directory.write_result(result)
        return result
    finally:
        if unsaved is not None:  # the end, Ctrl-C or an error between two checkpoints: rounds paid for are not lost
            directory.save_checkpoint(unsaved, ledger)
        directory.unlock()
