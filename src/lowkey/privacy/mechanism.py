"""The privacy of a scheme as one record: sampler, clip, noise and accounting event cannot disagree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.privacy.accounting import require_small_delta
from lowkey.privacy.clipping import clip
from lowkey.privacy.events import Event
from lowkey.privacy.noise import add_noise_share
from lowkey.privacy.records import Bounded, Measurement, Noised, Open
from lowkey.privacy.sampling import Sampling
from lowkey.rng import BitSource


@dataclass(frozen=True, kw_only=True)
class NoPrivacy:
    """The identity twin: cohorts are drawn, vectors pass as they are, nothing is spent."""

    sampling: Sampling
    private = False

    def protect(self, measurement: Measurement, *, shares: int, source: BitSource) -> Open:  # noqa: ARG002
        checks.finite_norm("update", measurement.value)
        return Open(measurement.value)

    def event(self) -> None:
        return None

    @property
    def noise_of_mean(self) -> float:
        return 0.0


@dataclass(frozen=True, kw_only=True)
class ClientLevelPrivacy:
    """Clip, share of noise, sampling and what a round of them costs.

    Parameters
    ----------
    sampling : how cohorts are drawn; also decides which accounting event is true.
    clip_norm : S, the largest norm of one client's measurement.
    noise_multiplier : z, noise of the sum relative to S.
    delta : δ of the guarantee, in (0, 1).

    Guarantees
    ----------
    Unit: one client with all its data. The released sum of a round in which every member answered is the Gaussian
    mechanism of sensitivity S (contribution present or replaced by zeros) on a random cohort; ``event`` says which.
    It holds for people who see released models but not who took part; see docs/guarantees.md.
    """

    sampling: Sampling
    clip_norm: float
    noise_multiplier: float
    delta: float
    private = True

    def __post_init__(self) -> None:
        checks.positive("privacy.clip_norm", self.clip_norm, allow_infinite=True)
        checks.not_negative("privacy.noise_multiplier", self.noise_multiplier)
        if math.isinf(self.clip_norm) and self.noise_multiplier > 0:
            raise InvalidInput("privacy.clip_norm is infinite; noise needs a finite bound to be scaled to")
        require_small_delta(self.delta, self.sampling.population)

    def protect(self, measurement: Measurement, *, shares: int, source: BitSource) -> Noised:
        """Clip and add one share of noise."""
        bounded = clip(measurement, self.clip_norm)
        return add_noise_share(bounded, noise_multiplier=self.noise_multiplier, shares=shares, source=source)

    def noise_only(self, length: int, *, shares: int, source: BitSource) -> Noised:
        """A share of noise on a contribution of zeros, for members that take part without data."""
        zeros = Bounded(np.zeros(length, np.float32), self.clip_norm)
        return add_noise_share(zeros, noise_multiplier=self.noise_multiplier, shares=shares, source=source)

    def event(self) -> Event | None:
        """What one round costs; None without noise, when no finite ε is true."""
        if self.noise_multiplier == 0.0:
            return None
        return self.sampling.event(self.noise_multiplier)

    @property
    def noise_of_mean(self) -> float:
        """Standard deviation of the noise in each number of the mean of a round, zS/|K|."""
        return self.noise_multiplier * self.clip_norm / self.sampling.expected_size if self.noise_multiplier else 0.0


Privacy: TypeAlias = NoPrivacy | ClientLevelPrivacy
