"""A δ so small that the accountant's own rounding errors are larger.

Who: a server that wants to promise less than it keeps. With what: δ = 1e-13. Losses that rare drown in the rounding of
the fast Fourier transform that adds up rounds, and ε comes out too small.

Before: eight rounds at z = 0.6 and q = 0.5 were accounted as ε = 36.1590 at δ = 1e-13. A sum over the same losses that
only adds positive numbers, each loss rounded *down*, proves at least 36.1598. Now δ below 1e-12 is refused wherever it
enters; from there on upwards the accountant's ε stays above the independent bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from lowkey.errors import InvalidInput
from lowkey.experiments import Wishes, plan
from lowkey.privacy import (
    ClientPrivacy,
    Event,
    Policy,
    Terms,
    calibrate_noise,
    claimed_epsilon,
    group_epsilon,
    make_sampling,
    released_epsilon,
    search_epsilon,
    server_epsilon,
    server_view,
)

DEFENDS = "δ below 10⁻¹², where rounding errors of the accountant would make ε too small."

EIGHT = Event(noise_multiplier=0.6, sampling_probability=0.5, count=8)


def provable_epsilon(event: Event, delta: float, step: float = 1e-3) -> float:
    """An ε that the rounds certainly reach at this δ: losses are rounded down, and no difference is ever taken.

    P = (1 − q) N(0, 1) + q N(μ, 1) against N(0, 1); the loss log(1 − q + q e^(μx − μ²/2)) grows with x.
    """
    mu, q = 1 / event.noise_multiplier, event.sampling_probability
    most = math.log1p(q * math.expm1(mu * (mu + 14) - mu * mu / 2))
    first = math.floor(math.log1p(-q) / step)
    losses = np.arange(first, math.ceil(most / step) + 2) * step
    with np.errstate(divide="ignore", invalid="ignore"):
        x = (np.log((np.expm1(losses) + q) / q) + mu * mu / 2) / mu
    x = np.where(np.isnan(x), -np.inf, x)
    below, above = ((1 - q) * ndtr(s * x) + q * ndtr(s * (x - mu)) for s in (1, -1))
    mass = np.where(x[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1])
    rounds = mass
    for _ in range(event.count - 1):
        rounds = np.convolve(rounds, mass)
        rounds = rounds[: np.flatnonzero(rounds > 1e-25)[-1] + 1]
    losses = (np.arange(rounds.size) + event.count * first) * step
    low, high = 0.0, float(losses[-1])
    while high - low > 1e-9:
        middle = (low + high) / 2
        reached = losses > middle
        excess = float(np.sum(rounds[reached] * -np.expm1(middle - losses[reached])))
        low, high = (middle, high) if excess > delta else (low, middle)
    return low


def test_what_is_accounted_is_never_below_what_is_certain() -> None:
    for delta in (1e-13, 1e-12, 1e-9, 1e-5):
        certain = provable_epsilon(EIGHT, delta)
        try:
            accounted = claimed_epsilon([EIGHT], delta)
        except InvalidInput:
            assert delta < 1e-12
        else:
            assert certain <= accounted <= certain + 0.01


SMALL = 0.99e-12
TERMS: dict[str, Any] = {
    "noise_multiplier": 1.0, "clip_rule": "1.0", "bits": 20, "length": 10, "members": 10, "min_survivors": 9,
    "honest": 8, "neighbours": 9, "shares_needed": 8, "scheme": "fl-std-dp", "sampling": "all", "codec": "none",
    "public_seed": 0, "model_size": 10,
}  # fmt: skip
POLICY: dict[str, Any] = {
    "min_noise_multiplier": 1.0, "min_roster": 10, "min_honest": 5, "min_tolerated_colluders": 0,
    "max_participations": 5, "max_epsilon": 50.0,
}  # fmt: skip
ENTRANCES: dict[str, Callable[[float], object]] = {
    "settings": lambda delta: ClientPrivacy(clip_norm=1.0, delta=delta),
    "terms": lambda delta: Terms(**TERMS, delta=delta),
    "policy": lambda delta: Policy(**POLICY, delta=delta),
    "released": lambda delta: released_epsilon([EIGHT], delta),
    "claimed": lambda delta: claimed_epsilon([EIGHT], delta),
    "server": lambda delta: server_epsilon(1.0, 3, delta),
    "server view": lambda delta: server_view([EIGHT], delta),
    "group": lambda delta: group_epsilon(EIGHT, 1, delta),
    "search": lambda delta: search_epsilon(EIGHT, 2, delta),
    "calibration": lambda delta: calibrate_noise(
        make_sampling("all", population=9, cohort=9), epsilon=2.0, delta=delta, rounds=2
    ),
    "plan": lambda delta: plan(Wishes(clients=9, epsilon=2.0, delta=delta, features=2, parameters=9)),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_it_enters_nowhere(entrance: str) -> None:
    ENTRANCES[entrance](1e-12)
    with pytest.raises(InvalidInput, match=r"delta is 9\.9e-13; it must be at least 1e-12"):
        ENTRANCES[entrance](SMALL)
