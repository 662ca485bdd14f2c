"""Play a run in its directory, from the start or from where it stopped, whatever carries the messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowkey.experiments.config import Config
from lowkey.experiments.store import RunDirectory
from lowkey.federation import Federation, RoundRecord, RunState, Schedule, Scheme, initial_state
from lowkey.protocols import Ask, Evaluator, Observer
from lowkey.rng import OSSecrets, Secrets
from lowkey.secagg import Directory
from lowkey.timing import StageClock
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class ServerParts:
    """What the server of a run needs: how to learn, for how long, from where, and how to judge the result."""

    scheme: Scheme
    schedule: Schedule
    evaluator: Evaluator
    initial_weights: FloatArray


OpenRuntime = Callable[[RunDirectory, StageClock], AbstractContextManager[tuple[Ask, Directory]]]
"""Opens what carries requests to the clients, and says under which keys they are enrolled."""


def play(
    config: Config,
    out: Path,
    parts: ServerParts,
    open_runtime: OpenRuntime,
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
    parts : made from ``config`` before, so that bad data or settings leave no half-made run behind.
    open_runtime : the clients.
    observers : called after every round.
    started : called once, when the first round is about to begin.
    secrets : for tests only.

    Returns
    -------
    The summary that ``lowkey run --json`` prints, also kept as result.json.
    """
    began = time.perf_counter()
    secrets = secrets or OSSecrets()
    first = initial_state(parts.scheme, parts.initial_weights)
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

        clock = StageClock()
        with open_runtime(directory, clock) as (ask, keys):
            federation = Federation(
                scheme=parts.scheme,
                ask=ask,
                evaluate=parts.evaluator,
                ledger=ledger,
                secrets=secrets,
                clock=clock,
                directory=keys,
                number_attempt=directory.number_attempt,
            )
            started(state)
            state, stopped = federation.run(state, parts.schedule, save=save, observers=observers)
        result = directory.summary() | {"stopped": stopped, "seconds": round(time.perf_counter() - began, 2)}
        directory.write_result(result)
        return result
    finally:
        if unsaved is not None:  # the end, Ctrl-C or an error between two checkpoints: rounds paid for are not lost
            directory.save_checkpoint(unsaved, ledger)
        directory.unlock()
