"""From the first round to the last: budget, round, evaluation, record, checkpoint."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lowkey import checks
from lowkey import privacy as accounting
from lowkey.errors import BudgetExhausted, RoundFailed
from lowkey.federation.records import RoundOutcome, RoundRecord, RunState
from lowkey.federation.round import drive, round_flow
from lowkey.federation.schemes import Scheme
from lowkey.privacy import ClientLevelPrivacy, Ledger
from lowkey.protocols import Ask, Evaluator, Observer
from lowkey.rng import OSSecrets, Secrets
from lowkey.secagg import Directory
from lowkey.timing import StageClock
from lowkey.types import Evaluation

_log = logging.getLogger(__name__)

StoppedBy = Literal["rounds", "privacy target"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long to go on.

    Parameters
    ----------
    rounds : last round.
    target_epsilon : do not start a round after which the claimed ε (PLD) would pass this; None for no limit.
    evaluate_every : rounds between evaluations; the last round is always evaluated.
    attempts : how often a round that failed (too few survivors) is tried before the run stops.
    """

    rounds: int
    target_epsilon: float | None = None
    evaluate_every: int = 1
    attempts: int = 3

    def __post_init__(self) -> None:
        checks.at_least("federation.rounds", self.rounds, 1)
        checks.at_least("evaluation.every", self.evaluate_every, 1)
        checks.at_least("federation.attempts", self.attempts, 1)
        if self.target_epsilon is not None:
            checks.positive("privacy.target_epsilon", self.target_epsilon)


@dataclass(frozen=True, kw_only=True)
class Federation:
    """All that a run needs besides its state.

    ``number_attempt`` gives the next attempt at a round a number that no client has heard before, also after a crash;
    by default it is what the ledger knows. ``take_traffic`` gives the figures of a round's
    messages, where they are real.
    """

    scheme: Scheme
    ask: Ask
    evaluate: Evaluator
    ledger: Ledger = field(default_factory=lambda: Ledger(None, run="in memory"))
    secrets: Secrets = field(default_factory=OSSecrets)
    clock: StageClock = field(default_factory=StageClock)
    directory: Directory = field(default_factory=dict, repr=False)
    number_attempt: Callable[[int], int] | None = None
    take_traffic: Callable[[], Mapping[str, int]] = dict

    def run(
        self,
        state: RunState,
        schedule: Schedule,
        *,
        save: Callable[[RunState, RoundRecord], None] = lambda _state, _record: None,
        observers: Sequence[Observer] = (),
    ) -> tuple[RunState, StoppedBy]:
        """Play rounds until the schedule or the privacy target ends them.

        ``save`` is called after every round, before the observers, and must make the round durable.
        """
        while state.round < schedule.rounds:
            if self._next_round_passes(schedule.target_epsilon):
                if state.round == 0:
                    raise BudgetExhausted(
                        f"already the first round would pass privacy.target_epsilon = {schedule.target_epsilon}; raise "
                        "the noise multiplier or the target ('lowkey privacy calibrate' finds the noise)"
                    )
                return state, "privacy target"
            state, record = self._play(state, schedule)
            save(state, record)
            for observer in observers:
                observer(record)
        return state, "rounds"

    def _play(self, state: RunState, schedule: Schedule) -> tuple[RunState, RoundRecord]:
        started = time.perf_counter()
        outcome = self._try(state, schedule)
        with self.clock.stage("account"):
            spent = self.epsilon()
            last = outcome.state.round == schedule.rounds or self._next_round_passes(schedule.target_epsilon)
        evaluation: Evaluation = {}
        if last or outcome.state.round % schedule.evaluate_every == 0:
            with self.clock.stage("evaluate"):
                evaluation = self.evaluate(outcome.state.weights)
        seconds = self.clock.take() | {"round": time.perf_counter() - started}
        record = RoundRecord(
            outcome=outcome,
            evaluation=evaluation,
            epsilon=spent,
            server_epsilon=self.server_epsilon() if spent else None,
            seconds=seconds,
            traffic=self.take_traffic(),
        )
        return outcome.state, record

    def _try(self, state: RunState, schedule: Schedule) -> RoundOutcome:
        """Play one round; after a failure with a new cohort, new keys and new noise, as often as the schedule says."""
        attempt = -1
        for tries_left in reversed(range(schedule.attempts)):
            attempt = max(attempt + 1, (self.number_attempt or self.ledger.next_attempt)(state.round + 1))
            flow = round_flow(
                self.scheme, state, attempt=attempt, secrets=self.secrets, ledger=self.ledger, clock=self.clock,
                directory=self.directory,
            )  # fmt: skip
            try:
                return drive(flow, self.ask)
            except RoundFailed as error:
                if tries_left == 0 or self._next_round_passes(schedule.target_epsilon):
                    raise
                _log.warning("round %d, attempt %d failed: %s", state.round + 1, attempt, error)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def epsilon(self) -> accounting.Epsilon | None:
        """What has been spent so far; None where no finite ε is true (no privacy, no noise, replayed secrets)."""
        privacy = self.scheme.privacy
        if not isinstance(privacy, ClientLevelPrivacy) or privacy.event() is None or not self.secrets.claims_privacy:
            return None
        return accounting.epsilon(self.ledger.events, privacy.delta)

    def server_epsilon(self) -> float | None:
        """What the server, or anybody else who knows the rosters, may have learned of a client that was always asked.

        A client that keeps to its limit of contributions is asked no more often than that in this run.
        """
        privacy = self.scheme.privacy
        if not isinstance(privacy, ClientLevelPrivacy) or privacy.event() is None:
            return None
        own = self.ledger.events_of(self.ledger.run)
        others = [entry.event for entry in self.ledger.entries if entry.spent and entry.run != self.ledger.run]
        return accounting.server_view([*others, *own[: privacy.max_contributions]], privacy.delta)

    def _next_round_passes(self, target: float | None) -> bool:
        privacy = self.scheme.privacy
        if target is None or not isinstance(privacy, ClientLevelPrivacy):
            return False
        event = privacy.event()
        return event is None or accounting.claimed_epsilon([*self.ledger.events, event], privacy.delta) > target
