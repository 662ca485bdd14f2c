"""Who takes part in a round. A sampler draws cohorts *and* names the accounting event that is true for its draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeAlias

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.rng import BitSource, coin_flips, subset
from lowkey.types import ClientId

SamplingKind: TypeAlias = Literal["poisson", "fixed"]


@dataclass(frozen=True)
class Cohort:
    """Members of a round: those whose data counts, and those who only add their share of noise."""

    contributors: tuple[ClientId, ...]
    noise_only: tuple[ClientId, ...] = ()

    @property
    def size(self) -> int:
        return len(self.contributors) + len(self.noise_only)


class Sampling(Protocol):
    """Draws the cohort of a round out of ``population`` clients."""

    kind: ClassVar[SamplingKind]

    @property
    def population(self) -> int: ...

    @property
    def probability(self) -> float:
        """Chance of one client to contribute to a round."""
        ...

    @property
    def expected_size(self) -> float:
        """Public number by which sums are divided; never the realised size."""
        ...

    def draw(self, source: BitSource) -> Cohort: ...


@dataclass(frozen=True, kw_only=True)
class PoissonSampling:
    """Every client contributes with the same probability, independently of all others.

    When nobody was drawn, one client still answers with noise alone, so that an empty round looks like any other.
    """

    population: int
    probability: float
    kind: ClassVar[SamplingKind] = "poisson"

    def __post_init__(self) -> None:
        checks.at_least("number of clients", self.population, 1)
        checks.fraction("sampling probability", self.probability)

    @property
    def expected_size(self) -> float:
        return self.probability * self.population

    def draw(self, source: BitSource) -> Cohort:
        drawn = tuple(coin_flips(source, self.population, self.probability).tolist())
        return Cohort(drawn) if drawn else Cohort((), tuple(subset(source, self.population, 1).tolist()))


@dataclass(frozen=True, kw_only=True)
class FixedSizeSampling:
    """A uniformly random set of exactly ``size`` clients, as in the paper's algorithm."""

    population: int
    size: int
    kind: ClassVar[SamplingKind] = "fixed"

    def __post_init__(self) -> None:
        checks.at_least("number of clients", self.population, 1)
        if not 1 <= self.size <= self.population:
            raise InvalidInput(
                f"federation.cohort is {self.size}; it must lie between 1 and the number of clients, {self.population}"
            )

    @property
    def probability(self) -> float:
        return self.size / self.population

    @property
    def expected_size(self) -> float:
        return float(self.size)

    def draw(self, source: BitSource) -> Cohort:
        return Cohort(tuple(subset(source, self.population, self.size).tolist()))
