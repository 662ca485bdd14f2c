"""Distributed Gaussian noise: every member of a cohort adds its share of what the sum must carry."""

from __future__ import annotations

import math

import numpy as np

from lowkey import checks
from lowkey.privacy.records import Bounded, Noised
from lowkey.rng import BitSource, standard_normal


def add_noise_share(bounded: Bounded, *, noise_multiplier: float, shares: int, source: BitSource) -> Noised:
    """Add one of ``shares`` independent parts of N(0, (noise_multiplier · l2_bound)²).

    Parameters
    ----------
    bounded : the client's clipped measurement, or zeros for a member that adds noise only.
    noise_multiplier : z ≥ 0, noise of the *sum* relative to the bound; 0 adds nothing (limiting case).
    shares : how many members add one, at least 1.
    source : secret bits of this client.

    Guarantees
    ----------
    The sum over all ``shares`` members carries Gaussian noise of standard deviation noise_multiplier · l2_bound in
    every coordinate, in float32 arithmetic. Fewer members carry less: a round that loses one must not be released.
    """
    checks.not_negative("privacy.noise_multiplier", noise_multiplier)
    checks.at_least("shares", shares, 1)
    if noise_multiplier == 0.0:
        return Noised(bounded.value)
    noise = standard_normal(source, bounded.value.size)
    noise *= np.float32(noise_multiplier * bounded.l2_bound / math.sqrt(shares))
    noise += bounded.value
    return Noised(noise)
