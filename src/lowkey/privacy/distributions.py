"""Privacy loss distributions of the rounds we know, each rounded to the pessimistic side.

A round is described by its *profile*: the δ that it has at each ε, for the worst pair of neighbours. Noise has standard
deviation 1 here and one clip norm has length μ = 1/z. Discretising a profile never lowers ε ("connect the dots",
Doroshenko et al., 2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import scipy.optimize
import scipy.stats
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from lowkey.privacy.events import Event

INTERVAL = 1e-4
_FAR = 9.5  # standard deviations beyond which losses count as infinite: 1e-21 of all outcomes
_FAR_WHEN_CUT = 5.0  # the same for rounds that cut candidates, whose own chance is tiny

Grid: TypeAlias = NDArray[np.float64]
Profile: TypeAlias = Callable[[Grid], Grid]


def gaussian_delta(mu: float, epsilon: Grid) -> Grid:
    """δ(ε) of N(μ, 1) against N(0, 1); Balle and Wang (2018), Theorem 8."""
    delta: Grid = ndtr(mu / 2 - epsilon / mu)
    return delta - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """ε at which the Gaussian mechanism has this δ; exact, and closed under composition: μ² adds up."""

    def excess(epsilon: float) -> float:
        return float(gaussian_delta(mu, np.array(epsilon))) - delta

    if excess(0.0) <= 0.0:
        return 0.0
    enough = mu * (mu / 2 - float(scipy.stats.norm.ppf(delta)))  # here the first term of δ(ε) alone is δ
    return float(scipy.optimize.brentq(excess, 0.0, enough, xtol=1e-12)) + 1e-11


def cut_probability(event: Event, group: int = 1) -> float:
    """Chance that in a round one of ``group`` clients is drawn while the roster overflows.

    Draws and cuts do not depend on what a client would send. Given the number of others drawn, a round in which this
    does not happen is Poisson sampling of the group with at most its own chances, or has nothing of it. So by joint
    convexity the round is as private as Poisson sampling but for this chance, which may be taken off δ.
    """
    if event.kind == "fixed" or event.roster is None or event.population is None:
        return 0.0
    drawn = np.arange(1, group + 1)
    chances = scipy.stats.binom.pmf(drawn, group, event.candidate_probability)
    full = scipy.stats.binom.sf(event.roster - drawn, event.population - group, event.candidate_probability)
    return float(np.sum(chances * full))


@lru_cache(maxsize=64)
def round_pld(event: Event) -> PrivacyLossDistribution:
    """One round of an event with a sampling probability below 1; rosters are reckoned with where there is no coin."""
    mu, q = 1 / event.noise_multiplier, event.sampling_probability
    if event.kind == "fixed":
        # The larger of both directions dominates; Zhu, Dong and Wang (2022), *Optimal accounting of differential
        # privacy via characteristic function*, Section 4. A drawn client displaces another: 2S.
        there, back = _poisson(2 * mu, q)
        most = _mixture_loss(q, 2 * mu * (mu + _FAR))
        return PrivacyLossDistribution(_pmf(lambda eps: np.maximum(there(eps), back(eps)), -most, most))
    if event.adjacency == "replace-one":
        there = back = _opposed(mu, q)
        most_there = most_back = _mixture_loss(q, mu * (mu / 2 + _FAR)) - math.log1p(-q)
    else:
        there, back = _poisson(mu, q)
        most_there, most_back = _mixture_loss(q, mu * (mu / 2 + _FAR)), -math.log1p(-q)
    least_there, least_back = -most_back, -most_there
    if event.coin == 1.0 and cut_probability(event) > 0.0:
        full, kept = _overflow(event)
        displacing = _opposed(2 * mu, kept)
        far = _mixture_loss(kept, 2 * mu * (mu + _FAR_WHEN_CUT)) - math.log1p(-kept)
        there, back = _mixed(displacing, there, full), _mixed(displacing, back, full)
        most_there, most_back = max(most_there, far), max(most_back, far)
        least_there, least_back = min(least_there, -1.0), min(least_back, -1.0)  # below, losses are rounded up to it
    return PrivacyLossDistribution(_pmf(there, least_there, most_there), _pmf(back, least_back, most_back))


def _poisson(mu: float, q: float) -> tuple[Profile, Profile]:
    """(1 − q) N(0, 1) + q N(μ, 1) against N(0, 1), and the other way round."""

    def there(eps: Grid) -> Grid:
        inner = np.expm1(eps) + q
        amplified = q * gaussian_delta(mu, np.log(np.maximum(inner, 1e-300) / q))
        return np.where(inner > 0, amplified, -np.expm1(eps))

    def back(eps: Grid) -> Grid:  # exactly 0 beyond the largest loss, where rounding would pile up
        return np.where(np.expm1(-eps) + q > 0, -np.expm1(eps) + np.exp(eps) * there(-eps), 0.0)

    return there, back


def _opposed(mu: float, q: float) -> Profile:
    """(1 − q) N(0, 1) + q N(μ, 1) against (1 − q) N(0, 1) + q N(−μ, 1)."""

    def profile(eps: Grid) -> Grid:
        # The loss reaches ε at x = (ε/2 + asinh(h)) / μ, h = (1 − q) e^{μ²/2} sinh(ε/2) / q; logarithms avoid overflow.
        half = np.abs(eps) / 2
        with np.errstate(divide="ignore"):
            log_h = half + np.log(-np.expm1(-2 * half) / 2) + math.log1p(-q) - math.log(q) + mu * mu / 2
        x = (eps / 2 + np.copysign(np.logaddexp(log_h, np.logaddexp(2 * log_h, 0.0) / 2), eps)) / mu
        weights = np.logaddexp(math.log1p(-q) + log_ndtr(-x), math.log(q) + log_ndtr(-x - mu))
        return (1 - q) * ndtr(-x) + q * ndtr(mu - x) - np.exp(eps + weights)

    return profile


def _mixed(one: Profile, other: Profile, weight: float) -> Profile:
    return lambda eps: weight * one(eps) + (1 - weight) * other(eps)


def _overflow(event: Event) -> tuple[float, float]:
    """Chance that the others alone fill the roster, and of a client to be on it nevertheless.

    Then it displaces another, so that the sum moves by up to 2S either way. As in dp-accounting's
    ``from_truncated_subsampled_gaussian_mechanism``; arXiv:2508.15089.
    """
    assert event.roster is not None
    assert event.population is not None
    rho, size, population = event.candidate_probability, event.roster, event.population
    full = float(scipy.stats.binom.sf(size - 1, population - 1, rho))
    return full, float(scipy.stats.binom.sf(size, population, rho)) * size / population / full


def _mixture_loss(q: float, loss: float) -> float:
    """Loss of a mixture whose other part has this loss: log(1 − q + q e^loss)."""
    return float(np.logaddexp(math.log1p(-q) if q < 1 else -math.inf, math.log(q) + loss))


def _pmf(profile: Profile, smallest: float, largest: float) -> pld_pmf.PLDPmf:
    low, high = math.floor(smallest / INTERVAL), math.ceil(largest / INTERVAL)
    grid: Grid = np.arange(low, high + 1, dtype=np.float64) * INTERVAL
    deltas = profile(grid)
    # far out the profile is a difference of nearly equal tiny numbers: only rounding is left of it
    deltas = np.minimum.accumulate(np.clip(deltas, 1e-18, 1.0))
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(INTERVAL, low, high, deltas)
