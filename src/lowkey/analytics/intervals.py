"""What noisy sums say about ratios and totals, with 95 % intervals that stay right when there is little but noise."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from lowkey.analytics.question import Estimate, Vectors

SURE = NormalDist().inv_cdf(0.975)
"""Deviations of a 95 % interval."""
SURER = NormalDist().inv_cdf(0.9875)
"""Deviations of a 97.5 % interval: two of them, for noise and for what was cut off, hold together with 95 %."""


def ratio(
    value: Vectors, over: Vectors, under: Vectors, noise: float, *, low: float, high: float, z: float = SURE
) -> Estimate:
    """(over·value)/(under·value), a number that is known to lie between ``low`` and ``high``.

    The interval has all p for which over·value − p under·value is within z deviations of 0 (Fieller 1954), so that it
    holds for any noise; where the denominator may be 0 it is all that is possible.

    Parameters
    ----------
    value : array
        Sums, with independent noise of the same deviation.
    over, under : array
        Weights of the numerator and of the denominator, which is not negative without noise.
    noise : float
        The deviation.
    low, high : float
        What is possible.
    z : float
        Deviations.
    """
    a, b = float(over @ value), float(under @ value)
    if noise == 0 and b > 0:
        exact = min(max(a / b, low), high)
        return Estimate(exact, exact, exact)
    reach = (z * noise) ** 2
    square, linear, rest = (
        b * b - reach * float(under @ under),
        a * b - reach * float(over @ under),
        a * a - reach * float(over @ over),
    )
    if b <= 0 or square <= 0:
        middle = min(max(a / b, low), high) if b > 0 else (low + high) / 2
        return Estimate(middle, low, high)
    root = math.sqrt(max(linear * linear - square * rest, 0.0))
    ends = [min(max(end, low), high) for end in (a / b, (linear - root) / square, (linear + root) / square)]
    return Estimate(ends[0], min(ends[0], ends[1]), max(ends[0], ends[2]))


def mixed(known: Estimate, unknown: float, *, low: float, high: float) -> Estimate:
    """The same where at most this share of what is averaged was cut off, and may be anything between low and high."""
    return Estimate(known.value, (1 - unknown) * known.low + unknown * low, (1 - unknown) * known.high + unknown * high)


def onto_simplex(shares: Vectors) -> Vectors:
    """The nearest shares that are not negative and add up to 1."""
    falling = np.sort(shares)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(shares) + 1)
    found: Vectors = np.maximum(shares - excess[np.flatnonzero(falling > excess)[-1]], 0.0)
    return found
