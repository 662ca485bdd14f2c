"""ε for others than the public: the server that knows who took part, groups of clients, a search over runs."""

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
from lowkey.privacy.events import Event

_GROUP_INTERVAL = 1e-3  # times the size; pessimistic at any width, and mixtures of many Gaussians are slow


def server_epsilon(noise_multiplier: float, participations: int, delta: float, *, coin: float = 1.0) -> float:
    """ε of one client against those who know in which rounds it was asked: the server, and members of its rosters.

    Parameters
    ----------
    noise_multiplier : z > 0.
    participations : in how many rounds it was asked for its data; 0 spends nothing.
    delta : in (0, 1).
    coin : chance to contribute when asked, by a coin nobody else sees.

    Guarantees
    ----------
    Neighbours: the client's contributions present or zero. Being drawn at random hides nothing from who has drawn, so
    without a coin each participation is a Gaussian mechanism in full (exact composition, μ = √k/z); with one it is
    Poisson sampling with the coin's chance. It needs secure aggregation: a server that sees single vectors sees more.
    """
    checks.positive("noise multiplier", noise_multiplier)
    checks.fraction("delta", delta, include_one=False)
    checks.fraction("coin", coin)
    checks.at_least("participations", participations, 0)
    if participations == 0:
        return 0.0
    if coin == 1.0:
        return gaussian_epsilon(math.sqrt(participations) / noise_multiplier, delta)
    event = Event(noise_multiplier=noise_multiplier, sampling_probability=coin, coin=coin, count=participations)
    return claimed_epsilon([event], delta)


def server_view(events: Iterable[Event], delta: float) -> float:
    """ε of one client that was asked in all these rounds, against those who know it: see :func:`server_epsilon`."""
    asked = [*events]
    checks.fraction("delta", delta, include_one=False)
    if not asked:
        return 0.0
    if all(event.coin == 1.0 for event in asked):
        return gaussian_epsilon(math.sqrt(sum(event.count / event.noise_multiplier**2 for event in asked)), delta)
    thinned = [
        Event(noise_multiplier=e.noise_multiplier, sampling_probability=e.coin, coin=e.coin, count=e.count)
        for e in asked
    ]
    return claimed_epsilon(thinned, delta)


def likely_participations(rounds: int, probability: float, *, quantile: float = 0.999) -> int:
    """So many rounds or fewer ask a client for its data with chance ``quantile``; a sensible cap for clients to set.

    Parameters
    ----------
    rounds : of the whole run.
    probability : chance to be asked in a round, ``Sampling.probability``.
    quantile : in (0, 1).
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
    checks.fraction("delta", delta, include_one=False)
    if event.kind != "poisson" or event.adjacency != "zero-out":
        raise InvalidInput("the ε of a group is known for Poisson sampling and zeroed contributions alone")
    moved = np.arange(size + 1)
    chances = scipy.stats.binom.pmf(moved, size, event.sampling_probability)
    one_round = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        event.noise_multiplier,
        [float(m) for m in moved],
        [float(c) for c in chances / chances.sum()],
        value_discretization_interval=_GROUP_INTERVAL * size,
    )
    remaining = _remaining(delta, event.count * cut_probability(event, size), event)
    return float(one_round.self_compose(event.count).get_epsilon_for_delta(remaining))


def search_epsilon(event: Event, mean_runs: float, delta: float) -> float:
    """ε of the best of many runs of ``event``, whose number is drawn from a geometric distribution.

    Parameters
    ----------
    event : one whole run; Poisson sampling.
    mean_runs : expected number of runs, at least 1.
    delta : in (0, 1).

    Guarantees
    ----------
    Only the best run may be published, by any rule, even one that looks at private data; the number of runs must be
    drawn anew, secretly, and is not chosen. By RDP; Papernot and Steinke (2022), Theorem 2.
    """
    checks.fraction("delta", delta, include_one=False)
    if not 1 <= mean_runs < math.inf:
        raise InvalidInput(f"mean number of runs is {mean_runs}; it must be a number of at least 1")
    if event.kind != "poisson" or event.adjacency != "zero-out":
        raise InvalidInput("the ε of a search is known for Poisson sampling and zeroed contributions alone")
    # Given that no round cut the client, the number of runs is geometric still, with a mean no larger.
    remaining = _remaining(delta, mean_runs * event.count * cut_probability(event), event)
    one_round = PoissonSampledDpEvent(event.sampling_probability, GaussianDpEvent(event.noise_multiplier))
    accountant = RdpAccountant()
    accountant.compose(RepeatAndSelectDpEvent(SelfComposedDpEvent(one_round, event.count), mean_runs, shape=1.0))
    return float(accountant.get_epsilon(remaining))


def _remaining(delta: float, cuts: float, event: Event) -> float:
    if cuts >= delta:
        raise InvalidInput(
            f"delta is {delta:g}, but in so many rounds a roster of {event.roster} overflows with a larger chance; "
            "raise delta, or lower the number of rounds"
        )
    return delta - cuts
