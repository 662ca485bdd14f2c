"""The ε that a list of rounds has spent at a given δ, by three accountants.

A round is recorded as an :class:`Event`, plain data. Analysis recomputes ε from the list, so only the list must be
stored. There are three figures, in decreasing order:

* ``paper`` – RDP at integer orders with the classic conversion, as published by Kerkouche et al. (2021);
* ``rdp`` – the same mechanism with fractional orders and the improved conversion;
* ``pld`` – privacy loss distributions, rounded to the pessimistic side. **This is the figure we claim.**

All three are for people who see the released models but not who took part; :mod:`lowkey.privacy.views` has the ε for
others.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import TypeAlias

import dp_accounting
import numpy as np
from dp_accounting import NeighboringRelation
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.rdp import RdpAccountant, compute_epsilon
from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS
from numpy.typing import NDArray

from lowkey.errors import InvalidInput
from lowkey.figures import round_up
from lowkey.privacy.distributions import (
    cut_probability,
    gaussian_epsilon,
    gaussian_losses,
    round_losses,
    round_pld,
)
from lowkey.privacy.events import SMALLEST_DELTA, Event, require_delta

_INTEGER_ORDERS = tuple(float(order) for order in range(2, 65))
_FINE_ORDERS = tuple(float(order) for order in DEFAULT_RDP_ORDERS)
_DROPPED = 1e-6  # of δ: losses rarer than this count as infinite, for speed

Counted: TypeAlias = tuple[tuple[Event, int], ...]


@dataclass(frozen=True)
class Epsilon:
    """ε at one δ by each accountant; ``paper`` and ``rdp`` are None where they have no figure for the sampling."""

    paper: float | None
    rdp: float | None
    pld: float

    @property
    def claimed(self) -> float:
        """The PLD figure, rounded up to 4 decimals."""
        return round_up(self.pld, 4)


def released_epsilon(events: Iterable[Event], delta: float) -> Epsilon:
    """ε of all events together, for people who see the released models but not who took part.

    Parameters
    ----------
    events : iterable of Event
        In any order; an empty list has spent nothing.
    delta : float
        In [1e-12, 1).
    """
    counted, left = _count(events, delta)
    if not counted:
        return Epsilon(paper=0.0, rdp=0.0, pld=0.0)
    claimed = _pld(counted, left)
    if math.isinf(claimed):
        raise InvalidInput(
            f"there is no finite epsilon at delta = {delta:g}: the noise is too small, or over all these rounds the "
            "roster overflows, or masks fail, with a larger chance; raise the noise or delta, or lower the number of "
            "rounds"
        )
    published = all(event.kind == "poisson" and event.adjacency == "zero-out" for event, _ in counted)
    return Epsilon(
        paper=_classic(counted, left) if published else None,
        rdp=_improved(counted, left),
        pld=claimed,
    )


def claimed_epsilon(events: Iterable[Event], delta: float) -> float:
    """The PLD figure alone, infinite where there is none; targets are compared with it."""
    counted, left = _count(events, delta)
    return _pld(counted, left) if counted else 0.0


def _count(events: Iterable[Event], delta: float) -> tuple[Counted, float]:
    """Distinct events with their number, in a fixed order; and what the chances of failure leave of δ."""
    require_delta(delta)
    merged: dict[Event, int] = {}
    for event in events:
        delta -= event.count * event.failure
        key = replace(event, count=1, failure=0.0)
        merged[key] = merged.get(key, 0) + event.count
    if len({event.adjacency for event in merged}) > 1:
        raise InvalidInput(
            "rounds accounted for zeroing one client and for replacing one client cannot be added up: their ε are "
            "about different neighbours; keep one adjacency for one population"
        )
    if len(units := {event.unit for event in merged}) > 1:
        raise InvalidInput(
            f"rounds that protect different units ({', '.join(sorted(units))}) cannot be added up; keep one unit for "
            "one population, or one ledger for each"
        )
    return tuple(sorted(merged.items(), key=str)), delta


def _total_rdp(counted: Counted, orders: tuple[float, ...]) -> NDArray[np.float64]:
    """RDP of all rounds at each order; for Poisson sampling as if no candidate were ever cut."""
    total = np.zeros(len(orders))
    for event, count in counted:
        total += count * _rdp(event, orders)
    return total


def _classic(counted: Counted, delta: float) -> float:
    """min over α of T·RDP(α) + log(1/δ)/(α−1); Abadi et al. (2016), Theorem 2."""
    orders = np.array(_INTEGER_ORDERS)
    return float(np.min(_total_rdp(counted, _INTEGER_ORDERS) - math.log(delta) / (orders - 1)))


def _improved(counted: Counted, delta: float) -> float | None:
    if any(event.kind == "poisson" and event.adjacency == "replace-one" for event, _ in counted):
        return None  # dp-accounting takes S for the sensitivity here, and it is 2S
    remaining = delta - sum(count * cut_probability(event) for event, count in counted)
    if remaining <= 0.0:
        return None
    fixed = any(event.kind == "fixed" for event, _ in counted)
    orders = _INTEGER_ORDERS if fixed else _FINE_ORDERS
    return float(compute_epsilon(orders, _total_rdp(counted, orders), remaining)[0])


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
        size = event.roster or round(event.sampling_probability * event.population)
        accountant = RdpAccountant(orders, NeighboringRelation.REPLACE_ONE)
        gaussian = dp_accounting.GaussianDpEvent(event.noise_multiplier / 2)
        accountant.compose(dp_accounting.SampledWithoutReplacementDpEvent(event.population, size, gaussian))
    return np.asarray(accountant._rdp, dtype=np.float64)  # no public accessor in dp-accounting 0.6


@lru_cache(maxsize=4096)
def _pld(counted: Counted, delta: float) -> float:
    """Rounds without sampling compose exactly, by their μ² = (sensitivity / noise)²; the others numerically."""
    if delta <= 0.0:
        return math.inf
    sampled = [(event, count) for event, count in counted if event.sampling_probability < 1]
    whole = [(event, count) for event, count in counted if event.sampling_probability == 1]
    mu = math.sqrt(sum(count * (event.sensitivity / event.noise_multiplier) ** 2 for event, count in whole))
    if not sampled:
        return gaussian_epsilon(mu, delta)
    remaining = delta - sum(count * cut_probability(event) for event, count in sampled if event.coin < 1.0)
    if remaining < SMALLEST_DELTA:
        return math.inf
    gaussian = [gaussian_losses(mu)] if mu > 0.0 else []
    interval = max(losses.interval for losses in (*gaussian, *(round_losses(event) for event, _ in sampled)))
    parts = [losses.distribution(interval) for losses in gaussian]
    parts += [round_pld(event, interval).self_compose(count, _DROPPED * delta) for event, count in sampled]
    return float(reduce(PrivacyLossDistribution.compose, parts).get_epsilon_for_delta(remaining))
