"""The privacy of a scheme as one record: sampler, clip, noise and accounting event cannot disagree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.privacy.adaptive import AdaptiveClip
from lowkey.privacy.encoding import Encoding
from lowkey.privacy.events import Event, require_small_delta
from lowkey.privacy.records import Measurement, Noised, Open
from lowkey.privacy.sampling import Sampling
from lowkey.privacy.shares import NoiseShares, noise_shares
from lowkey.rng import BitSource


@dataclass(frozen=True, kw_only=True)
class NoPrivacy:
    """The identity twin: cohorts are drawn, vectors pass as they are, nothing is spent.

    ``survivors`` is the least number of answers that make a mean.
    """

    sampling: Sampling
    survivors: int = 1
    private = False

    def __post_init__(self) -> None:
        if not 1 <= self.survivors <= self.sampling.roster_size:
            raise InvalidInput(
                f"federation.min_clients is {self.survivors}; it must lie in 1 … {self.sampling.roster_size} (cohort)"
            )

    def protect(self, measurement: Measurement) -> Open:
        checks.finite_norm("update", measurement.value)
        return Open(measurement.value)

    def event(self) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class ClientLevelPrivacy:
    """Clip, share of noise, sampling and what a round of them costs.

    Parameters
    ----------
    sampling : how rosters are drawn; also decides which accounting event is true.
    clip_norm : S, the largest norm of one client's measurement; with ``adaptive``, that of the first round.
    noise_multiplier : z, noise of the sum relative to S; 0 adds none (limiting case).
    delta : δ of the guarantee, in (0, 1).
    bits : integers on the wire are modulo 2^bits: 16, 20 or 24.
    dropouts, colluders : shares of a roster, in [0, 1), that may drop out, and that may pool what they know.
    adaptive : how S follows the typical norm; None keeps it.
    max_contributions : rounds in which one client's data may be used; afterwards it adds noise only. None: no limit.

    Guarantees
    ----------
    Unit: one client with all its data. A released sum carries the noise of at least ``shares.honest`` members that
    neither dropped out nor collude: discrete Gaussian noise of standard deviation at least z times the largest change
    that one client can make to it (its contribution present or replaced by zeros). ``event`` says what that costs
    people who see released models but not who took part; see docs/guarantees.md.
    """

    sampling: Sampling
    clip_norm: float
    noise_multiplier: float
    delta: float
    bits: int = 20
    dropouts: float = 0.1
    colluders: float = 0.1
    adaptive: AdaptiveClip | None = None
    max_contributions: int | None = None
    private = True

    def __post_init__(self) -> None:
        checks.positive("privacy.clip_norm", self.clip_norm)
        checks.not_negative("privacy.noise_multiplier", self.noise_multiplier)
        if self.max_contributions is not None:
            checks.at_least("privacy.max_contributions", self.max_contributions, 1)
        require_small_delta(self.delta, self.sampling.population)

    @cached_property
    def shares(self) -> NoiseShares:
        """How many members must survive, and how many of them are sure to be honest."""
        return noise_shares(self.sampling.roster_size, dropouts=self.dropouts, colluders=self.colluders)

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

    def protect(self, measurement: Measurement | None, *, length: int, clip_norm: float, source: BitSource) -> Noised:
        """Clip, round and add one share of noise; without a measurement, the share alone."""
        encoding = self.encoding(length)
        bounded = encoding.zeros() if measurement is None else encoding.bound(measurement, clip_norm, source)
        return encoding.add_noise(bounded, source)

    def event(self) -> Event | None:
        """What one round costs; None without noise, when no finite ε is true."""
        if self.noise_multiplier == 0.0:
            return None
        return self.sampling.event(self.noise_multiplier, honest=self.shares.honest)


Privacy: TypeAlias = NoPrivacy | ClientLevelPrivacy
