"""Who takes part in a round. A sampler draws cohorts *and* names the accounting event that is true for its draws.

Independent draws ("Poisson") make cohorts of a random size, and that size must stay secret: noise comes in shares, so
the noise of a sum would tell how many there were. Every round therefore has a *roster* of constant size. Those who
were not drawn but fill it up add their share of noise to zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.privacy.events import Event
from lowkey.registry import Registry
from lowkey.rng import BitSource, coin_flips, subset
from lowkey.types import ClientId

_ROSTER_DEVIATIONS = 6.0  # a drawn cohort exceeds the roster in about one of 10⁸ rounds


@dataclass(frozen=True)
class Cohort:
    """Members of a round: those that are asked for their data, and those that only add their share of noise."""

    contributors: tuple[ClientId, ...]
    noise_only: tuple[ClientId, ...] = ()

    @property
    def size(self) -> int:
        return len(self.contributors) + len(self.noise_only)

    @property
    def roster(self) -> tuple[ClientId, ...]:
        """All members, sorted, so that the order tells no roles."""
        return tuple(sorted((*self.contributors, *self.noise_only)))


class Sampling(Protocol):
    """Draws the cohort of a round out of ``population`` clients."""

    @property
    def mode(self) -> str: ...

    @property
    def population(self) -> int: ...

    @property
    def probability(self) -> float:
        """ρ, the chance that a client is asked for its data."""
        ...

    @property
    def coin(self) -> float:
        """p, the chance that a client contributes when asked; below 1 it calls :func:`flip_coin` in secret."""
        ...

    @property
    def roster_size(self) -> int:
        """M, the number of members of every round; public."""
        ...

    @property
    def expected_size(self) -> float:
        """q·N, the public number by which sums are divided; never the realised size."""
        ...

    def draw(self, source: BitSource) -> Cohort: ...

    def event(self, noise_multiplier: float, *, honest: int | None = None) -> Event:
        """What one round costs with this noise, of which ``honest`` shares are enough."""
        ...


@dataclass(frozen=True, kw_only=True)
class PoissonSampling:
    """Every client is drawn with the same probability, independently of all others.

    Parameters
    ----------
    population : int
        N, the number of enrolled clients.
    probability : float
        ρ in (0, 1], the chance that a client is drawn as a candidate; 1 draws everybody.
    coin : float
        p in (0, 1], the chance that a candidate contributes. Below 1 each candidate flips its own coin.

    Guarantees
    ----------
    Every round has ``roster_size`` members whatever was drawn: others fill it up with noise on zeros, and of too many
    candidates a uniform subset stays. A client's data is in the sum with chance q = ρ·coin, less where candidates
    were cut; ``event`` says so to the accountant. ρ hides nothing from those who know the roles (the server that
    draws), but nobody except the client knows its coin.
    """

    population: int
    probability: float
    coin: float = 1.0

    def __post_init__(self) -> None:
        checks.at_least("number of clients", self.population, 1)
        checks.fraction("sampling probability", self.probability)
        checks.fraction("coin", self.coin)

    @property
    def mode(self) -> str:
        return self.event(1.0).mode

    @property
    def roster_size(self) -> int:
        if self.probability == 1.0:
            return self.population
        mean = self.probability * self.population
        deviation = math.sqrt(mean * (1.0 - self.probability))
        return min(self.population, math.ceil(mean + _ROSTER_DEVIATIONS * deviation))

    @property
    def expected_size(self) -> float:
        return self.probability * self.coin * self.population

    def draw(self, source: BitSource) -> Cohort:
        drawn = coin_flips(source, self.population, self.probability)
        size = self.roster_size
        if drawn.size > size:
            drawn = drawn[subset(source, drawn.size, size)]
        others = np.setdiff1d(np.arange(self.population), drawn, assume_unique=True)
        fillers = others[subset(source, others.size, size - drawn.size)]
        return Cohort(tuple(drawn.tolist()), tuple(fillers.tolist()))

    def event(self, noise_multiplier: float, *, honest: int | None = None) -> Event:
        return Event(
            kind="poisson",
            noise_multiplier=noise_multiplier,
            sampling_probability=self.probability * self.coin,
            coin=self.coin,
            population=self.population,
            roster=self.roster_size,
            honest=honest,
        )


@dataclass(frozen=True, kw_only=True)
class FixedSizeSampling:
    """A uniformly random set of exactly ``size`` clients, as in the paper's algorithm.

    The paper's ε does not hold for it: a drawn client displaces another, so the accounting is for replacing one client.
    """

    population: int
    size: int

    def __post_init__(self) -> None:
        checks.at_least("number of clients", self.population, 1)
        _check_cohort(self.size, self.population)

    @property
    def mode(self) -> str:
        return "fixed"

    @property
    def probability(self) -> float:
        return self.size / self.population

    @property
    def coin(self) -> float:
        return 1.0

    @property
    def roster_size(self) -> int:
        return self.size

    @property
    def expected_size(self) -> float:
        return float(self.size)

    def draw(self, source: BitSource) -> Cohort:
        return Cohort(tuple(subset(source, self.population, self.size).tolist()))

    def event(self, noise_multiplier: float, *, honest: int | None = None) -> Event:
        return Event(
            kind="fixed",
            noise_multiplier=noise_multiplier,
            sampling_probability=self.probability,
            population=self.population,
            roster=self.size,
            honest=honest,
            adjacency="replace-one",
        )


def _everybody(population: int, cohort: int) -> Sampling:
    if cohort != population:
        raise InvalidInput(
            f"privacy.sampling is 'all', but federation.cohort is {cohort} of {population} clients; set the cohort to "
            "the number of clients, or choose 'poisson_padded'"
        )
    return PoissonSampling(population=population, probability=1.0)


def _poisson_padded(population: int, cohort: int) -> Sampling:
    return PoissonSampling(population=population, probability=cohort / population)


def _secret_poisson(population: int, cohort: int, roster: int | None = None) -> Sampling:
    asked = population if roster is None else roster
    if not cohort < asked <= population:
        raise InvalidInput(
            f"the roster of 'secret_poisson' is {asked}; it must be above federation.cohort, {cohort}, and at most the "
            f"number of clients, {population}"
        )
    return PoissonSampling(population=population, probability=asked / population, coin=cohort / asked)


def _fixed(population: int, cohort: int) -> Sampling:
    return FixedSizeSampling(population=population, size=cohort)


@dataclass(frozen=True)
class SamplingMode:
    """A way to draw rosters: a function of the number of clients and the cohort that makes it, and words about it."""

    make: Callable[..., Sampling]
    words: str
    takes_roster: bool = False


SAMPLINGS: Registry[SamplingMode] = Registry(
    "privacy.sampling",
    {
        "all": SamplingMode(_everybody, "everybody contributes to every round"),
        "poisson_padded": SamplingMode(
            _poisson_padded, "independent draws, rosters filled up with members that only add noise"
        ),
        "secret_poisson": SamplingMode(_secret_poisson, "coins that only the client sees", takes_roster=True),
        "fixed": SamplingMode(_fixed, "cohorts of a fixed size; the paper's ε does not hold for them"),
    },
)


def make_sampling(mode: str | None, *, population: int, cohort: int, roster: int | None = None) -> Sampling:
    """The sampling of a configuration.

    Parameters
    ----------
    mode : str or None
        "all" (everybody contributes to every round), "poisson_padded" (independent draws by the server),
        "secret_poisson" (coins of the clients), "fixed" (as in the paper's algorithm). None means "all" when the cohort
        is everybody, otherwise "poisson_padded".
    population : int
        N, enrolled clients.
    cohort : int
        q·N, the expected number of clients whose data enters a round.
    roster : int or None
        With "secret_poisson", the expected number of clients asked in a round; None asks everybody. Each of them
        contributes with chance cohort / roster.
    """
    checks.at_least("federation.clients", population, 1)
    _check_cohort(cohort, population)
    name = mode or ("all" if cohort == population else "poisson_padded")
    kind = SAMPLINGS[name]
    if roster is None:
        return kind.make(population, cohort)
    if not kind.takes_roster:
        raise InvalidInput(
            f"privacy.roster is {roster}, which needs privacy.sampling = 'secret_poisson'; it is {name!r}"
        )
    checks.at_least("privacy.roster", roster, 1)
    return kind.make(population, cohort, roster)


def flip_coin(source: BitSource, coin: float) -> bool:
    """Whether a candidate contributes this time: true with chance ``coin``, to 64 bits and never more.

    Guarantees
    ----------
    Call it at the client, with secret bits of its own. The answer must not leave the client: the coins hide nothing
    from anyone who knows them. A client whose coin fell on tails does everything else as if it had not.
    """
    checks.fraction("coin", coin)
    return bool(coin_flips(source, 1, coin).size)


def _check_cohort(cohort: int, population: int) -> None:
    checks.at_least("federation.cohort", cohort, 1)
    if not 1 <= cohort <= population:
        raise InvalidInput(
            f"federation.cohort is {cohort}; it must lie between 1 and the number of clients, {population}"
        )
