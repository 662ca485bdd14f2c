"""The privacy of a scheme in one place, so that sampler, clip, noise and accounting event cannot disagree.

:class:`Privacy` is the protocol that client and server use, whether or not anything is protected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol, cast

import numpy as np

from lowkey import checks
from lowkey.errors import CannotContribute, InvalidInput, RoundFailed
from lowkey.privacy.adaptive import AdaptiveClip
from lowkey.privacy.encoding import Encoding
from lowkey.privacy.events import Event, require_small_delta
from lowkey.privacy.records import Measurement, Noised, Open, WireFormat
from lowkey.privacy.sampling import Sampling
from lowkey.privacy.settings import LARGEST_CLIP, ClientPrivacy
from lowkey.privacy.shares import NoiseShares, noise_shares
from lowkey.rng import BitSource
from lowkey.types import FloatArray, Words

_IMPLAUSIBLE = 6.0  # standard deviations of the noise: beyond what honest members add up to
_VOTES = 20  # expected contributors over the noise of their votes, where the clip norm is adaptive


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

    def require_clip(self, clip_norm: float | None) -> None:
        """Refuse a clip norm that is not the agreed one; called for every member, whether it contributes or not."""
        ...

    def wire(self, num_measurements: int) -> WireFormat:
        """What a vector looks like on the wire."""
        ...

    def protect(
        self, measurement: Measurement | None, *, length: int, clip_norm: float | None, source: BitSource
    ) -> Open | Noised:
        """What a client sends for its measurement, or for no measurement."""
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

    def protect(
        self, measurement: Measurement | None, *, length: int, clip_norm: float | None, source: BitSource
    ) -> Open:
        if measurement is None:
            raise CannotContribute("it has nothing to send, and a scheme without privacy cannot hide that")
        checks.vector_of("the measurement", measurement.value, length)
        checks.finite_norm("update", measurement.value)
        return Open(measurement.value)

    def read_sum(
        self, total: FloatArray | Words, *, length: int, clip_norm: float | None, survivors: int, weight: float
    ) -> Mean:
        checks.vector_of("the sum", cast(FloatArray, total), length)
        return Mean(cast(FloatArray, total) / np.float32(weight), 0.0, clip_norm)

    def event(self) -> None:
        return None

    def promise(self) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class ClientMechanism:
    """Client-level privacy for a population of clients, as its settings say.

    Parameters
    ----------
    settings : ClientPrivacy
        Resolved: nothing in it is "auto". A noise multiplier of 0 is a limiting case for tests and audits.
    sampling : Sampling
        How rosters are drawn; also decides which accounting event is true.

    Guarantees
    ----------
    Unit: one client with all its data. A released sum carries the noise of at least ``shares.honest`` members that
    neither dropped out nor collude: discrete Gaussian noise of standard deviation at least z times the largest change
    that one client can make to it (its contribution present or replaced by zeros). ``event`` says what that costs
    people who see released models but not who took part; see docs/guarantees.md.
    """

    settings: ClientPrivacy
    sampling: Sampling
    private: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        open_choices = "auto" in (self.settings.noise_multiplier, self.settings.max_contributions)
        if open_choices or self.settings.bits is None:
            raise InvalidInput("the privacy settings have open choices; call ClientPrivacy.resolve first")
        require_small_delta(self.settings.delta, self.sampling.population)
        _ = self.shares  # refuses settings that leave no honest share of noise
        if self.adaptive is not None and self.noise_multiplier > 0:
            self.adaptive.value_multiplier(self.noise_multiplier)  # refuses noise that would hide the votes

    @property
    def aggregation(self) -> str:
        return self.settings.aggregation

    @property
    def clip_norm(self) -> float:
        return self.settings.clip_norm

    @property
    def noise_multiplier(self) -> float:
        return cast(float, self.settings.noise_multiplier)

    @property
    def epsilon(self) -> float | None:
        return self.settings.epsilon

    @property
    def delta(self) -> float:
        return self.settings.delta

    @property
    def bits(self) -> int:
        return cast(int, self.settings.bits)

    @property
    def max_contributions(self) -> int | None:
        limit = self.settings.max_contributions
        return None if limit == "unlimited" else int(limit)

    @cached_property
    def shares(self) -> NoiseShares:
        """How many members must survive, and how many of them are certainly honest."""
        settings = self.settings
        return noise_shares(self.sampling.roster_size, dropouts=settings.dropouts, colluders=settings.colluders)

    @property
    def min_survivors(self) -> int:
        return self.shares.min_survivors

    @cached_property
    def adaptive(self) -> AdaptiveClip | None:
        """How S follows the typical norm; None if S stays fixed."""
        expected = self.sampling.expected_size
        return AdaptiveClip(count_std=expected / _VOTES) if self.settings.clip == "adaptive" else None

    def encoding(self, num_measurements: int) -> Encoding:
        """Integers for measurements of this length."""
        return Encoding(
            length=num_measurements,
            members=self.sampling.roster_size,
            honest=self.shares.honest,
            noise_multiplier=self.noise_multiplier,
            bits=self.bits,
            adaptive=self.adaptive,
        )

    def require_clip(self, clip_norm: float | None) -> None:
        if clip_norm is None:
            raise InvalidInput("the request has no clip norm, which a private scheme needs")
        checks.positive("the clip norm of the request", clip_norm, most=LARGEST_CLIP)
        if self.adaptive is None and clip_norm != self.clip_norm:
            raise InvalidInput(f"the clip norm of the request is {clip_norm}; {self.clip_norm} was agreed")

    def wire(self, num_measurements: int) -> WireFormat:
        return WireFormat(bits=self.bits, length=self.encoding(num_measurements).wire_length)

    def protect(
        self, measurement: Measurement | None, *, length: int, clip_norm: float | None, source: BitSource
    ) -> Noised:
        """Clip, round and add one share of noise; without a measurement, only the share."""
        if clip_norm is None:
            raise InvalidInput("the request has no clip norm, which a private scheme needs")
        encoding = self.encoding(length)
        bounded = encoding.zeros() if measurement is None else encoding.bound(measurement, clip_norm, source)
        return encoding.add_noise(bounded, source)

    def read_sum(
        self, total: FloatArray | Words, *, length: int, clip_norm: float | None, survivors: int, weight: float
    ) -> Mean:
        """The sum over the public number of expected contributors; a sum that honest members cannot make is refused."""
        if clip_norm is None:
            raise InvalidInput("a private sum cannot be read without the clip norm of its round")
        encoding, words, expected = self.encoding(length), cast(Words, total), self.sampling.expected_size
        decoded = encoding.decode(words, clip_norm)
        norm = checks.finite_norm("the sum", decoded) / encoding.step(clip_norm)
        noise = encoding.total_std(survivors)
        if norm > survivors * encoding.sensitivity + _IMPLAUSIBLE * noise * math.sqrt(encoding.length):
            raise RoundFailed(
                "the sum is larger than honest members can make it, so it was not used, and its cost stays in the "
                "ledger; look for a broken or hostile client"
            )
        decoded /= np.float32(expected)
        following = clip_norm if self.adaptive is None else self.adaptive.update(
            clip_norm, encoding.count(words), expected
        )  # fmt: skip
        return Mean(decoded, noise * encoding.step(clip_norm) / expected, following)

    def event(self) -> Event | None:
        if self.noise_multiplier == 0.0:
            return None
        return self.sampling.event(self.noise_multiplier, honest=self.shares.honest)

    def promise(self) -> Promise:
        return Promise(
            noise_multiplier=self.noise_multiplier,
            clip_rule=f"{self.clip_norm!r}" + (f" {self.adaptive}" if self.adaptive else ""),
            delta=self.delta,
            shares=self.shares,
        )
