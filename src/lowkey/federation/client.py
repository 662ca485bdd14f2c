"""The client: train, compress, protect. It runs where the data is; simulations and deployments use the same code."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from lowkey import checks
from lowkey.errors import CannotContribute, InvalidInput, ProtocolViolation
from lowkey.federation.records import (
    Adverts,
    ClientState,
    Confirmations,
    FromMember,
    Invite,
    Reply,
    Request,
    Survivors,
    ToMember,
)
from lowkey.federation.schemes import Scheme
from lowkey.privacy import ClientLedger, Measurement, Policy, Terms, flip_coin
from lowkey.protocols import Keys, Operator, Trainer
from lowkey.rng import OSSecrets, Secrets, generator
from lowkey.secagg import Delivery, MemberState, advertise, confirm, mask, reveal, share
from lowkey.timing import StageClock
from lowkey.types import FloatArray, Words


class Attendance:
    """Counts the clients that tried to train here, and keeps the reasons why some had nothing to send."""

    def __init__(self) -> None:
        self.tried, self.excuses = 0, list[str]()

    def take(self) -> tuple[int, list[str]]:
        """Return both figures and start counting again."""
        taken = self.tried, self.excuses
        self.tried, self.excuses = 0, []
        return taken


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client: the scheme that it agreed to, how it trains, and its secrets.

    Parameters
    ----------
    scheme : Scheme
        What this client has agreed to. It refuses a server with other terms.
    trainer : Trainer
        How it trains on its data.
    secrets : Secrets
        Source of noise, coins and keys.
    keys : Keys or None
        Who is enrolled, and this client's own signing key; needed for secure aggregation.
    policy, ledger : Policy, ClientLedger or None
        What the client insists on, and its own record of the rounds it joined: they protect it from the server. Both
        are used only under secure aggregation, and belong to one client.
    excused : type of exception
        Exceptions that keep a client from contributing; it then answers a private round with noise on zeros. In a
        simulation this is only what a trainer raises on purpose: anything else is a defect. At a real node it is every
        exception, since staying away would tell something about the data.
    clock : StageClock
        Gets the seconds of each stage.
    attendance : Attendance
        Gets the reasons that kept clients from contributing. They stay where the client is.
    """

    scheme: Scheme
    trainer: Trainer
    secrets: Secrets = field(default_factory=OSSecrets)
    keys: Keys | None = None
    policy: Policy | None = None
    ledger: ClientLedger | None = None
    excused: type[Exception] = CannotContribute
    clock: StageClock = field(default_factory=StageClock)
    attendance: Attendance = field(default_factory=Attendance)

    def handle(self, state: ClientState, request: Request) -> tuple[ClientState, Reply]:
        """Answer one request.

        Guarantees
        ----------
        In a private scheme a vector leaves only clipped, with a fresh share of noise and, under secure aggregation,
        masked. Every member's vector has the same length and weight. A client that is excused, or that has reached its
        limit of contributions, sends noise on zeros: staying away would tell something about its data. A client
        contributes to an attempt at a round once.

        Raises
        ------
        CannotContribute
            In a scheme without privacy, where nothing hides that a client has nothing to send.
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
        privacy = self.scheme.privacy
        if request.weights is None and not privacy.private:
            raise InvalidInput(
                "the request has no model, and this scheme has no members that only add noise; check the server"
            )
        if request.message is None and privacy.aggregation == "masked":
            raise InvalidInput(
                "the server asks for an unmasked vector, which this client never sends; use secure aggregation"
            )
        privacy.require_clip(request.clip_norm)  # by all members alike: who fails must not tell whose data is used
        operator = self.scheme.operator(self.trainer.num_coordinates, request.round)  # 3
        source = self.secrets.source("noise", request.round, request.attempt, state.client)
        measurement, weight = None, 1.0
        if self._may_contribute(state, request) and flip_coin(source, privacy.sampling.coin):  # 4
            measurement, weight = self._measure(state, request, operator)  # 5, 6
        with self.clock.stage("protect"):  # 7, 8
            vector = privacy.protect(
                measurement, length=operator.num_measurements, clip_norm=request.clip_norm, source=source
            ).value
        if request.message is not None:
            with self.clock.stage("mask"):
                member, masked = mask(_member(state, request), request.message, vector)  # type: ignore[arg-type]
            after, vector = replace(after, member=member), masked
        reply = Reply(round=request.round, attempt=request.attempt, vector=_weighted(vector, weight), weight=weight)
        return after, reply

    def _measure(self, state: ClientState, request: Request, operator: Operator) -> tuple[Measurement | None, float]:
        """The compressed update and its weight; None instead of the update if the client is excused."""
        assert request.weights is not None  # otherwise the client may not contribute
        self.attendance.tried += 1
        try:
            with self.clock.stage("train"):
                rng = generator(self.scheme.seed, "local training", request.round, state.client)
                local = self.trainer.train(request.weights, state.client, rng)
            with self.clock.stage("compress"):
                measured = operator.forward(local.update)
            if not checks.is_finite(measured):
                raise CannotContribute(
                    "its update holds NaN or infinite numbers; lower the learning rate or check the data"
                )
        except self.excused as error:
            self.attendance.excuses.append(str(error) or type(error).__name__)
            if not self.scheme.private:
                raise CannotContribute(self.attendance.excuses[-1]) from error
            return None, 1.0
        return Measurement(measured), float(local.num_examples) if self.scheme.weight_by_examples else 1.0

    def _may_contribute(self, state: ClientState, request: Request) -> bool:
        """Whether this client's data may enter the sum; its own ledger, if any, records it before anything is sent.

        This is the only place that checks limits: the limit of the scheme, by the client's memory or its ledger of
        this run, and the limits of its own policy, over all runs.
        """
        limit, ledger = self.scheme.privacy.max_contributions, self.ledger
        if request.message is None or ledger is None:
            return request.weights is not None and (limit is None or state.contributions < limit)
        terms, session = self._terms(request), _member(state, request).session
        spent = len(ledger.participations(session.run))
        within = request.weights is not None and (limit is None or spent < limit)
        within = within and (self.policy is None or self.policy.may_contribute(ledger, terms))
        ledger.join(
            session.run,
            session.round,
            session.attempt,
            noise_multiplier=terms.noise_multiplier,
            coin=terms.coin,
            contributes=within,
        )
        return within

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
                member, reply = share(_member(state, request), message.adverts, self.keys.verify_keys, source)
            case Survivors():
                member, reply = confirm(_member(state, request), message.survivors, identity)
            case Confirmations():
                _, reply = reveal(_member(state, request), message.confirmations, self.keys.verify_keys)
                member = None
            case _:
                raise InvalidInput(f"a {type(message).__name__} is not a step without a vector; check the server")
        return replace(state, member=member), Reply(round=request.round, attempt=request.attempt, message=reply)

    def _terms(self, request: Request) -> Terms:
        return self.scheme.terms(self.trainer.num_coordinates, request.round)


def _member(state: ClientState, request: Request) -> MemberState:
    """This client's part in the aggregation that a request belongs to."""
    member = state.member
    if member is None or (member.session.round, member.session.attempt) != (request.round, request.attempt):
        raise ProtocolViolation(
            f"client {state.client} takes no part in attempt {request.attempt} at round {request.round}"
        )
    return member


def _weighted(vector: FloatArray | Words, weight: float) -> FloatArray | Words:
    return vector if weight == 1.0 else cast(FloatArray, vector) * np.float32(weight)
