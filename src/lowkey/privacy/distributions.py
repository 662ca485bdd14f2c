"""Privacy loss distributions of the rounds we know, each rounded to the pessimistic side.

A round is described by its *profile*: the δ that it has at each ε, for the worst pair of neighbours. Noise has standard
deviation 1 here and one clip norm has length μ = 1/z. Discretising a profile never lowers ε ("connect the dots",
Doroshenko et al., 2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
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
_MOST_POINTS = 40_000  # the interval is wider where losses reach further than this many
_LARGEST_LOSS = 500.0  # larger ones count as infinite
_FAR = 9.5  # standard deviations beyond which losses count as infinite: 1e-21 of all outcomes
_FAR_WHEN_CUT = 5.0  # the same for rounds that cut candidates, whose own chance is tiny

Grid: TypeAlias = NDArray[np.float64]
Profile: TypeAlias = Callable[[Grid], Grid]


@dataclass(frozen=True)
class Direction:
    """Profile of a pair of neighbours one way round, and the losses between which it is resolved."""

    profile: Profile
    least: float
    most: float

    def pmf(self, interval: float) -> pld_pmf.PLDPmf:
        low = math.floor(max(self.least, -_LARGEST_LOSS) / interval)
        high = math.ceil(min(self.most, _LARGEST_LOSS) / interval)
        grid: Grid = np.arange(low, high + 1, dtype=np.float64) * interval
        # far out the profile is a difference of nearly equal tiny numbers: only rounding is left of it
        deltas = np.minimum.accumulate(np.clip(self.profile(grid), 1e-18, 1.0))
        return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, deltas)


@dataclass(frozen=True)
class Losses:
    """Privacy losses of a mechanism: in both directions, or in one direction that is its own opposite."""

    directions: tuple[Direction, ...]

    @property
    def interval(self) -> float:
        """Width at which to discretise; it may be wider, at the price of a larger ε."""
        reach = max(max(direction.most, -direction.least) for direction in self.directions)
        return max(INTERVAL, min(reach, _LARGEST_LOSS) / _MOST_POINTS)

    def distribution(self, interval: float) -> PrivacyLossDistribution:
        return PrivacyLossDistribution(*(direction.pmf(interval) for direction in self.directions))


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
    convexity the round is as private as Poisson sampling except with this chance, which is subtracted from δ.
    """
    if event.kind == "fixed" or event.roster is None or event.population is None:
        return 0.0
    drawn = np.arange(1, group + 1)
    chances = scipy.stats.binom.pmf(drawn, group, event.candidate_probability)
    full = scipy.stats.binom.sf(event.roster - drawn, event.population - group, event.candidate_probability)
    return float(np.sum(chances * full))


def gaussian_losses(mu: float) -> Losses:
    """Losses of the Gaussian mechanism."""
    most = mu * (mu / 2 + _FAR)
    return Losses((Direction(lambda eps: gaussian_delta(mu, eps), -most, most),))


def round_losses(event: Event) -> Losses:
    """Losses of one round with a sampling probability below 1; rosters are taken into account if there is no coin."""
    mu, q = 1 / event.noise_multiplier, event.sampling_probability
    if event.kind == "fixed":
        # The larger of both directions dominates; Zhu, Dong and Wang (2022), *Optimal accounting of differential
        # privacy via characteristic function*, Section 4. A drawn client displaces another: 2S.
        there, back = _poisson(2 * mu, q)
        most = max(there.most, back.most)
        return Losses((Direction(lambda eps: np.maximum(there.profile(eps), back.profile(eps)), -most, most),))
    there, back = _poisson(mu, q) if event.adjacency == "zero-out" else (_opposed(mu, q, _FAR),) * 2
    if event.coin == 1.0 and cut_probability(event) > 0.0:
        full, kept = _overflow(event)
        displacing = _opposed(2 * mu, kept, _FAR_WHEN_CUT)
        there, back = _mixed(displacing, there, full), _mixed(displacing, back, full)
    return Losses((there, back))


@lru_cache(maxsize=64)
def round_pld(event: Event, interval: float) -> PrivacyLossDistribution:
    """:func:`round_losses`, discretised and remembered: runs ask for the same round again and again."""
    return round_losses(event).distribution(interval)


def _poisson(mu: float, q: float) -> tuple[Direction, Direction]:
    """(1 − q) N(0, 1) + q N(μ, 1) against N(0, 1), and the other way round."""
    least = math.log1p(-q)
    most = _mixture_loss(q, mu * (mu / 2 + _FAR))

    def there(eps: Grid) -> Grid:
        inside = np.maximum(eps, least)
        with np.errstate(divide="ignore"):
            inner = inside + np.log(-np.expm1(least - inside)) - math.log(q)  # log((e^ε − 1 + q) / q)
        return np.where(eps > least, q * gaussian_delta(mu, inner), -np.expm1(np.minimum(eps, 0.0)))

    def back(eps: Grid) -> Grid:  # exactly 0 beyond the largest loss, where rounding would pile up
        inside = np.minimum(eps, -least)
        return np.where(eps < -least, -np.expm1(inside) + np.exp(inside) * there(-inside), 0.0)

    return Direction(there, least, most), Direction(back, -most, -least)


def _opposed(mu: float, q: float, far: float) -> Direction:
    """(1 − q) N(0, 1) + q N(μ, 1) against (1 − q) N(0, 1) + q N(−μ, 1); its own opposite."""

    def profile(eps: Grid) -> Grid:
        # The loss reaches ε at x = (ε/2 + asinh(h)) / μ, h = (1 − q) e^{μ²/2} sinh(ε/2) / q; logarithms avoid overflow.
        half = np.abs(eps) / 2
        with np.errstate(divide="ignore"):
            log_h = half + np.log(-np.expm1(-2 * half) / 2) + math.log1p(-q) - math.log(q) + mu * mu / 2
        x = (eps / 2 + np.copysign(np.logaddexp(log_h, np.logaddexp(2 * log_h, 0.0) / 2), eps)) / mu
        weights = np.logaddexp(math.log1p(-q) + log_ndtr(-x), math.log(q) + log_ndtr(-x - mu))
        delta: Grid = (1 - q) * ndtr(-x) + q * ndtr(mu - x) - np.exp(eps + weights)
        return delta

    most = _mixture_loss(q, mu * (mu / 2 + far)) - math.log1p(-q)
    return Direction(profile, -most, most)


def _mixed(rare: Direction, usual: Direction, chance: float) -> Direction:
    """The usual pair of neighbours, but with some chance the rare pair; losses below −1 may be rounded up to −1."""

    def profile(eps: Grid) -> Grid:
        return chance * rare.profile(eps) + (1 - chance) * usual.profile(eps)

    return Direction(profile, min(usual.least, -1.0), max(usual.most, rare.most))


def _overflow(event: Event) -> tuple[float, float]:
    """Chance that the others alone fill the roster, and then chance that a client is on it all the same.

    Such a client displaces another, so that the sum moves by up to 2S either way. As in dp-accounting's
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
