"""ε in other views: for the server, which knows who took part; for groups of clients; for a search over runs."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import scipy.stats
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.privacy.accounting import claimed_epsilon
from lowkey.privacy.distributions import cut_probability, gaussian_epsilon
from lowkey.privacy.events import SMALLEST_DELTA, Event, require_delta

_GROUP_INTERVAL = 1e-3  # times the size; pessimistic at any width, and mixtures of many Gaussians are slow


def server_epsilon(noise_multiplier: float, participations: int, delta: float, *, coin: float = 1.0) -> float:
    """ε of one client for those who know in which rounds it was asked: the server, and members of its rosters.

    Parameters
    ----------
    noise_multiplier : float
        z > 0.
    participations : int
        In how many attempts the client was asked for its data; 0 spends nothing.
    delta : float
        In [1e-12, 1).
    coin : float
        Chance that the client contributes when asked, by a coin that nobody else sees.

    Guarantees
    ----------
    Neighbours: the client's contributions present or zero. Drawing at random hides nothing from the server that draws,
    so without a coin each participation is a full Gaussian mechanism (exact composition, μ = √k/z); with one it is
    Poisson sampling with the coin's chance. It needs secure aggregation: a server that sees single vectors sees more.
    """
    checks.positive("noise multiplier", noise_multiplier)
    require_delta(delta)
    checks.fraction("coin", coin)
    checks.at_least("participations", participations, 0)
    if participations == 0:
        return 0.0
    if coin == 1.0:
        return gaussian_epsilon(math.sqrt(participations) / noise_multiplier, delta)
    event = Event(noise_multiplier=noise_multiplier, sampling_probability=coin, coin=coin, count=participations)
    return claimed_epsilon([event], delta)


def server_view(events: Iterable[Event], delta: float) -> float:
    """ε of one client that was asked in all these rounds, for those who know it: see :func:`server_epsilon`."""
    asked = [*events]
    require_delta(delta)
    if not asked:
        return 0.0
    if all(event.coin == 1.0 for event in asked):
        left = delta - sum(event.count * event.failure for event in asked)
        mu = math.sqrt(sum(event.count / event.noise_multiplier**2 for event in asked))
        return gaussian_epsilon(mu, left) if left > 0.0 else math.inf
    thinned = [
        Event(
            noise_multiplier=e.noise_multiplier,
            sampling_probability=e.coin,
            coin=e.coin,
            count=e.count,
            failure=e.failure,
        )
        for e in asked
    ]
    return claimed_epsilon(thinned, delta)


def likely_participations(rounds: int, probability: float, *, quantile: float = 0.999) -> int:
    """With chance ``quantile``, a client is asked in this many rounds or fewer; a sensible limit for clients to set.

    Parameters
    ----------
    rounds : int
        Rounds of the whole run.
    probability : float
        Chance that a client is asked in a round, ``Sampling.probability``.
    quantile : float
        In (0, 1).
    """
    checks.at_least("rounds", rounds, 0)
    checks.fraction("sampling probability", probability)
    checks.fraction("quantile", quantile, include_one=False)
    return int(scipy.stats.binom.ppf(quantile, rounds, probability))


def group_epsilon(event: Event, size: int, delta: float) -> float:
    """ε of ``size`` clients together, such as those of one owner: all their contributions present or all zero.

    Each of them is drawn by itself, so the sum moves by a binomial number of clip norms.
    """
    checks.at_least("group", size, 1)
    require_delta(delta)
    if event.kind != "poisson" or event.adjacency != "zero-out":
        raise InvalidInput(
            "the ε of a group is known only for Poisson sampling and zeroed contributions; use such an event"
        )
    moved = np.arange(size + 1)
    chances = scipy.stats.binom.pmf(moved, size, event.sampling_probability)
    one_round = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        event.noise_multiplier,
        [float(m) for m in moved],
        [float(c) for c in chances / chances.sum()],
        value_discretization_interval=_GROUP_INTERVAL * size,
    )
    remaining = _remaining(delta, event.count * (cut_probability(event, size) + event.failure), event)
    return float(one_round.self_compose(event.count).get_epsilon_for_delta(remaining))


def search_epsilon(event: Event, mean_runs: float, delta: float) -> float:
    """ε of the best of many runs of ``event``, whose number is drawn from a geometric distribution.

    Parameters
    ----------
    event : Event
        One whole run, with Poisson sampling.
    mean_runs : float
        Expected number of runs, at least 1.
    delta : float
        In [1e-12, 1).

    Guarantees
    ----------
    Only the best run may be published, by any rule, even one that looks at private data; the number of runs must be
    drawn anew, secretly, and is not chosen. By RDP; Papernot and Steinke (2022), Theorem 2.
    """
    require_delta(delta)
    if not 1 <= mean_runs < math.inf:
        raise InvalidInput(f"mean number of runs is {mean_runs}; it must be a number of at least 1")
    if event.kind != "poisson" or event.adjacency != "zero-out":
        raise InvalidInput(
            "the ε of a search is known only for Poisson sampling and zeroed contributions; use such an event"
        )
    # Given that no round cut the client, the number of runs is still geometric, with a mean that is no larger.
    remaining = _remaining(delta, mean_runs * event.count * (cut_probability(event) + event.failure), event)
    one_round = PoissonSampledDpEvent(event.sampling_probability, GaussianDpEvent(event.noise_multiplier))
    accountant = RdpAccountant()
    accountant.compose(RepeatAndSelectDpEvent(SelfComposedDpEvent(one_round, event.count), mean_runs, shape=1.0))
    return float(accountant.get_epsilon(remaining))


def _remaining(delta: float, cuts: float, event: Event) -> float:
    if delta - cuts < SMALLEST_DELTA:
        raise InvalidInput(
            f"delta is {delta:g}, and over these rounds a roster of {event.roster} overflows with a chance of "
            f"{cuts:.2g}; raise delta, or lower the number of rounds"
        )
    return delta - cuts
