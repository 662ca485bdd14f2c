"""From the first round to the last: budget, round, evaluation, record, checkpoint."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from lowkey import checks
from lowkey import privacy as accounting
from lowkey.errors import BudgetExhausted, InvalidInput, RoundFailed
from lowkey.federation.costs import events_at_limit
from lowkey.federation.records import RoundOutcome, RoundRecord, RunState
from lowkey.federation.round import drive, released_model, round_flow
from lowkey.federation.schemes import Scheme
from lowkey.privacy import Ledger
from lowkey.protocols import Ask, Evaluator, Observer
from lowkey.rng import OSSecrets, Secrets
from lowkey.secagg import VerifyKeys
from lowkey.timing import StageClock
from lowkey.types import Evaluation, FloatArray

_log = logging.getLogger(__name__)

StoppedBy = Literal["rounds", "privacy target", "evaluation"]


def no_evaluation(weights: FloatArray) -> Evaluation:  # noqa: ARG001
    """For runs without test data: they have no metrics of the model."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How many rounds to run, and how.

    Parameters
    ----------
    rounds : int or "auto"
        Number of rounds that learn, with those for a centre and for calibration; questions have rounds of their own. A
        run also stops before a round that would exceed the target ε. "auto", in a configuration, means as many rounds
        as the target allows; where the noise is "auto", too, as many as the rule for private heads says. With 0 only
        questions are asked.
    calibration : int
        How many of the rounds, the last ones, fit slope and intercept of a head that states risks.
    evaluate_every : int
        Rounds between evaluations; the last round is always evaluated.
    patience : int
        After how many evaluations by clients that found no better AUROC learning ends; 0 for never.
    attempts : int
        How often a round is tried, when it fails for too few survivors, before the run stops. Attempts that asked for
        vectors are paid for; see ``ClientPrivacy.spare_attempts``.
    """

    rounds: int | Literal["auto"] = 200
    calibration: int = 0
    evaluate_every: int = 1
    patience: int = 0
    attempts: int = 3

    def __post_init__(self) -> None:
        if self.rounds != "auto":
            checks.at_least("schedule.rounds", self.rounds, 0)
        checks.at_least("schedule.calibration", self.calibration, 0)
        checks.at_least("schedule.evaluate_every", self.evaluate_every, 1)
        checks.at_least("schedule.patience", self.patience, 0)
        checks.at_least("schedule.attempts", self.attempts, 1)

    @property
    def last_round(self) -> int:
        if self.rounds == "auto":
            raise InvalidInput("schedule.rounds is 'auto'; resolve the configuration first")
        return self.rounds


@dataclass(frozen=True, kw_only=True)
class Federation:
    """All that a run needs besides its state.

    ``number_attempt`` gives the next attempt at a round a number that no client has heard before, also after a crash;
    by default the ledger numbers them. ``take_figures`` gives what the runtime can tell about a round.
    """

    scheme: Scheme
    ask: Ask
    evaluate: Evaluator = no_evaluation
    ledger: Ledger = field(default_factory=lambda: Ledger(None, run="in memory"))
    secrets: Secrets = field(default_factory=OSSecrets)
    clock: StageClock = field(default_factory=StageClock)
    verify_keys: VerifyKeys = field(default_factory=dict, repr=False)
    number_attempt: Callable[[int], int] | None = None
    take_figures: Callable[[], Mapping[str, int]] = dict

    def run(
        self,
        state: RunState,
        schedule: Schedule,
        *,
        save: Callable[[RunState, RoundRecord], None] = lambda _state, _record: None,
        observers: Sequence[Observer] = (),
    ) -> tuple[RunState, StoppedBy]:
        """Run rounds until the schedule or the privacy target ends them.

        ``save`` is called after every round, before the observers, and must make the round durable.
        """
        last_round = schedule.last_round + len(self.scheme.asked)
        while state.round < last_round:
            if self._passes(state.round + 1):
                if state.round == 0:
                    raise BudgetExhausted(
                        f"even the first round would exceed privacy.epsilon = {self.scheme.privacy.epsilon}; raise "
                        "the noise multiplier or the target ('lowkey privacy calibrate' finds the noise)"
                    )
                return state, "privacy target"
            state, record = self._run_round(state, schedule, last_round)
            save(state, record)
            for observer in observers:
                observer(record.to_json())
            if schedule.patience and self._is_no_better(state, schedule.patience):
                left = range(state.round + 1, last_round + 1)
                calibrates = [number for number in left if self.scheme.at(number).purpose == "calibrate"]
                if not calibrates:
                    return state, "evaluation"
                state = replace(state, round=calibrates[0] - 1, evaluated={})  # learning ends here
        return state, "rounds"

    def _is_no_better(self, state: RunState, patience: int) -> bool:
        """Whether this round has found that the best evaluation by clients is ``patience`` evaluations ago."""
        values = state.evaluated.get("values")
        if values is None or self.scheme.at(state.round).purpose != "ask":
            return False
        return len(values) - 1 - int(np.argmax(values)) >= patience

    def _run_round(self, state: RunState, schedule: Schedule, last_round: int) -> tuple[RunState, RoundRecord]:
        started = time.perf_counter()
        outcome = self._try(state, schedule)
        with self.clock.stage("account"):
            spent = self.epsilon()
            last = outcome.state.round == last_round or self._passes(outcome.state.round + 1)
        evaluation = self._evaluated(outcome, due=last or outcome.state.round % schedule.evaluate_every == 0)
        seconds = self.clock.take() | {"round": time.perf_counter() - started}
        record = RoundRecord(
            outcome=outcome,
            evaluation=evaluation,
            epsilon=spent,
            server_epsilon=self.server_epsilon() if spent else None,
            server_epsilon_limit=self.server_epsilon_limit() if spent else None,
            seconds=seconds,
            runtime=self.take_figures(),
        )
        return outcome.state, record

    def _evaluated(self, outcome: RoundOutcome, *, due: bool) -> Evaluation:
        """Metrics of the model: what the server's test data says, or what clients found, and that beside."""
        asked = self.scheme.at(outcome.state.round)
        if asked.question is None and (self.scheme.evaluated_by_clients or not due):
            return {}
        if asked.question is not None and not asked.evaluated_by_clients:
            return {}
        with self.clock.stage("evaluate"):
            found = self.evaluate(released_model(self.scheme, outcome.state))
        if outcome.answer is None:
            return found
        estimates = outcome.answer.estimates.items()
        return {
            **{name: estimate.value for name, estimate in estimates},
            **{f"{name}_low": estimate.low for name, estimate in estimates},
            **{f"{name}_high": estimate.high for name, estimate in estimates},
            **{f"{name}_server": value for name, value in found.items()},
        }

    def _try(self, state: RunState, schedule: Schedule) -> RoundOutcome:
        """Try one round as often as the schedule says; every try has a new cohort, new keys and new noise."""
        attempt = -1
        for tries_left in reversed(range(schedule.attempts)):
            attempt = max(attempt + 1, (self.number_attempt or self.ledger.next_attempt)(state.round + 1))
            flow = round_flow(
                self.scheme, state, attempt=attempt, secrets=self.secrets, ledger=self.ledger, clock=self.clock,
                verify_keys=self.verify_keys,
            )  # fmt: skip
            try:
                return drive(flow, self.ask)
            except RoundFailed as error:
                if self._passes(state.round + 1):
                    raise RoundFailed(
                        f"{error}; and privacy.epsilon = {self.scheme.privacy.epsilon} leaves no room for another "
                        "attempt: failed ones are paid for, and privacy.spare_attempts is how many a plan reserves"
                    ) from error
                if tries_left == 0:
                    raise
                _log.warning("round %d, attempt %d failed: %s", state.round + 1, attempt, error)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def epsilon(self) -> accounting.Epsilon | None:
        """What has been spent so far; None where no finite ε is true (no privacy, no noise, replayed secrets)."""
        privacy = self.scheme.privacy
        if privacy.event() is None or not self.secrets.claims_privacy:
            return None
        return accounting.released_epsilon(self.ledger.events, privacy.delta)

    def server_epsilon(self) -> float | None:
        """What the server, or anyone else who knows the rosters, may have learned about a client that was always asked.

        Every attempt that asked for vectors counts, but no more of this run than the client's limit of contributions.
        """
        privacy = self.scheme.privacy
        if privacy.event() is None:
            return None
        own = self.ledger.events_of(self.ledger.run)
        return accounting.server_view([*self._of_other_runs(), *own[: privacy.max_contributions]], privacy.delta)

    def server_epsilon_limit(self) -> float | None:
        """The same about a client that reaches its limit in this run, which is all that it enforces; None without."""
        own = events_at_limit(self.scheme)
        return accounting.server_view([*self._of_other_runs(), *own], self.scheme.privacy.delta) if own else None

    def _of_other_runs(self) -> list[accounting.Event]:
        return [entry.event for entry in self.ledger.entries if entry.run != self.ledger.run]

    def _passes(self, number: int) -> bool:
        """Whether another attempt, at this round, would pass the target."""
        privacy = self.scheme.at(number).privacy
        event, target = privacy.event(), privacy.epsilon
        if target is None:
            return False
        return event is None or accounting.claimed_epsilon([*self.ledger.events, event], privacy.delta) > target
