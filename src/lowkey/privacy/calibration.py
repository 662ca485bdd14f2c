"""Backwards through the accountant: the noise that rounds need, the rounds that noise affords."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import scipy.optimize

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.privacy.accounting import claimed_epsilon
from lowkey.privacy.events import Event
from lowkey.privacy.sampling import Sampling
from lowkey.rounding import round_up


def calibrate_noise(sampling: Sampling, *, target_epsilon: float, delta: float, rounds: int) -> float:
    """Smallest noise multiplier, up to 4 decimals, whose PLD ε over all rounds is at most the target."""
    checks.positive("epsilon", target_epsilon)

    def spent(z: float) -> float:
        return claimed_epsilon([replace(sampling.event(z), count=rounds)], delta)

    upper = 1.0
    while spent(upper) > target_epsilon:
        upper *= 2.0
        if upper > 2.0**20:
            raise InvalidInput(f"no noise multiplier up to a million reaches epsilon {target_epsilon:g}; raise it")
    lower = upper / 2.0
    while spent(lower) <= target_epsilon and lower > 0.1:
        lower /= 2.0
    if spent(lower) <= target_epsilon:
        return lower
    z = float(scipy.optimize.brentq(lambda z: spent(z) - target_epsilon, lower, upper, xtol=1e-5))
    rounded = round_up(z, 4)
    while spent(rounded) > target_epsilon:  # re-verify after rounding: err to the private side
        rounded = round(rounded + 1e-4, 4)
    return rounded


def affordable_rounds(event: Event, *, target_epsilon: float, delta: float, spent: Iterable[Event] = ()) -> int:
    """How many more rounds like ``event`` keep the PLD ε, after what was ``spent``, at or below the target."""
    checks.positive("epsilon", target_epsilon)
    before = tuple(spent)

    def fits(rounds: int) -> bool:
        return claimed_epsilon([*before, replace(event, count=rounds)], delta) <= target_epsilon

    if not fits(1):
        return 0
    known = 1
    while fits(2 * known):
        known *= 2
        if known > 2**20:
            return known
    beyond = 2 * known
    while beyond - known > 1:
        middle = (known + beyond) // 2
        known, beyond = (middle, beyond) if fits(middle) else (known, middle)
    return known
