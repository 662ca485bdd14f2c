"""Rounds to attack: every honest member, or person there, is a canary; all others do the worst that is tolerated.

A canary's update is one number at a coordinate of its own, ten times the clip norm, so that every trial needs the clip.
Nobody else touches that coordinate: it shows this one unit and the noise of the round, and the coordinates of nobody
show only the noise. Noise is independent from coordinate to coordinate, so one round is as many trials as it has
canaries. As many members drop out as the noise is scaled for, and as many add no noise, as if they had told the
server theirs.

The codec is left out. It works before the clip and after the noise, where it cannot change what is promised.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lowkey.federation import Client, Reply, Request, Scheme, drive, initial_state, round_flow, scheme
from lowkey.privacy import Bounded, ClientMechanism, ClientPrivacy, Encoding, Ledger, Measurement, Noised, make_sampling
from lowkey.protocols import LocalUpdate
from lowkey.rng import BitSource, Secrets
from lowkey.simulation.in_process import InProcess
from lowkey.simulation.keys import SimulatedKeys
from lowkey.timing import StageClock
from lowkey.types import ClientId, FloatArray, Words

Defect: TypeAlias = Literal["low-noise", "missing-shares", "no-clipping"]

_COORDINATES = 4000  # at least; with fewer, rounding to the grid hides more than 2 % of a canary
_PERSONS = 2000  # canaries of a round where persons are protected
_SIZE = 10.0  # of a canary, in clip norms
_LOW_NOISE = 0.9
_MISSING = 0.1


@dataclass(frozen=True, kw_only=True)
class CanaryRounds:
    """Settings of the attacked rounds. Where persons are protected, the honest members have several canaries each.

    Attributes
    ----------
    privacy : ClientMechanism
        What the server expects; everyone is on the roster.
    of_members : ClientMechanism
        What members really do; it differs if a defect is planted.
    secrets : Secrets
        Secrets of server and members. Rounds of one number repeat each other if the secrets repeat.
    """

    privacy: ClientMechanism
    of_members: ClientMechanism
    secrets: Secrets

    @classmethod
    def of(cls, privacy: ClientPrivacy, members: int, defect: Defect | None, secrets: Secrets) -> CanaryRounds:
        """Rounds with these privacy settings for members of a known roster, with a planted defect or None."""
        kept = _for_everyone(privacy, members)
        match defect:
            case None:
                return cls(privacy=kept, of_members=kept, secrets=secrets)
            case "low-noise":
                return cls(privacy=kept, of_members=_tampered(kept, noise=_LOW_NOISE), secrets=secrets)
            case "no-clipping":
                return cls(privacy=kept, of_members=_tampered(kept, clips=False), secrets=secrets)
            case "missing-shares":  # the server lets members go whose noise the others do not make up for
                lenient = _for_everyone(replace(privacy, dropouts=max(_MISSING, privacy.dropouts)), members)
                unscaled = math.sqrt(lenient.shares.honest / members)
                return cls(privacy=lenient, of_members=_tampered(lenient, noise=unscaled), secrets=secrets)

    @property
    def members(self) -> int:
        return self.privacy.sampling.roster_size

    @property
    def canaries(self) -> int:
        """How many canaries a round has: members that stay and do not tell the server their noise, or persons there."""
        honest, persons = self.privacy.shares.honest, self.privacy.settings.persons
        return honest if persons is None else max(1, min(persons, _PERSONS))

    @property
    def coordinates(self) -> int:
        return max(_COORDINATES, 2 * self.members, 2 * self.canaries)

    def run(self, number: int, present: NDArray[np.bool_], *, masked: bool) -> FloatArray:
        """The sum that one round releases, in clip norms.

        Parameters
        ----------
        number : int
            Number of the round, from 0.
        present : NDArray[np.bool_]
            For each canary, whether it contributes; those that do not send noise on zeros.
        masked : bool
            Whether to sum under secure aggregation.

        Returns
        -------
        array
            The coordinate of each canary, then the coordinates that belong to nobody.
        """
        keys = SimulatedKeys(self.members, self.secrets)
        sizes = present * np.float32(_SIZE * self.privacy.clip_norm)
        trainer = _Canaries(sizes, self.coordinates, self.privacy.shares.honest)

        def client(privacy: ClientMechanism) -> InProcess:
            return InProcess(
                Client(scheme=self._scheme(privacy, masked), trainer=trainer, secrets=self.secrets, keys=keys)
            )

        agreed = self._scheme(self.privacy, masked)
        start = replace(initial_state(agreed, np.zeros(self.coordinates, np.float32)), round=number)
        flow = round_flow(
            agreed,
            start,
            secrets=self.secrets,
            ledger=Ledger(None, run="audit"),
            clock=StageClock(),
            verify_keys=keys.verify_keys,
        )
        worst = _WorstRoster(
            honest=client(self.of_members),
            colluding=client(_tampered(self.privacy, noise=0.0)),
            num_honest=self.privacy.shares.honest,
            num_staying=self.privacy.shares.min_survivors,
        )
        return drive(flow, worst).state.weights * np.float32(self.privacy.contributors / self.privacy.clip_norm)

    def _scheme(self, privacy: ClientMechanism, masked: bool) -> Scheme:
        settings = replace(self.privacy.settings, aggregation="masked" if masked else "plain")
        usual = scheme("fl-std-dp", clients=self.members, cohort=self.members, privacy=settings)
        return replace(usual, privacy=replace(privacy, settings=settings))


@dataclass(frozen=True)
class _Canaries:
    """Satisfies :class:`lowkey.protocols.PersonTrainer`: an update is one number at a coordinate of its own.

    Where persons are protected, they are dealt to the honest members in turn.
    """

    sizes: FloatArray
    num_coordinates: int
    num_honest: int

    @property
    def num_clients(self) -> int:
        return self.sizes.size

    def limit_threads(self, threads: int) -> None: ...

    def train(self, weights: FloatArray, client: ClientId, rng: np.random.Generator) -> LocalUpdate:
        update = np.zeros(self.num_coordinates, np.float32)
        if client < self.sizes.size:
            update[client] = self.sizes[client]
        return LocalUpdate(update, 1)

    def train_persons(self, weights: FloatArray, client: ClientId, rng: np.random.Generator) -> Iterator[FloatArray]:
        for person in range(client, self.sizes.size, self.num_honest) if client < self.num_honest else ():
            update = np.zeros((1, self.num_coordinates), np.float32)
            update[0, person] = self.sizes[person]
            yield update


@dataclass(frozen=True, kw_only=True)
class _WorstRoster:
    """Satisfies :class:`lowkey.protocols.Ask`: honest members first, then those that collude; the last drop out."""

    honest: InProcess
    colluding: InProcess
    num_honest: int
    num_staying: int

    def __call__(self, requests: Mapping[ClientId, Request]) -> Iterator[tuple[ClientId, Reply]]:
        yield from self.honest({c: r for c, r in requests.items() if c < self.num_honest})
        yield from self.colluding({c: r for c, r in requests.items() if self.num_honest <= c < self.num_staying})


@dataclass(frozen=True, kw_only=True)
class _Watching(ClientMechanism):
    """An attacker at the server: it looks at every sum, also at one that an honest server would not use."""

    def _require_plausible(self, encoding: Encoding, total: Words, survivors: int) -> None: ...


@dataclass(frozen=True, kw_only=True)
class _Tampered(ClientMechanism):
    """A member that agrees to the terms and does not keep them.

    Parameters
    ----------
    noise : float
        Fraction of the agreed standard deviation that it adds.
    clips : bool
        Whether it clips.
    """

    noise: float = 1.0
    clips: bool = True

    def bound(
        self, encoding: Encoding, measurement: Measurement, clip_norm: float | None, source: BitSource
    ) -> Bounded:
        if self.clips:
            return super().bound(encoding, measurement, clip_norm, source)
        assert clip_norm is not None
        unbounded = encoding.zeros()
        unbounded.value[: encoding.length] = np.rint(measurement.value / encoding.step(clip_norm))
        return unbounded

    def protect(
        self, measurement: Measurement | Bounded | None, *, length: int, clip_norm: float | None, source: BitSource
    ) -> Noised:
        encoding = self.encoding(length)
        if measurement is None:
            measurement = encoding.zeros()
        elif isinstance(measurement, Measurement):
            measurement = self.bound(encoding, measurement, clip_norm, source)
        return replace(encoding, noise_multiplier=self.noise * self.noise_multiplier).add_noise(measurement, source)


def _for_everyone(privacy: ClientPrivacy, members: int) -> ClientMechanism:
    """These privacy settings where everybody is known to be on the roster of every round."""
    settings = replace(privacy, sampling="all", roster=None, max_contributions="unlimited")
    return _Watching(settings=settings, sampling=make_sampling("all", population=members, cohort=members))


def _tampered(privacy: ClientMechanism, *, noise: float = 1.0, clips: bool = True) -> _Tampered:
    return _Tampered(settings=privacy.settings, sampling=privacy.sampling, noise=noise, clips=clips)
