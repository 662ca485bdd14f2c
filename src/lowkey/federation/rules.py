"""Settings by rule: rounds, rates and sizes of private convex heads, from public numbers alone.

Rows have at most norm 1 and every client's vector norm 1, so noise that is added to the weights moves a score by a
known number of logits, whatever the data and the number of features. docs/private-learning.md derives the rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.figures import human_megabits
from lowkey.privacy import ClientMechanism, ClientPrivacy
from lowkey.server import Plain

NOISE_IN_A_SCORE = 1.0
"""κ, the noise of the final model in a score, in logits: what is learned is as large as that allows."""
NOISE_OF_PERSONS = 0.6
"""The same where persons are the unit: they are many, so that more of what is learned is signal."""
LARGEST_STEP = 8.5
"""How far the model may move in a round if all clients agree: beyond it the last steps overshoot."""
LARGEST_STEP_OF_PERSONS = 17.0
"""The same where persons are the unit, for a gradient of norm 1."""
LEAST_ROUNDS = 60
SAMPLED_ROUNDS = 200
"""Rounds that a sampled run has at least, besides those for a centre and for calibration."""
MOST_SAMPLED_ROUNDS = 1000
"""As many as one would wait for, where an upload limit allows more."""
WIDTHS = 100
"""A projection within an upload limit has a multiple of so many features."""
CENTRING = 0.05
"""Share of the budget for the mean features."""
CALIBRATION_ROUNDS = 6
"""Rounds that fit slope and intercept: about a tenth of the budget."""


def rounds_by_rule(settings: ClientPrivacy, *, clients: int, calibration: int = 0) -> int:
    """How many rounds, those for a centre and for calibration included, when everybody takes part in every round.

    T = max(60, ⌈κN/(8.5·s)⌉), where s is the noise multiplier of a single release with all the budget, scaled up for
    dropouts and colluders.

    Parameters
    ----------
    settings : ClientPrivacy
        The promise: ε, δ, tolerance.
    clients : int
        N.
    calibration : int
        Rounds that fit slope and intercept.
    """
    if settings.sampling not in (None, "all"):
        raise InvalidInput(
            f"schedule.rounds is 'auto' and privacy.sampling {settings.sampling!r}; the rule for rounds is for "
            "everybody in every round: set schedule.rounds, or ask 'lowkey plan'"
        )
    alone = replace(
        settings, centring=0.0, centring_noise="auto", questions=0, noise_multiplier="auto", spare_attempts=0
    )
    once = _mechanism(alone.resolve(clients=clients, cohort=clients, rounds=1), clients, clients)
    learning = math.ceil(NOISE_IN_A_SCORE * clients / (LARGEST_STEP * total_noise(once)))
    return max(LEAST_ROUNDS, learning) + bool(settings.centring) + calibration


def rate_by_rule(privacy: ClientMechanism, rounds: int) -> float:
    """The server's rate with which so many rounds of noise add up to κ in a score, κn/(s√T), in units of S.

    It is lower where few rounds or little noise would make steps that overshoot: at most 8.5; for persons, whose
    gradients are not scaled up and become short near the optimum, 17·S.
    """
    by_person = privacy.settings.unit == "person"
    wanted = NOISE_OF_PERSONS if by_person else NOISE_IN_A_SCORE
    most = LARGEST_STEP_OF_PERSONS * privacy.settings.norm if by_person else LARGEST_STEP
    return min(wanted / noise_in_a_score(privacy, rounds, rate=1.0), most)


def noise_in_a_score(privacy: ClientMechanism, rounds: int, *, rate: float) -> float:
    """Deviation of the noise in a score of a row of norm 1, in logits, after so many rounds: ηs√T/n, in units of S."""
    return rate * total_noise(privacy) * math.sqrt(rounds) / privacy.contributors


def widths_by_rule(widest: int) -> list[int]:
    """To how many of so many features a head may be projected: to all, or to a multiple of 100; the widest first."""
    checks.at_least("features", widest, 1)
    return [widest, *range((widest - 1) // WIDTHS * WIDTHS, 0, -WIDTHS)]


def projection_by_rule(
    limit: float, widths: Sequence[int], upload: Callable[[int, int], float], *, rounds: int | None = None
) -> tuple[int, int]:
    """How many features a head within an upload limit is projected to, and how many rounds learn it.

    Parameters
    ----------
    limit : float
        Bytes of vectors that a client may send in the whole run, on average.
    widths : sequence of int
        Numbers of features to choose from, the widest first.
    upload : function of features and rounds that learn
        Bytes that such a run takes, its opening round and calibration included.
    rounds : int or None
        Rounds that learn, where another rule says how many. None, for sampled cohorts, makes room for 200 and then
        takes as many as fit, at most 1000.
    """
    checks.positive("the upload limit", limit)
    needed = SAMPLED_ROUNDS if rounds is None else rounds
    width = next((width for width in widths if upload(width, needed) <= limit), None)
    if width is None:
        raise InvalidInput(
            f"the upload limit is {human_megabits(limit)}, and {needed} rounds of {widths[-1]} features take "
            f"{human_megabits(upload(widths[-1], needed))}; raise the limit, or let fewer clients contribute to a round"
        )
    if rounds is None:
        rounds = next(n for n in range(MOST_SAMPLED_ROUNDS, 0, -1) if upload(width, n) <= limit)
    return width, rounds


def total_noise(privacy: ClientMechanism) -> float:
    """Deviation of the noise in a sum to which all members of the roster add their share, in units of S."""
    return privacy.noise_multiplier * math.sqrt(privacy.sampling.roster_size / privacy.shares.honest)


def average_by_rule(rounds: int, settings: ClientPrivacy | None, calibration: int = 0) -> int:
    """The round from which iterates are averaged: the second half of those that learn."""
    opening = 0 if settings is None else bool(settings.centring)
    return opening + (rounds - opening - calibration) // 2 + 1


def rounds_that_learn(rounds: int, settings: ClientPrivacy, calibration: int = 0) -> int:
    """Rounds without those for a centre and for calibration."""
    return rounds - bool(settings.centring) - calibration


def with_rate(
    server: Plain,
    settings: ClientPrivacy | None,
    *,
    clients: int,
    cohort: int,
    rounds: int | None,
    calibration: int = 0,
) -> Plain:
    """The same with its rate by rule, where that is "auto"; the settings must be resolved.

    Parameters
    ----------
    server : Plain
        Its rate may be "auto".
    settings : ClientPrivacy or None
        The promise, resolved.
    clients, cohort : int
        N, and how many contribute to a round.
    rounds : int or None
        The number of the last round.
    calibration : int
        How many of them fit slope and intercept.
    """
    if server.rate != "auto":
        return server
    if settings is None or rounds is None or (settings.clip != "normalise" and settings.unit != "person"):
        raise InvalidInput(
            "server.rate is 'auto', which is a rule for private heads: it needs privacy.clip = 'normalise' (or "
            "privacy.unit = 'person') and the number of rounds; set those, or the rate itself"
        )
    learning = rounds_that_learn(rounds, settings, calibration)
    if learning < 1:
        raise InvalidInput(
            f"schedule.rounds is {rounds}, and none of them learns: {calibration} are for schedule.calibration"
            f"{' and one is for the centre' if settings.centring else ''}; set more, or less calibration"
        )
    return replace(server, rate=rate_by_rule(_mechanism(settings, clients, cohort), learning) / settings.norm)


def _mechanism(settings: ClientPrivacy, clients: int, cohort: int) -> ClientMechanism:
    return ClientMechanism(settings=settings, sampling=settings.sampling_of(clients=clients, cohort=cohort))
