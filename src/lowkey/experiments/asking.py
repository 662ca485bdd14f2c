"""What so many clients can be asked under a promise: ranges of numbers, and how good a model is."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import scipy.optimize

from lowkey import privacy as accounting
from lowkey.analytics import RANGE_BINS, ScoreQuestion, error_of, well_binned
from lowkey.experiments.config import TEST_SHARE, Config
from lowkey.federation import total_noise
from lowkey.figures import human_epsilon
from lowkey.privacy import ClientMechanism, make_sampling

CLEAR = 0.125
"""Half of what lies between two quartiles: a deviation up to which they can be told apart."""
_LARGEST_NOISE = 1e7


@dataclass(frozen=True, kw_only=True)
class Askable:
    """What one answer beside learning says, with ``privacy.asking`` of the budget, one spare attempt included.

    Attributes
    ----------
    asking : float
        The share of the budget.
    range_error : float
        Deviation of the share of clients below the middle of all bins: what quartiles, and with them ranges, suffer.
    auroc_error : float or None
        Mean absolute error of the AUROC that clients find on their test rows; None where nobody said how many
        they have.
    wanted : float
        The error of the AUROC that is wanted.
    epsilon_clients, epsilon_persons : float or None
        The least ε, for the evaluation alone, that gives it: of a client, and of a person where every example is one.
        None where no ε does, or where nobody said how many examples there are.
    prevalence : float
        How often the event happens, as is supposed.
    """

    asking: float
    range_error: float
    auroc_error: float | None
    wanted: float
    epsilon_clients: float | None
    epsilon_persons: float | None
    prevalence: float

    @property
    def sentences(self) -> list[str]:
        clear = self.range_error <= CLEAR
        lines = [
            f"Private ranges: an answer with {self.asking:.0%} of the budget knows shares of clients up to "
            f"{self.range_error:.3f}; quartiles can be told apart up to {CLEAR:g}: "
            + ("they can be asked for." if clear else "take public limits.")
        ]
        if self.auroc_error is None:
            return [*lines, "Evaluation by clients: say how many examples a client has, about (--examples)."]
        needs = " and ".join(
            f"{'no ε is enough' if epsilon is None else f'ε = {human_epsilon(epsilon, 2)}'} for {whom}"
            for epsilon, whom in (
                (self.epsilon_clients, "a client"),
                (self.epsilon_persons, "a person, if every example is one"),
            )
        )
        lines.append(
            f"Evaluation by clients: the AUROC is found up to {self.auroc_error:.3f} with {self.asking:.0%} of the "
            f"budget; up to {self.wanted:g} takes, by itself, {needs} (events: {self.prevalence:.0%} of the rows)."
        )
        return lines

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def askable(config: Config, *, examples: int | None, wanted: float) -> Askable:
    """What the clients of a configuration can be asked.

    Parameters
    ----------
    config : Config
        Of a private scheme with a target ε.
    examples : int or None
        About how many a client has; a fifth of them are for tests.
    wanted : float
        Mean absolute error of the AUROC.
    """
    promise, clients = config.privacy, config.federation.clients
    assert promise is not None
    everybody = make_sampling("all", population=clients, cohort=clients)
    asked = replace(promise, questions=1, asking_noise="auto", centring=0.0, noise_multiplier="auto")
    settled = asked.resolve(clients=clients, cohort=clients, rounds=1)
    noise = total_noise(ClientMechanism(settings=settled.of_question(), sampling=everybody))
    unit = noise / float(settled.asking_noise)
    prevalence = float(config.evaluation.question.get("prevalence", ScoreQuestion.prevalence))
    found: dict[str, Any] = {"auroc_error": None, "epsilon_clients": None, "epsilon_persons": None}
    if examples is not None:
        rows = max(1.0, TEST_SHARE * examples)
        by_client = ScoreQuestion(rows=rows, prevalence=prevalence)
        by_person = ScoreQuestion(rows=1.0, prevalence=prevalence)
        persons = max(1, round(clients * rows))

        def least(question: ScoreQuestion, units: int) -> float | None:
            most = _most_noise(question, units, persons * prevalence, wanted)
            if most is None:
                return None
            event = replace(everybody.event(most / unit), count=settled.asking_attempts)
            return accounting.claimed_epsilon([event], promise.delta)

        found = {
            "auroc_error": _error(by_client, clients, persons * prevalence, noise),
            "epsilon_clients": least(by_client, clients),
            "epsilon_persons": least(by_person, persons),
        }
    below = noise * math.sqrt(RANGE_BINS / 4) / clients  # half of the bins, where all shares together are known to be 1
    return Askable(asking=promise.asking, range_error=below, wanted=wanted, prevalence=prevalence, **found)


def _error(question: ScoreQuestion, units: int, positives: float, noise: float) -> float:
    suited = well_binned(question, units=units, positives=positives, noise=noise)
    return error_of(suited, units=units, positives=positives, noise=noise)


def _most_noise(question: ScoreQuestion, units: int, positives: float, wanted: float) -> float | None:
    """The most noise with which the error is no larger than what is wanted; None if no noise at all is too much."""

    def excess(log_noise: float) -> float:
        return _error(question, units, positives, math.exp(log_noise)) - wanted

    low, high = math.log(1e-3), math.log(_LARGEST_NOISE)
    return None if excess(low) > 0 else math.exp(float(scipy.optimize.bisect(excess, low, high, xtol=1e-4)))
