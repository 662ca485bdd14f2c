"""Play a run in its directory, from the start or from where it stopped, whatever carries the messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
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


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """What carries requests to the clients.

    Attributes
    ----------
    ask : carries them.
    directory : under which keys the clients are enrolled.
    take_traffic : figures of the messages since the last call, where they are real.
    """

    ask: Ask
    directory: Directory
    take_traffic: Callable[[], Mapping[str, int]] = dict


OpenRuntime = Callable[[RunDirectory, StageClock], AbstractContextManager[Runtime]]


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
        with open_runtime(directory, clock) as runtime:
            federation = Federation(
                scheme=parts.scheme,
                ask=runtime.ask,
                evaluate=parts.evaluator,
                ledger=ledger,
                secrets=secrets,
                clock=clock,
                directory=runtime.directory,
                take_traffic=runtime.take_traffic,
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
