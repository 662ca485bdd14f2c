"""From real measurements to integers modulo 2^bits and back, so that clip, noise and sum are exact.

A measurement of norm S becomes integers of norm S_int = √d/2g: the grid is as fine as the number of coordinates d and
the number of bits allow, whatever S is, and finer where little noise on few coordinates needs it. Rounding is random:
up with the probability of the fraction, so that it adds no bias. It lengthens a vector a little, hence a sensitivity Δ
above S_int. Each member of a roster then adds a share of discrete Gaussian noise: any κ shares together hide Δ, and
more of them do no harm. Coordinates are clamped so that their sum wraps modulo 2^bits only where noise exceeds 9.5
standard deviations.

References
----------
Kairouz, Liu and Steinke (2021), *The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
Aggregation*, Theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.privacy.adaptive import AdaptiveClip
from lowkey.privacy.discrete_gaussian import add_discrete_gaussian
from lowkey.privacy.records import Bounded, Measurement, Noised
from lowkey.rng import BitSource
from lowkey.types import FloatArray

# g for bits: one grid step is 2g times the root mean square coordinate
_COARSENESS = {16: 0.2, 20: 0.1, 24: 0.05, 28: 0.05}
_ATTEMPTS = 100
_TAIL = 9.5  # standard deviations of the summed noise that have room before a coordinate wraps
_SPIKE = 20  # times the root mean square: the largest coefficient of one spike in a shuffled DCT of 200 chunks
_LEAST_STD = 8.0  # of a share: the sum of discrete Gaussians then is one, to 10⁻²⁶⁰ over any run
_SMOOTHING = 3.0  # a discrete Gaussian of variance s² is, to 10⁻⁶⁰, a continuous one of s² − 9 that is then rounded
_MARGIN = 1.0 - 2.0**-40  # rounding errors of the norm stay below


def rounded_norm(norm: float, length: int, rejection: float = 2.0**-40) -> float:
    """Norm that a vector of this norm and length exceeds with probability at most ``rejection`` after rounding.

    References
    ----------
    Kairouz, Liu and Steinke (2021), Theorem 1: Δ² = c² + d/4 + √(2 ln 1/β)·(c + √d/2) on a grid of step 1.
    """
    spread = math.sqrt(2 * math.log(1 / rejection))
    return math.sqrt(norm**2 + length / 4 + spread * (norm + math.sqrt(length) / 2))


def centred(words: NDArray[np.uint32], bits: int) -> NDArray[np.int32]:
    """Integers modulo 2^bits as those nearest to 0: the upper half of them are negative."""
    unused = 32 - bits
    return (words << np.uint32(unused)).view(np.int32) >> unused  # the shift back extends the sign


def exact_square(values: NDArray[np.int64]) -> int:
    """Squared norm of integers of up to 28 bits, however many."""
    largest = max(1, int(values.max(initial=0)), -int(values.min(initial=0)))
    summable = 2**62 // largest**2  # squares whose sum has room in 64 bits
    return sum(int(part @ part) for part in np.array_split(values, 1 + values.size // summable))


def noisy_square(norm: float, std: float, length: int, alarm: float) -> float:
    """Squared norm that a vector of at most this norm exceeds, with noise added, with probability at most ``alarm``.

    Parameters
    ----------
    norm : float
        Largest norm a of the vector u before the noise.
    std : float
        σ: the coordinates of the noise Z are independent, with E exp(sZ_i) ≤ exp(s²σ²/2) for every s. Gaussians have
        this property, and so have sums of discrete Gaussians whose parameters add up to σ².
    length : int
        d ≥ 1, the number of coordinates.
    alarm : float
        e^−x in (0, 1).

    Guarantees
    ----------
    P(‖u + Z‖² > a² + σ²d + 2σ√((σ²d + 2a²)x) + 2σ²x) ≤ e^−x for every u with ‖u‖ ≤ a and every d. For Gaussian Z this
    is Birgé's bound, which follows from E exp(λ‖u + Z‖²) alone, and no sub-Gaussian Z has a larger one; the proof is in
    docs/adr/0017. Rounding errors are on the side of no alarm.

    References
    ----------
    Birgé (2001), *An alternative point of view on Lepski's method*, Lemma 8.1; Hsu, Kakade and Zhang (2012), *A tail
    inequality for quadratic forms of subgaussian random vectors*.
    """
    x, noise = math.log(1 / alarm), std**2 * length
    return (norm**2 + noise + 2 * std * math.sqrt((noise + 2 * norm**2) * x) + 2 * std**2 * x) / _MARGIN


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """The public numbers of an encoding, with methods to encode and decode.

    Parameters
    ----------
    length : int
        d, the number of measurements.
    members : int
        M, the size of a roster; every member adds a share of noise.
    honest : int
        κ in 1 … M, how many shares are certainly in a released sum and known to nobody else.
    noise_multiplier : float
        z ≥ 0, the noise of κ shares relative to the sensitivity; 0 adds no noise (limiting case).
    bits : int
        Bits of each integer on the wire: 16, 20, 24 or 28. More bits make the grid finer, up to 24; the last four leave
        room for more members.
    adaptive : AdaptiveClip or None
        Adds one coordinate in which contributors vote whether they were inside the clip norm.
    normalise : bool
        Whether shorter measurements are made as long as the clip norm.
    persons : int or None
        How many bounded measurements a sum must have room for, where members add up those of their persons. None: one
        of each member.

    Guarantees
    ----------
    What ``bound`` returns has a norm of at most ``sensitivity``, checked in exact integers. A sum of ``add_noise``
    results of which κ are honest carries at least the noise of N_Z(0, (z·sensitivity)²) in every coordinate.
    """

    length: int
    members: int
    honest: int
    noise_multiplier: float
    bits: int = 20
    adaptive: AdaptiveClip | None = None
    normalise: bool = False
    persons: int | None = None

    def __post_init__(self) -> None:
        checks.at_least("length", self.length, 1)
        checks.at_least("members", self.members, 1)
        if not 1 <= self.honest <= self.members:
            raise InvalidInput(f"honest is {self.honest}; it must lie in 1 … {self.members}, the number of members")
        checks.not_negative("privacy.noise_multiplier", self.noise_multiplier)
        if self.bits not in _COARSENESS:
            raise InvalidInput(f"privacy.bits is {self.bits}; it must be one of {', '.join(map(str, _COARSENESS))}")
        fewer = "members" if self.persons is None else "persons (privacy.persons)"
        finer = "raise privacy.bits" if self.bits < max(_COARSENESS) else f"raise the noise, or lower the {fewer}"
        of_persons = "" if self.persons is None else f" with {self.persons} persons"
        enough = max(1, self.vote, min(self.sensitivity, _SPIKE * self.norm / math.sqrt(self.length)))
        if self.largest < enough:
            raise InvalidInput(
                f"{self.bits} bits leave room for coordinates up to {self.largest} grid steps beside the noise of "
                f"{self.members} members{of_persons}; {math.ceil(enough)} are needed: {finer}"
            )

    @cached_property
    def norm(self) -> float:
        """S_int, the clip norm in grid steps: √d/2g, or more where a share of noise would be below 8 steps."""
        usual = math.sqrt(self.length) / (2 * _COARSENESS[self.bits])
        if self.noise_multiplier == 0.0:
            return usual
        return max(usual, _LEAST_STD * math.sqrt(self.honest) / self.noise_multiplier)

    @property
    def wire_length(self) -> int:
        """Number of integers that a member sends."""
        return self.length if self.adaptive is None else self.length + 1

    @cached_property
    def value_sensitivity(self) -> float:
        """Largest norm of one member's measurements in grid steps."""
        return rounded_norm(self.norm, self.length)

    @cached_property
    def vote(self) -> int:
        """What a contributor adds to the coordinate of votes, or subtracts from it; 0 if there is none."""
        return 0 if self.adaptive is None else self.adaptive.vote(self.value_sensitivity, self.noise_multiplier)

    @cached_property
    def sensitivity(self) -> float:
        """Δ, the largest norm of one member's integers, its vote included."""
        return math.hypot(self.value_sensitivity, self.vote)

    @cached_property
    def share_std(self) -> float:
        """σ_l, standard deviation of one member's share of noise in grid steps: κ of them give √((zΔ)² + 9)."""
        if self.noise_multiplier == 0.0:
            return 0.0
        return math.hypot(self.noise_multiplier * self.sensitivity, _SMOOTHING) / math.sqrt(self.honest)

    def total_std(self, survivors: int) -> float:
        """Standard deviation, in grid steps, of the noise in a sum over this many members."""
        return self.share_std * math.sqrt(survivors)

    @cached_property
    def largest(self) -> int:
        """X_max, the limit that coordinates are clamped to, so that the sum of all members or persons does not wrap."""
        room = (1 << self.bits - 1) - 1 - _TAIL * self.total_std(self.members)
        return math.floor(room / (self.persons or self.members))

    def step(self, clip_norm: float) -> float:
        """γ, the real number that one grid step stands for."""
        checks.positive("privacy.clip_norm", clip_norm)
        return clip_norm / self.norm

    def bound(self, measurement: Measurement, clip_norm: float, source: BitSource) -> Bounded:
        """Clip or normalise to ``clip_norm``, clamp, and round at random to the grid.

        Parameters
        ----------
        measurement : Measurement
            Vector of d numbers; if one of them is not finite, all count as 0.
        clip_norm : float
            S > 0.
        source : BitSource
            Secret bits.

        Guarantees
        ----------
        The exact norm of the result is at most ``sensitivity``. Where nothing is normalised, a measurement of norm ≤ S
        is rounded as it is.
        """
        checks.positive("privacy.clip_norm", clip_norm)
        if measurement.value.shape != (self.length,):
            raise InvalidInput(f"a measurement has shape {measurement.value.shape}; it must hold {self.length} numbers")
        from lowkey.privacy.kernels import square  # compiled on import, so imported only when needed

        norm = math.sqrt(square(measurement.value))  # in float64, where no square of a float32 overflows
        if not math.isfinite(norm) or (self.normalise and norm == 0.0):
            return self.zeros()
        inside = norm <= clip_norm and not self.normalise
        scale = self.norm / clip_norm if inside else self.norm * _MARGIN / norm
        return self._rounded(measurement.value, scale, self.vote if inside else -self.vote, source)

    def _rounded(self, values: FloatArray, scale: float, vote: int, source: BitSource) -> Bounded:
        from lowkey.privacy.kernels import round_randomly

        rounded = np.empty(self.wire_length, np.int32)
        rounded[self.length :] = vote
        for _ in range(_ATTEMPTS):
            coins = source.bits((self.length + 1) // 2).view(np.uint32)
            if round_randomly(values, scale, float(self.largest), coins, rounded) <= self.value_sensitivity**2:
                return Bounded(rounded, self.sensitivity)
        return self.zeros()

    def zeros(self) -> Bounded:
        """What a member without data contributes."""
        return Bounded(np.zeros(self.wire_length, np.int32), self.sensitivity)

    def add_noise(self, bounded: Bounded, source: BitSource) -> Noised:
        """Add this member's share of discrete Gaussian noise, and reduce modulo 2^bits."""
        noised = bounded.value.copy()
        add_discrete_gaussian(noised, self.share_std, source)
        return Noised(noised.view(np.uint32) & np.uint32(2**self.bits - 1))

    def decode(self, total: NDArray[np.uint32], clip_norm: float) -> FloatArray:
        """The sum of measurements that a sum of integers modulo 2^bits stands for."""
        return (self._centred(total)[: self.length] * self.step(clip_norm)).astype(np.float32)

    def count(self, total: NDArray[np.uint32]) -> float:
        """The noisy sum of votes of ±½; only with ``adaptive``."""
        if self.adaptive is None:
            raise InvalidInput("there are no votes to count; give the encoding an AdaptiveClip")
        return float(self._centred(total)[self.length]) / (2 * self.vote)

    def square(self, total: NDArray[np.uint32]) -> int:
        """Exact squared norm, in grid steps, of all integers of a sum, votes included."""
        return exact_square(self._centred(total).astype(np.int64))

    def _centred(self, total: NDArray[np.uint32]) -> NDArray[np.int32]:
        if total.shape != (self.wire_length,):
            raise InvalidInput(f"a sum has shape {total.shape}; it must hold {self.wire_length} integers")
        return centred(total, self.bits)
