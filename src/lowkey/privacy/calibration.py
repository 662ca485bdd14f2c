"""The accountant in reverse: the noise that a number of rounds needs, the rounds that some noise allows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import scipy.optimize

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.figures import round_up
from lowkey.privacy.accounting import claimed_epsilon
from lowkey.privacy.events import Event
from lowkey.privacy.sampling import Sampling


def calibrate_noise(
    sampling: Sampling, *, epsilon: float, delta: float, rounds: int, beside: Iterable[Event] = ()
) -> float:
    """Smallest noise multiplier, up to 4 decimals, whose PLD ε over all rounds is at most the target.

    Parameters
    ----------
    sampling : Sampling
        How rosters are drawn.
    epsilon, delta : float
        The target.
    rounds : int
        How many there are. Attempts that gave no sum cost as much: count those that are to be reserved.
    beside : events
        Releases of other kinds under the same target.
    """
    checks.positive("epsilon", epsilon)
    others = list(beside)
    if others and claimed_epsilon(others, delta) >= epsilon:
        raise InvalidInput(f"what is released beside the rounds spends epsilon = {epsilon:g} alone; give it more noise")

    def spent(z: float) -> float:
        return claimed_epsilon([*others, replace(sampling.event(z), count=rounds)], delta)

    upper = 1.0
    while spent(upper) > epsilon:
        upper *= 2.0
        if upper > 2.0**20:
            raise InvalidInput(f"no noise multiplier up to a million reaches epsilon = {epsilon:g}; raise epsilon")
    lower = upper / 2.0
    while spent(lower) <= epsilon and lower > 0.1:
        lower /= 2.0
    if spent(lower) <= epsilon:
        return lower

    def excess(log_z: float) -> float:  # in logarithms, where it is nearly a straight line
        return math.log(max(spent(math.exp(log_z)), 1e-12) / epsilon)

    log_z = float(scipy.optimize.brentq(excess, math.log(lower), math.log(upper), xtol=1e-5))
    rounded = round_up(math.exp(log_z), 4)
    while spent(rounded) > epsilon:  # re-verify after rounding: err to the private side
        rounded = round(rounded + 1e-4, 4)
    return rounded


def affordable_rounds(event: Event, *, epsilon: float, delta: float, spent: Iterable[Event] = ()) -> int:
    """How many more rounds like ``event`` keep the PLD ε, together with what was ``spent``, within the target."""
    checks.positive("epsilon", epsilon)
    before = tuple(spent)

    def spent_after(rounds: int) -> float:
        return claimed_epsilon([*before, replace(event, count=rounds)] if rounds else before, delta)

    fits, beyond = 0, 1
    while spent_after(beyond) <= epsilon:
        fits, beyond = beyond, 4 * beyond
        if beyond > 2**20:
            return fits
    while beyond - fits > 1:
        below, above = spent_after(fits), spent_after(beyond)
        fraction = (epsilon - below) / (above - below) if math.isfinite(above) else 0.5
        middle = min(max(fits + round(fraction * (beyond - fits)), fits + 1), beyond - 1)
        fits, beyond = (middle, beyond) if spent_after(middle) <= epsilon else (fits, middle)
    return fits
