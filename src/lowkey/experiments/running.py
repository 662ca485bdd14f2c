"""A run in its directory, from the start or from where it stopped, on any runtime."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowkey.errors import ConfigError
from lowkey.experiments.config import Config
from lowkey.experiments.store import RunDirectory
from lowkey.federation import Federation, RoundRecord, RunState, Schedule, Scheme, initial_state
from lowkey.figures import human_epsilon
from lowkey.privacy import Ledger
from lowkey.protocols import Ask, Evaluator, Observer
from lowkey.rng import OSSecrets, Secrets
from lowkey.secagg import VerifyKeys
from lowkey.timing import StageClock
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class ServerParts:
    """What the server of a run needs: scheme, schedule, first weights, and how to evaluate the model."""

    scheme: Scheme
    schedule: Schedule
    evaluator: Evaluator
    initial_weights: FloatArray


@dataclass(frozen=True, kw_only=True)
class Connection:
    """What carries requests to the clients.

    Attributes
    ----------
    ask : Ask
        Carries requests and replies.
    verify_keys : VerifyKeys
        Public keys of the enrolled clients.
    take_figures : function
        Returns figures about messages and clients since the last call, for the metrics.
    """

    ask: Ask
    verify_keys: VerifyKeys
    take_figures: Callable[[], Mapping[str, int]] = dict


Connect = Callable[[RunDirectory, StageClock], AbstractContextManager[Connection]]


def run_in_directory(
    config: Config,
    out: Path,
    parts: ServerParts,
    connect: Connect,
    *,
    resume: bool = False,
    observers: Sequence[Observer] = (),
    started: Callable[[RunState], None] = lambda _state: None,
    secrets: Secrets | None = None,
) -> dict[str, Any]:
    """Run all rounds of ``config`` and keep everything in ``out``.

    Parameters
    ----------
    config : Config
        Must be resolved.
    out : Path
        Run directory; new, or with ``resume`` an existing one, whose settings must agree.
    parts : ServerParts
        Made from ``config`` beforehand, so that bad data or settings leave no half-made run behind.
    connect : function
        Opens the connection to the clients.
    observers : sequence of Observer
        Called after every round.
    started : function
        Called once, when the first round is about to begin.
    secrets : Secrets or None
        For tests only.

    Returns
    -------
    dict
        The summary that ``lowkey run --json`` prints, also kept as result.json.
    """
    began, config = time.perf_counter(), config.complete()
    secrets = secrets or OSSecrets()
    first = initial_state(parts.scheme, parts.initial_weights)
    directory = RunDirectory.open(out) if resume else RunDirectory.create(out, config)
    directory.lock()
    unsaved: RunState | None = None
    try:
        directory.adopt(config)
        directory.forget_end()
        if not secrets.claims_privacy:
            directory.withdraw_claim()
        ledger = directory.ledger()
        state = directory.load_checkpoint(ledger) or first
        _require_spent(config, ledger)
        directory.trim_metrics(state.round)

        def save(after: RunState, record: RoundRecord) -> None:
            nonlocal unsaved
            directory.append_metrics(record)
            unsaved = after
            if after.round % config.runtime.checkpoint_every == 0:
                directory.save_checkpoint(after, ledger)
                unsaved = None

        clock = StageClock()
        with connect(directory, clock) as connection:
            federation = Federation(
                scheme=parts.scheme,
                ask=connection.ask,
                evaluate=parts.evaluator,
                ledger=ledger,
                secrets=secrets,
                clock=clock,
                verify_keys=connection.verify_keys,
                take_figures=connection.take_figures,
                number_attempt=directory.number_attempt,
            )
            started(state)
            state, stopped = federation.run(state, parts.schedule, save=save, observers=observers)
        result = directory.summary() | {"stopped": stopped, "seconds": round(time.perf_counter() - began, 2)}
        directory.write_answers()
        directory.write_result(result)
        return result
    finally:
        if unsaved is not None:  # the end, Ctrl-C or an error between two checkpoints: keep rounds that were paid for
            directory.save_checkpoint(unsaved, ledger)
        directory.unlock()


def _require_spent(config: Config, ledger: Ledger) -> None:
    """Refuse to begin where ``privacy.spent`` is not what the ledger's other runs have cost, or too little for it."""
    privacy = config.privacy
    if privacy is None or not privacy.spent or ledger.events_of(ledger.run):
        return
    from lowkey.privacy import claimed_epsilon

    cost = claimed_epsilon(ledger.events, privacy.delta) if ledger.events else 0.0
    if not 0 < cost <= privacy.spent:
        raise ConfigError(
            f"privacy.spent is {privacy.spent:g}, but the runs in {config.federation.ledger} have cost "
            f"{human_epsilon(cost)}; name their ledger as federation.ledger, and set privacy.spent to what they cost"
        )
