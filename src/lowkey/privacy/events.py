"""What rounds release, as plain data: accountants read it, and ledgers store nothing else about the cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from lowkey import checks
from lowkey.errors import InvalidInput

EventKind: TypeAlias = Literal["poisson", "fixed"]
Adjacency: TypeAlias = Literal["zero-out", "replace-one"]
SMALLEST_DELTA = 1e-12


@dataclass(frozen=True, kw_only=True)
class Event:
    """Rounds of one kind: ``count`` releases of a noisy sum over a random cohort.

    Parameters
    ----------
    kind : EventKind
        The sampling that was really done: "poisson" (independent draws) or "fixed" (cohorts of a fixed size).
    noise_multiplier : float
        z > 0, the noise of the sum relative to the clip norm when only ``honest`` shares count.
    sampling_probability : float
        q in (0, 1], the chance that a client's data is in the sum.
    coin : float
        Chance that a candidate contributes, by a coin that only the candidate sees; candidates are drawn with q / coin.
    population : int or None
        N, the number of clients; needed for "fixed" and with a roster.
    roster : int or None
        M, members of a round; more candidates than this are cut down to M. None cuts nothing.
    honest : int or None
        κ, how many honest shares of noise the multiplier rests on; recorded only, ε does not depend on it.
    count : int
        How many rounds.
    unit : str
        What is protected, in one word: a "client" with all its data, a "person" at the clients, or a row of their data.
    failure : float
        Chance, for each round, that the server learns more than this; added to δ. 0 but for masks of a random graph.
    adjacency : Adjacency
        "zero-out" (the client's contribution becomes zeros; sensitivity S) or "replace-one" (it becomes any other;
        sensitivity 2S). Cohorts of a fixed size have only the second: there a drawn client displaces another.
    """

    kind: EventKind = "poisson"
    noise_multiplier: float
    sampling_probability: float
    coin: float = 1.0
    population: int | None = None
    roster: int | None = None
    honest: int | None = None
    count: int = 1
    unit: str = "client"
    failure: float = 0.0
    adjacency: Adjacency = "zero-out"

    def __post_init__(self) -> None:
        for name, allowed in (("kind", EventKind), ("adjacency", Adjacency)):
            if getattr(self, name) not in get_args(allowed):
                options = " or ".join(map(repr, get_args(allowed)))
                raise InvalidInput(f"event {name} is {getattr(self, name)!r}; it must be {options}")
        if not isinstance(self.unit, str) or not self.unit.isalpha():
            raise InvalidInput(f"event unit is {self.unit!r}; it must be one word, such as 'client'")
        for name in ("noise_multiplier", "sampling_probability", "coin", "failure"):
            _number(name, getattr(self, name), int | float)
        for name in ("population", "roster", "honest", "count"):
            if name == "count" or getattr(self, name) is not None:
                _number(name, getattr(self, name), int)
        checks.positive("noise multiplier", self.noise_multiplier)
        checks.fraction("sampling probability", self.sampling_probability)
        checks.fraction("coin", self.coin)
        checks.fraction("failure", self.failure, include_zero=True)
        checks.at_least("rounds", self.count, 1)
        self._check_members()
        if self.sampling_probability > self.coin * (1 + 1e-12):
            raise InvalidInput(
                f"sampling probability is {self.sampling_probability}; it must be at most the coin, {self.coin}"
            )
        if self.kind == "fixed" and (self.population is None or self.adjacency != "replace-one" or self.coin != 1.0):
            raise InvalidInput(
                "a fixed-size event must have the number of clients, adjacency 'replace-one' and no coin"
            )

    def _check_members(self) -> None:
        if self.population is not None:
            checks.at_least("number of clients", self.population, 1)
        if self.roster is not None and (self.population is None or not 1 <= self.roster <= self.population):
            raise InvalidInput(f"roster is {self.roster}; it must lie between 1 and the number of clients")
        if self.honest is not None and not 1 <= self.honest <= (self.roster or math.inf):
            raise InvalidInput(f"honest is {self.honest}; it must lie between 1 and the size of the roster")

    @property
    def mode(self) -> str:
        """The sampling, by its name in configurations."""
        if self.kind == "fixed":
            return "fixed"
        if self.coin < 1.0:
            return "secret_poisson"
        return "all" if self.sampling_probability == 1.0 else "poisson_padded"

    @property
    def candidate_probability(self) -> float:
        """ρ = q / coin, the chance that a client is asked for its data."""
        return min(1.0, self.sampling_probability / self.coin)

    @property
    def sensitivity(self) -> float:
        """By how many clip norms the sum of a cohort can move."""
        return 1.0 if self.adjacency == "zero-out" else 2.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Event:
        """The event that ``to_json`` described; anything missing or unknown is refused."""
        names = {field.name for field in fields(cls)}
        if isinstance(table, Mapping) and "failure" not in table:  # of a ledger from before there were random graphs
            table = {**table, "failure": 0.0}
        if not isinstance(table, Mapping) or set(table) != names:
            found = set(table) if isinstance(table, Mapping) else set()
            raise InvalidInput(
                f"not an accounting event: it must have the fields {', '.join(sorted(names))} and no others "
                f"(missing: {', '.join(sorted(names - found)) or '–'}; "
                f"unknown: {', '.join(sorted(map(str, found - names))) or '–'})"
            )
        return cls(**table)


def _number(name: str, value: object, kind: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, kind):
        what = "a whole number" if kind is int else "a number"
        raise InvalidInput(f"event {name} is {value!r}; it must be {what}")


def require_delta(delta: float, name: str = "delta") -> None:
    """Refuse a δ that is no chance, or so small that rounding errors of the accountant would make ε too small."""
    checks.fraction(name, delta, include_one=False)
    if delta < SMALLEST_DELTA:
        raise InvalidInput(
            f"{name} is {delta:g}; it must be at least {SMALLEST_DELTA:g}: below, ε would come out too small"
        )


def require_small_delta(delta: float, population: int, *, unit: str = "client", allow_large: bool = False) -> None:
    """Refuse a δ that would call it private to publish one of ``population`` clients, or other units, at random."""
    require_delta(delta, "privacy.delta")
    if delta >= 1 / population and not allow_large:
        raise InvalidInput(
            f"privacy.delta is {delta:g}; with {population} {unit}s it must be below {1 / population:g}, or publishing "
            f"one {unit} at random would count as private"
        )
