"""Privacy loss distributions of the rounds we know, each rounded to the pessimistic side.

Everything here is an upper bound: discretising never lowers ε ("connect the dots", Doroshenko et al., 2022).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy.optimize
import scipy.stats
from dp_accounting import NeighboringRelation
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from numpy.typing import NDArray
from scipy.special import log_ndtr

from lowkey.privacy.events import Event

INTERVAL = 1e-4
# Losses of rounds that cut candidates are resolved down to e^-20 of their own, tiny, chance; the rest counts as
# infinite loss. Finer would change ε in the ninth digit and take four times as long.
_CUT_LOG_MASS = -20.0


def gaussian_delta(mu: float, epsilon: NDArray[np.float64]) -> NDArray[np.float64]:
    """δ(ε) of the Gaussian mechanism whose noise is 1/μ of its sensitivity; Balle and Wang (2018), Theorem 8."""
    delta: NDArray[np.float64] = np.exp(log_ndtr(mu / 2 - epsilon / mu))
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
    room = event.roster - drawn
    full = scipy.stats.binom.sf(room, event.population - group, event.candidate_probability)
    return float(np.sum(chances * full))


@lru_cache(maxsize=64)
def round_pld(event: Event) -> PrivacyLossDistribution:
    """One round of an event whose sampling probability is below 1."""
    if event.kind == "fixed":
        return _fixed_size(event.noise_multiplier, event.sampling_probability)
    poisson = _gaussian(event.noise_multiplier, event.sampling_probability, _RELATIONS[event.adjacency])
    if event.coin < 1.0 or cut_probability(event) == 0.0:
        return poisson
    return _truncated(event, poisson)


_RELATIONS = {"zero-out": NeighboringRelation.REPLACE_SPECIAL, "replace-one": NeighboringRelation.REPLACE_ONE}


def _gaussian(
    noise_multiplier: float, q: float, relation: NeighboringRelation, log_mass: float = -50.0
) -> PrivacyLossDistribution:
    return privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier,
        sampling_prob=q,
        neighboring_relation=relation,
        value_discretization_interval=INTERVAL,
        log_mass_truncation_bound=log_mass,
    )


def _truncated(event: Event, poisson: PrivacyLossDistribution) -> PrivacyLossDistribution:
    """Poisson sampling cut to the roster, as dp-accounting's ``TruncatedSubsampledGaussianDpEvent`` has it.

    When the others alone fill the roster, a client that is kept displaces another, so that the sum moves by up to 2S
    either way; arXiv:2508.15089.
    """
    assert event.roster is not None
    assert event.population is not None
    rho, size, others = event.candidate_probability, event.roster, event.population - 1
    full = float(scipy.stats.binom.sf(size - 1, others, rho))
    kept = float(scipy.stats.binom.sf(size, event.population, rho)) * size / event.population / full
    displacing = _gaussian(event.noise_multiplier / 2, kept, NeighboringRelation.REPLACE_ONE, _CUT_LOG_MASS)
    return displacing.compute_mixture(poisson, full)


def _fixed_size(noise_multiplier: float, q: float) -> PrivacyLossDistribution:
    """Replace-one PLD of a Gaussian sum over a cohort of fixed size.

    The dominating profile is the larger of both directions of subsampling a Gaussian of sensitivity 2S; Zhu, Dong and
    Wang (2022), *Optimal accounting of differential privacy via characteristic function*, Section 4.
    """
    mu = 2.0 / noise_multiplier

    def subsampled(eps: NDArray[np.float64]) -> NDArray[np.float64]:
        inner = np.expm1(eps) + q
        amplified = q * gaussian_delta(mu, np.log(np.maximum(inner, 1e-300) / q))
        return np.where(inner > 0, amplified, -np.expm1(eps))

    reach = math.ceil((mu * mu / 2 + 9 * mu) / INTERVAL)
    steps = np.arange(-reach, reach + 1)
    eps: NDArray[np.float64] = steps.astype(np.float64) * INTERVAL
    profile = np.maximum(subsampled(eps), -np.expm1(eps) + np.exp(eps) * subsampled(-eps))
    # the tail of the profile is below 1e-18, where differences of nearly equal numbers leave only rounding
    profile = np.minimum.accumulate(np.clip(profile, 1e-18, 1.0))
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(INTERVAL, steps, profile)
    return PrivacyLossDistribution(pmf)
