"""What client and server ask of the privacy of a scheme, and the twin that promises nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import numpy as np

from lowkey import checks
from lowkey.errors import CannotContribute, InvalidInput
from lowkey.privacy.events import Event
from lowkey.privacy.records import Bounded, Measurement, Noised, Open, WireFormat
from lowkey.privacy.sampling import Sampling
from lowkey.privacy.shares import NoiseShares
from lowkey.rng import BitSource
from lowkey.types import FloatArray, Words

if TYPE_CHECKING:
    from lowkey.privacy.proofs import NormBound


class Mean(NamedTuple):
    """What the server reads from a sum: the mean, the noise in each of its numbers, and S of the next round."""

    value: FloatArray
    noise: float
    clip_norm: float | None


class Promise(NamedTuple):
    """What a client that takes part can hold the server to; see :class:`lowkey.privacy.Terms`."""

    noise_multiplier: float
    clip_rule: str
    delta: float
    shares: NoiseShares
    unit: str = "client"
    persons: int | None = None


class Privacy(Protocol):
    """What happens to a client's vector, who takes part, and what a round costs."""

    @property
    def sampling(self) -> Sampling: ...

    @property
    def private(self) -> bool:
        """Whether anything is promised."""
        ...

    @property
    def aggregation(self) -> str:
        """How vectors are added up, by its name in the registry of aggregators."""
        ...

    @property
    def clip_norm(self) -> float | None:
        """S of the first round; None where nothing is clipped."""
        ...

    @property
    def epsilon(self) -> float | None:
        """Target ε of a run, for people who see the released models; None for no target."""
        ...

    @property
    def delta(self) -> float: ...

    @property
    def max_contributions(self) -> int | None:
        """In how many rounds one client's data may be used; None for no limit."""
        ...

    @property
    def min_survivors(self) -> int:
        """How many survivors a round needs; with fewer it fails."""
        ...

    @property
    def bits(self) -> int | None:
        """Bits of a number on the wire; None for float32."""
        ...

    @property
    def by_person(self) -> bool:
        """Whether clients bound what each of their persons adds, and not what they add themselves."""
        ...

    def require_clip(self, clip_norm: float | None) -> None:
        """Refuse a clip norm that is not the agreed one; called for every member, whether it contributes or not."""
        ...

    def wire(self, num_measurements: int) -> WireFormat:
        """What a vector looks like on the wire."""
        ...

    def sum_of_persons(
        self, measurements: Iterable[Measurement], *, length: int, clip_norm: float | None, source: BitSource
    ) -> Bounded:
        """The persons of a client, each bounded by itself and then added up; where persons are protected."""
        ...

    def protect(
        self, measurement: Measurement | Bounded | None, *, length: int, clip_norm: float | None, source: BitSource
    ) -> Open | Noised:
        """What a client sends for its measurement, for the sum of its persons, or for no measurement."""
        ...

    def norm_bound(self, num_measurements: int) -> NormBound | None:
        """What every member proves about its vector; None where nothing is proven."""
        ...

    def read_sum(
        self, total: FloatArray | Words, *, length: int, clip_norm: float | None, survivors: int, weight: float
    ) -> Mean:
        """The mean that a sum of ``survivors`` vectors stands for; it is divided here, once, by a public number."""
        ...

    def event(self) -> Event | None:
        """What one round costs; None where no finite ε is true."""
        ...

    def promise(self) -> Promise | None:
        """What members of a round agree on; None where nothing is promised."""
        ...


@dataclass(frozen=True, kw_only=True)
class NoPrivacy:
    """The identity twin: vectors pass as they are, nothing is promised and nothing is spent.

    Parameters
    ----------
    sampling : Sampling
        Draws the cohorts.
    min_survivors : int
        How many answers a round needs; with fewer it fails.
    """

    sampling: Sampling
    min_survivors: int = 1
    private: bool = field(default=False, init=False)
    aggregation: str = field(default="open", init=False)
    clip_norm: None = field(default=None, init=False)
    epsilon: None = field(default=None, init=False)
    delta: float = field(default=0.0, init=False)
    max_contributions: None = field(default=None, init=False)
    bits: None = field(default=None, init=False)
    by_person: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        checks.at_least("federation.min_clients", self.min_survivors, 1)
        if self.min_survivors > self.sampling.roster_size:
            raise InvalidInput(
                f"federation.min_clients is {self.min_survivors}; it must lie in 1 … {self.sampling.roster_size}, "
                "the cohort"
            )

    def require_clip(self, clip_norm: float | None) -> None:
        if clip_norm is not None:
            raise InvalidInput(f"the request has a clip norm, {clip_norm}, but nothing is clipped in this scheme")

    def wire(self, num_measurements: int) -> WireFormat:
        return WireFormat(bits=None, length=num_measurements)

    def sum_of_persons(
        self, measurements: Iterable[Measurement], *, length: int, clip_norm: float | None, source: BitSource
    ) -> Bounded:
        raise InvalidInput("nothing is bounded in a scheme without privacy, so that persons are not told apart")

    def protect(
        self, measurement: Measurement | Bounded | None, *, length: int, clip_norm: float | None, source: BitSource
    ) -> Open:
        if not isinstance(measurement, Measurement):
            raise CannotContribute("it has nothing to send, and a scheme without privacy cannot hide that")
        checks.vector_of("the measurement", measurement.value, length)
        checks.finite("update", measurement.value)
        return Open(measurement.value)

    def norm_bound(self, num_measurements: int) -> None:
        return None

    def read_sum(
        self, total: FloatArray | Words, *, length: int, clip_norm: float | None, survivors: int, weight: float
    ) -> Mean:
        checks.vector_of("the sum", cast(FloatArray, total), length)
        return Mean(cast(FloatArray, total) / np.float32(weight), 0.0, clip_norm)

    def event(self) -> None:
        return None

    def promise(self) -> None:
        return None
