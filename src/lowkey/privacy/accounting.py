"""What a list of rounds has spent: ε at a given δ, by three accountants.

A round is recorded as an :class:`Event`, plain data. Analysis recomputes ε from the list, so nothing but the list need
be stored. Three figures are given, in decreasing order:

* ``paper`` – RDP at integer orders with the classic conversion, as published by Kerkouche et al. (2021);
* ``rdp`` – the same mechanism with fractional orders and the improved conversion;
* ``pld`` – privacy loss distributions, rounded to the pessimistic side. **This is the figure we claim.**

Poisson sampling is accounted for adding, removing or zeroing one client (sensitivity S); sampling of a fixed size for
replacing one (sensitivity 2S), because there a drawn client displaces another.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

import dp_accounting
import numpy as np
import scipy.optimize
from dp_accounting import NeighboringRelation
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant, compute_epsilon
from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS
from numpy.typing import NDArray
from scipy.special import log_ndtr

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.privacy.sampling import SamplingKind
from lowkey.rounding import round_up

_INTEGER_ORDERS = tuple(float(order) for order in range(2, 65))
_FINE_ORDERS = tuple(float(order) for order in DEFAULT_RDP_ORDERS)
_PLD_INTERVAL = 1e-4


@dataclass(frozen=True, kw_only=True)
class Event:
    """Rounds of one kind: ``count`` releases of a noisy sum over a random cohort.

    Parameters
    ----------
    kind : "poisson" or "fixed", the sampling that was really done.
    noise_multiplier : z > 0.
    sampling_probability : chance of a client to contribute, in (0, 1].
    population : number of clients; needed for "fixed".
    count : how many rounds.
    """

    kind: SamplingKind = "poisson"
    noise_multiplier: float
    sampling_probability: float
    population: int | None = None
    count: int = 1

    def __post_init__(self) -> None:
        if self.kind not in ("poisson", "fixed"):
            raise InvalidInput(f"event kind is {self.kind!r}; it must be 'poisson' or 'fixed'")
        checks.positive("noise multiplier", self.noise_multiplier)
        checks.fraction("sampling probability", self.sampling_probability)
        checks.at_least("rounds", self.count, 1)
        if self.kind == "fixed" and self.population is None:
            raise InvalidInput("accounting for cohorts of a fixed size needs the number of clients")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


Counted: TypeAlias = tuple[tuple[Event, int], ...]


@dataclass(frozen=True)
class Epsilon:
    """ε at one δ by each accountant; ``paper`` is None where the published formula is not true of the sampling."""

    paper: float | None
    rdp: float
    pld: float

    @property
    def claimed(self) -> float:
        """The PLD figure, rounded up to 4 decimals."""
        return round_up(self.pld, 4)


def epsilon(events: Iterable[Event], delta: float) -> Epsilon:
    """ε of all events together.

    Parameters
    ----------
    events : any order; an empty list has spent nothing.
    delta : in (0, 1).
    """
    counted = _count(events, delta)
    if not counted:
        return Epsilon(paper=0.0, rdp=0.0, pld=0.0)
    poisson = counted[0][0].kind == "poisson"
    return Epsilon(
        paper=_classic(counted, delta) if poisson else None,
        rdp=_improved(counted, delta),
        pld=_pld(counted, delta),
    )


def claimed_epsilon(events: Iterable[Event], delta: float) -> float:
    """The PLD figure alone: what targets are measured by."""
    counted = _count(events, delta)
    return _pld(counted, delta) if counted else 0.0


def _count(events: Iterable[Event], delta: float) -> Counted:
    """Distinct events with their number, in a fixed order."""
    checks.fraction("delta", delta, include_one=False)
    merged: dict[Event, int] = {}
    for event in events:
        key = replace(event, count=1)
        merged[key] = merged.get(key, 0) + event.count
    if len({event.kind for event in merged}) > 1:
        raise InvalidInput(
            "cannot add up rounds with Poisson and with fixed-size cohorts: their ε are about different neighbours; "
            "keep one kind of sampling for one population"
        )
    return tuple(sorted(merged.items(), key=str))


def _total_rdp(counted: Counted, orders: tuple[float, ...]) -> NDArray[np.float64]:
    total = np.zeros(len(orders))
    for event, count in counted:
        total += count * _rdp(event, orders)
    return total


def _classic(counted: Counted, delta: float) -> float:
    """min over α of T·RDP(α) + log(1/δ)/(α−1); Abadi et al. (2016), Theorem 2."""
    orders = np.array(_INTEGER_ORDERS)
    return float(np.min(_total_rdp(counted, _INTEGER_ORDERS) - math.log(delta) / (orders - 1)))


def _improved(counted: Counted, delta: float) -> float:
    orders = _FINE_ORDERS if counted[0][0].kind == "poisson" else _INTEGER_ORDERS
    return float(compute_epsilon(orders, _total_rdp(counted, orders), delta)[0])


@lru_cache(maxsize=64)
def _rdp(event: Event, orders: tuple[float, ...]) -> NDArray[np.float64]:
    """RDP of one round at each order; infinite at orders where dp-accounting finds no bound, which is safe."""
    logging.getLogger("absl").setLevel(logging.ERROR)  # it warns of each such order
    if event.kind == "poisson":
        accountant = RdpAccountant(orders)
        gaussian = dp_accounting.GaussianDpEvent(event.noise_multiplier)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(event.sampling_probability, gaussian))
    else:
        # This accountant takes S for the sensitivity of replacing one client; it is 2S, hence half the multiplier
        # (google/differential-privacy, issue 378).
        assert event.population is not None
        size = round(event.sampling_probability * event.population)
        accountant = RdpAccountant(orders, NeighboringRelation.REPLACE_ONE)
        gaussian = dp_accounting.GaussianDpEvent(event.noise_multiplier / 2)
        accountant.compose(dp_accounting.SampledWithoutReplacementDpEvent(event.population, size, gaussian))
    return np.asarray(accountant._rdp, dtype=np.float64)  # no public accessor in dp-accounting 0.6


@lru_cache(maxsize=4096)
def _pld(counted: Counted, delta: float) -> float:
    total = privacy_loss_distribution.identity(_PLD_INTERVAL)
    for event, count in counted:
        total = total.compose(_round_pld(event).self_compose(count))
    return float(total.get_epsilon_for_delta(delta))


@lru_cache(maxsize=64)
def _round_pld(event: Event) -> privacy_loss_distribution.PrivacyLossDistribution:
    if event.kind == "poisson":
        return privacy_loss_distribution.from_gaussian_mechanism(
            event.noise_multiplier,
            sampling_prob=event.sampling_probability,
            value_discretization_interval=_PLD_INTERVAL,
        )
    return _fixed_size_pld(event.noise_multiplier, event.sampling_probability)


def _fixed_size_pld(noise_multiplier: float, q: float) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Replace-one PLD of a Gaussian sum over a cohort of fixed size.

    The dominating profile is the larger of both directions of subsampling a Gaussian of sensitivity 2S; Zhu, Dong and
    Wang (2022), *Optimal accounting of differential privacy via characteristic function*, Section 4.
    """
    mu = 2.0 / noise_multiplier

    def gaussian(eps: NDArray[np.float64]) -> NDArray[np.float64]:  # hockey-stick divergence at e^eps
        return np.exp(log_ndtr(mu / 2 - eps / mu)) - np.exp(eps + log_ndtr(-mu / 2 - eps / mu))

    def subsampled(eps: NDArray[np.float64]) -> NDArray[np.float64]:
        inner = np.expm1(eps) + q
        amplified = q * gaussian(np.log(np.maximum(inner, 1e-300) / q))
        return np.where(inner > 0, amplified, -np.expm1(eps))

    reach = math.ceil((mu * mu / 2 + 9 * mu) / _PLD_INTERVAL)
    steps = np.arange(-reach, reach + 1)
    eps: NDArray[np.float64] = steps.astype(np.float64) * _PLD_INTERVAL
    profile = np.maximum(subsampled(eps), -np.expm1(eps) + np.exp(eps) * subsampled(-eps))
    # the tail of the profile is below 1e-18, where differences of nearly equal numbers leave only rounding
    profile = np.minimum.accumulate(np.clip(profile, 1e-18, 1.0))
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(_PLD_INTERVAL, steps, profile)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)


def calibrate_noise(
    *,
    target_epsilon: float,
    delta: float,
    sampling_probability: float,
    rounds: int,
    kind: SamplingKind = "poisson",
    population: int | None = None,
) -> float:
    """Smallest noise multiplier, up to 4 decimals, whose PLD ε over all rounds is at most the target."""
    checks.positive("epsilon", target_epsilon)

    def spent(z: float) -> float:
        event = Event(
            kind=kind,
            noise_multiplier=z,
            sampling_probability=sampling_probability,
            population=population,
            count=rounds,
        )
        return claimed_epsilon([event], delta)

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
