"""The privacy of a scheme in one place, so that sampler, clip, noise and accounting event cannot disagree."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from lowkey import checks
from lowkey.errors import InvalidInput, RoundFailed
from lowkey.privacy.adaptive import AdaptiveClip
from lowkey.privacy.contract import Mean, Promise
from lowkey.privacy.encoding import Encoding, noisy_square
from lowkey.privacy.events import Event, require_small_delta
from lowkey.privacy.records import Bounded, Measurement, Noised, WireFormat
from lowkey.privacy.sampling import Sampling
from lowkey.privacy.settings import LARGEST_CLIP, ClientPrivacy
from lowkey.privacy.shares import NoiseShares
from lowkey.rng import BitSource
from lowkey.types import FloatArray, Words

if TYPE_CHECKING:
    from lowkey.privacy.proofs import NormBound

_FALSE_ALARM = 2.0**-40  # chance that the sum of honest members is refused: below 10⁻⁸ in 10,000 rounds
_TOO_LONG = 2.0**-64  # chance that honest noise cannot be proven: that member drops out, which may depend on its data
_VOTES = 20  # expected contributors over the noise of their votes, where the clip norm is adaptive


@dataclass(frozen=True, kw_only=True)
class ClientMechanism:
    """Privacy for a population of clients, or for the persons at them, as its settings say.

    Parameters
    ----------
    settings : ClientPrivacy
        Resolved: nothing in it is "auto". A noise multiplier of 0 is a limiting case for tests and audits.
    sampling : Sampling
        How rosters are drawn; also decides which accounting event is true.

    Guarantees
    ----------
    Unit: one client with all its data, or one person at a client. A released sum carries the noise of at least
    ``shares.honest`` members that neither dropped out nor collude: discrete Gaussian noise of standard deviation at
    least z times the largest change that one unit can make to it (its contribution present or replaced by zeros).
    ``event`` says what that costs people who see released models but not who took part; see docs/guarantees.md.
    """

    settings: ClientPrivacy
    sampling: Sampling
    private: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        open_choices = "auto" in (self.settings.noise_multiplier, self.settings.max_contributions)
        if open_choices or self.settings.bits is None:
            raise InvalidInput("the privacy settings have open choices; call ClientPrivacy.resolve first")
        settings = self.settings
        require_small_delta(settings.delta, settings.persons or self.sampling.population, unit=settings.protected)
        if self.by_person and self.sampling.mode != "all":
            raise InvalidInput(
                f"privacy.unit is 'person', where every client takes part in every round, but sampling is "
                f"{self.sampling.mode!r}; set federation.cohort to federation.clients, {self.sampling.population}"
            )
        _ = self.shares  # refuses settings that leave no honest share of noise
        _ = self.norm_bound(1)  # fails before a run where libsodium is missing
        if self.adaptive is not None and self.noise_multiplier > 0:
            self.adaptive.value_multiplier(self.noise_multiplier)  # refuses noise that would hide the votes

    @property
    def aggregation(self) -> str:
        return self.settings.aggregation

    @property
    def clip_norm(self) -> float:
        return self.settings.norm

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
    def by_person(self) -> bool:
        return self.settings.unit == "person"

    @property
    def contributors(self) -> float:
        """The public number by which sums are divided: persons, or expected clients."""
        return self.settings.persons or self.sampling.expected_size

    @property
    def max_contributions(self) -> int | None:
        limit = self.settings.max_contributions
        return None if limit == "unlimited" else int(limit)

    @cached_property
    def shares(self) -> NoiseShares:
        """How many members must survive, and how many of them are certainly honest."""
        settings = self.settings
        return settings.shares_of(self.sampling.roster_size)

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
        if num_measurements not in self._encodings:
            self._encodings[num_measurements] = Encoding(
                length=num_measurements,
                members=self.sampling.roster_size,
                honest=self.shares.honest,
                noise_multiplier=self.noise_multiplier,
                bits=self.bits,
                adaptive=self.adaptive,
                normalise=self.settings.clip == "normalise",
                persons=self.settings.persons,
            )
        return self._encodings[num_measurements]

    @cached_property
    def _encodings(self) -> dict[int, Encoding]:
        return {}  # made once for a length: every client of a simulation uses them in every round

    def require_clip(self, clip_norm: float | None) -> None:
        if clip_norm is None:
            raise InvalidInput("the request has no clip norm, which a private scheme needs")
        checks.positive("the clip norm of the request", clip_norm, most=LARGEST_CLIP)
        if self.adaptive is None and clip_norm != self.clip_norm:
            raise InvalidInput(f"the clip norm of the request is {clip_norm}; {self.clip_norm} was agreed")

    def wire(self, num_measurements: int) -> WireFormat:
        return WireFormat(bits=self.bits, length=self.encoding(num_measurements).wire_length)

    def sum_of_persons(
        self, measurements: Iterable[Measurement], *, length: int, clip_norm: float | None, source: BitSource
    ) -> Bounded:
        """The sum of persons modulo 2^32, each of them clipped or normalised and rounded by itself.

        Guarantees
        ----------
        Without one of the measurements the sum differs by a vector of at most ``l2_bound``, in exact integers. One that
        holds NaN or infinity counts as zeros, and no other is changed by it.
        """
        encoding = self.encoding(length)
        total = encoding.zeros()
        for measurement in measurements:
            total.value[:] += self.bound(encoding, measurement, clip_norm, source).value
        return total

    def bound(
        self, encoding: Encoding, measurement: Measurement, clip_norm: float | None, source: BitSource
    ) -> Bounded:
        """One client's or person's part in the sum."""
        if clip_norm is None:
            raise InvalidInput("the request has no clip norm, which a private scheme needs")
        return encoding.bound(measurement, clip_norm, source)

    def protect(
        self, measurement: Measurement | Bounded | None, *, length: int, clip_norm: float | None, source: BitSource
    ) -> Noised:
        """Clip or normalise, round and add one share of noise; without a measurement, only the share."""
        if clip_norm is None:
            raise InvalidInput("the request has no clip norm, which a private scheme needs")
        if self.by_person and isinstance(measurement, Measurement):
            raise InvalidInput("a client's own update is not bounded by person; give the sum of its persons")
        encoding = self.encoding(length)
        if measurement is None:
            measurement = encoding.zeros()
        elif isinstance(measurement, Measurement):
            measurement = self.bound(encoding, measurement, clip_norm, source)
        return encoding.add_noise(measurement, source)

    def norm_bound(self, num_measurements: int) -> NormBound | None:
        """Of a vector with one share of noise, which is longer with probability 2⁻⁶⁴; see ``privacy.proofs``."""
        if not self.settings.proofs:
            return None
        from lowkey.privacy.proofs import NormBound  # needs libsodium, so imported only when needed

        encoding = self.encoding(num_measurements)
        square = noisy_square(encoding.sensitivity, encoding.share_std, encoding.wire_length, _TOO_LONG)
        return NormBound(length=encoding.wire_length, bits=self.bits, square=math.floor(square))

    def read_sum(
        self, total: FloatArray | Words, *, length: int, clip_norm: float | None, survivors: int, weight: float
    ) -> Mean:
        """The sum over the public number of expected contributors, clients or persons.

        Guarantees
        ----------
        What is checked is what is used: all integers of the sum, votes included. Wrapping makes none of them larger.
        A sum of honest members is refused with probability at most 2⁻⁴⁰, whatever their data and its length: half of
        that for noise, half for draws with more contributors than :func:`most_contributors`.
        """
        if clip_norm is None:
            raise InvalidInput("a private sum cannot be read without the clip norm of its round")
        encoding, words, expected = self.encoding(length), cast(Words, total), self.contributors
        self._require_plausible(encoding, words, survivors)
        decoded = encoding.decode(words, clip_norm)
        decoded /= np.float32(expected)
        following = clip_norm if self.adaptive is None else self.adaptive.update(
            clip_norm, encoding.count(words), expected
        )  # fmt: skip
        return Mean(decoded, encoding.total_std(survivors) * encoding.step(clip_norm) / expected, following)

    def _require_plausible(self, encoding: Encoding, total: Words, survivors: int) -> None:
        """Refuse a sum that honest members can hardly make."""
        alarm = _FALSE_ALARM / 2
        most = self.settings.persons or min(survivors, most_contributors(self.sampling.expected_size, alarm))
        largest = encoding.sensitivity * most
        if encoding.square(total) > noisy_square(largest, encoding.total_std(survivors), encoding.wire_length, alarm):
            raise RoundFailed(
                "the sum is larger than honest members can make it, so it was not used, and its cost stays in the "
                "ledger; look for a broken or hostile client"
            )

    @property
    def _rule(self) -> str:
        if self.settings.clip == "normalise":
            return " normalised"
        return f" {self.adaptive}" if self.adaptive else ""

    @property
    def _proven(self) -> str:
        return " proven" if self.settings.proofs else ""

    def event(self) -> Event | None:
        if self.noise_multiplier == 0.0:
            return None
        event = self.sampling.event(self.noise_multiplier, honest=self.shares.honest)
        return replace(event, unit=self.settings.protected, failure=self.shares.failure)

    def promise(self) -> Promise:
        return Promise(
            noise_multiplier=self.noise_multiplier,
            clip_rule=f"{self.clip_norm!r}{self._rule}{self._proven}",
            delta=self.delta,
            shares=self.shares,
            unit=self.settings.protected,
            persons=self.settings.persons,
        )


def most_contributors(expected: float, alarm: float) -> float:
    """Number that independent draws of clients, ``expected`` on average, exceed with probability at most ``alarm``.

    References
    ----------
    Boucheron, Lugosi and Massart (2013), *Concentration Inequalities*, Theorem 2.10 (Bernstein's inequality).
    """
    x = math.log(1 / alarm)
    return expected + math.sqrt(2 * expected * x) + x / 3
