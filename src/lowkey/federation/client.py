"""The client: train, compress, protect. Runs wherever the data is; the same code simulated and deployed."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace

import numpy as np

from lowkey.errors import InvalidInput, ProtocolViolation
from lowkey.federation.records import (
    Adverts,
    ClientState,
    Confirmations,
    FromMember,
    Invite,
    MemberState,
    Reply,
    Request,
    Survivors,
    ToMember,
)
from lowkey.federation.schemes import Scheme
from lowkey.privacy import (
    ClientLedger,
    ClientLevelPrivacy,
    Measurement,
    Noised,
    NoPrivacy,
    Policy,
    Terms,
    flip_coin,
)
from lowkey.protocols import Keys, LocalUpdate, Operator, Trainer
from lowkey.rng import OSSecrets, Secrets, generator
from lowkey.secagg import Delivery, advertise, confirm, mask, reveal, share
from lowkey.timing import StageClock
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class Client:
    """What a client is made of: the agreed scheme, its way to learn, its secrets.

    Parameters
    ----------
    scheme : what this client has agreed to; a server with other terms meets a refusal.
    trainer : its way to learn.
    secrets : source of noise, coins and keys.
    keys : who is enrolled, and this client's own signing key; needed for secure aggregation.
    policy, ledger : what the client insists on, and its own record of the rounds it joined, for a client that guards
        itself against the server. Both come into play under secure aggregation, and only for one client each.
    clock : gets the seconds of each stage.
    """

    scheme: Scheme
    trainer: Trainer
    secrets: Secrets = field(default_factory=OSSecrets)
    keys: Keys | None = None
    policy: Policy | None = None
    ledger: ClientLedger | None = None
    clock: StageClock = field(default_factory=StageClock)

    def handle(self, state: ClientState, request: Request) -> tuple[ClientState, Reply]:
        """Answer one request.

        Guarantees
        ----------
        In a private scheme a vector leaves only clipped, with a fresh share of noise and, under secure aggregation,
        masked; of the same length and weight for every member. A client that cannot contribute (no data, a diverging
        update), or that has reached its limit of contributions, sends noise on zeros: staying away would tell
        something about its data. Any other exception is a defect and is raised. A client contributes to an attempt at
        a round once.
        """
        if request.message is not None and not isinstance(request.message, Delivery):
            with self.clock.stage("agree"):
                return self._agree(state, request, request.message)
        if (request.round, request.attempt) <= state.answered:
            raise InvalidInput(f"round {request.round} was answered already; a second answer would spend privacy again")
        after = replace(
            state,
            answered=(request.round, request.attempt),
            contributions=state.contributions + (request.weights is not None),
        )
        operator = self.scheme.codec.operator(self.trainer.num_coordinates, request.round)
        privacy = self.scheme.privacy
        if isinstance(privacy, NoPrivacy):
            return after, self._open(privacy, state, request, operator)
        noised = self._noised(privacy, state, request, operator, self._within_limits(privacy, state, request))
        if request.message is None:
            if self.scheme.aggregation == "masked":
                raise InvalidInput("the server asks for an unmasked vector, which this client does not give")
            return after, Reply(round=request.round, attempt=request.attempt, vector=noised.value)
        with self.clock.stage("mask"):
            member, masked = mask(_member(state, request), request.message, noised.value)
        return replace(after, member=member), Reply(round=request.round, attempt=request.attempt, vector=masked)

    def _agree(self, state: ClientState, request: Request, message: ToMember) -> tuple[ClientState, Reply]:
        """A step of the secure aggregation that carries no vector."""
        if self.keys is None:
            raise InvalidInput("secure aggregation needs the keys of the enrolled clients; give them to the client")
        identity, source = self.keys.identity(state.client), self.secrets.source(
            "keys", type(message).__name__, request.round, request.attempt, state.client
        )  # fmt: skip
        member: MemberState | None
        reply: FromMember
        match message:
            case Invite():
                terms = self._terms(request)
                if self.policy is not None:
                    self.policy.check(terms)
                session = self.scheme.session(message.run, request.round, request.attempt, message.roster, terms)
                member, reply = advertise(session, identity, source)
            case Adverts():
                member, reply = share(_member(state, request), message.adverts, self.keys.directory, source)
            case Survivors():
                member, reply = confirm(_member(state, request), message.survivors, identity)
            case Confirmations():
                _, reply = reveal(_member(state, request), message.confirmations, self.keys.directory)
                member = None
            case _:
                raise InvalidInput(f"a {type(message).__name__} is no step of its own")
        return replace(state, member=member), Reply(round=request.round, attempt=request.attempt, message=reply)

    def _open(self, privacy: NoPrivacy, state: ClientState, request: Request, operator: Operator) -> Reply:
        local, measurement = self._measure(state, request, operator)
        with self.clock.stage("protect"):
            vector = privacy.protect(measurement).value
        weight = float(local.num_examples) if self.scheme.weight_by_examples else 1.0
        return Reply(round=request.round, attempt=request.attempt, vector=_weighted(vector, weight), weight=weight)

    def _noised(
        self, privacy: ClientLevelPrivacy, state: ClientState, request: Request, operator: Operator, within: bool
    ) -> Noised:
        if request.clip_norm is None:
            raise InvalidInput("the request has no clip norm, which a private scheme needs")
        source = self.secrets.source("noise", request.round, request.attempt, state.client)
        measurement = None
        if within and flip_coin(source, privacy.sampling.coin):
            with contextlib.suppress(InvalidInput):
                _, measurement = self._measure(state, request, operator)
        with self.clock.stage("protect"):
            return privacy.protect(
                measurement, length=operator.num_measurements, clip_norm=request.clip_norm, source=source
            )

    def _within_limits(self, privacy: ClientLevelPrivacy, state: ClientState, request: Request) -> bool:
        """Whether this client's data may enter the sum; its own ledger knows before anything is sent."""
        limit = privacy.max_contributions
        within = request.weights is not None and (limit is None or state.contributions < limit)
        if request.message is not None and self.ledger is not None:
            terms, session = self._terms(request), _member(state, request).session
            within = within and (self.policy is None or self.policy.may_contribute(self.ledger, terms))
            self.ledger.join(
                session.run,
                session.round,
                session.attempt,
                noise_multiplier=terms.noise_multiplier,
                coin=terms.coin,
                contributes=within,
            )
        return within

    def _terms(self, request: Request) -> Terms:
        return self.scheme.terms(self.trainer.num_coordinates, request.round)

    def _measure(self, state: ClientState, request: Request, operator: Operator) -> tuple[LocalUpdate, Measurement]:
        if request.weights is None:
            raise InvalidInput("the request has no model, and the scheme has no noise-only members")
        with self.clock.stage("train"):
            rng = generator(self.scheme.seed, "local training", request.round, state.client)
            local = self.trainer.train(request.weights, state.client, rng)
        with self.clock.stage("compress"):
            return local, Measurement(operator.forward(local.update))


def _member(state: ClientState, request: Request) -> MemberState:
    """The part of this client in the aggregation that a request belongs to."""
    member = state.member
    if member is None or (member.session.round, member.session.attempt) != (request.round, request.attempt):
        raise ProtocolViolation(
            f"client {state.client} takes no part in attempt {request.attempt} at round {request.round}"
        )
    return member


def _weighted(vector: FloatArray, weight: float) -> FloatArray:
    return vector if weight == 1.0 else vector * np.float32(weight)
