"""The client: train, compress, protect. It runs where the data is; simulations and deployments use the same code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from lowkey import checks
from lowkey.analytics import Question
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
from lowkey.privacy import Bounded, ClientLedger, Measurement, Policy, Terms, flip_coin
from lowkey.protocols import BatchTrainer, Keys, LocalUpdate, Operator, PersonTrainer, Respondent, Trainer
from lowkey.rng import BitSource, OSSecrets, Secrets, generator
from lowkey.secagg import (
    Delivery,
    MemberState,
    Session,
    advertise,
    blinding,
    check_delivery,
    confirm,
    mask,
    reveal,
    share,
    view_digest,
)
from lowkey.timing import StageClock
from lowkey.types import ClientId, FloatArray, Words

_LONGEST = 2000  # characters of a reason
_Measured: TypeAlias = tuple[Measurement | Bounded, float]


class _Asked(NamedTuple):
    """A client that was asked for a vector: its part in the masks if there are any, its secrets, whether it trains."""

    state: ClientState
    request: Request
    member: MemberState | None
    source: BitSource
    trains: bool


class Attendance:
    """Counts the clients that tried to train here, and keeps the reasons why some had nothing to send.

    ``limit`` says which limit has kept the last client from trying; None if none has.
    """

    def __init__(self) -> None:
        self.tried, self.excuses = 0, list[str]()
        self.limit: str | None = None

    def take(self) -> tuple[int, list[str]]:
        """Return the number and the reasons, and start counting again."""
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
    respondent : Respondent or None
        How it answers questions, where the scheme asks any.
    secrets : Secrets
        Source of noise, coins and keys.
    keys : Keys or None
        Who is enrolled, and this client's own signing key; needed for secure aggregation.
    policy, ledger : Policy, ClientLedger or None
        What the client insists on, and its own record of the rounds it joined: they protect it from the server. Both
        are used only under secure aggregation, and belong to one client.
    app : str or None
        Name of the app that the client has approved. It takes part in runs called ``<app>/…`` only, and its limit of
        contributions counts all of them. None, in a simulation, takes any name.
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
    respondent: Respondent | None = None
    secrets: Secrets = field(default_factory=OSSecrets)
    keys: Keys | None = None
    policy: Policy | None = None
    ledger: ClientLedger | None = None
    app: str | None = None
    excused: type[Exception] = CannotContribute
    clock: StageClock = field(default_factory=StageClock)
    attendance: Attendance = field(default_factory=Attendance)

    def __post_init__(self) -> None:
        if self.policy is not None and self.ledger is None:
            raise InvalidInput("a client with a policy needs a ledger, by which the policy's limits are counted")

    def handle(self, state: ClientState, request: Request) -> tuple[ClientState, Reply]:
        """Answer one request.

        Guarantees
        ----------
        In a private scheme a vector leaves only clipped, with a fresh share of noise and, under secure aggregation,
        masked. Every member's vector has the same length and weight. A client that is excused, or that has reached its
        limit of contributions, sends noise on zeros: staying away would tell something about its data. A client
        contributes to an attempt at a round once. Every step of a secure aggregation must be under the terms that the
        first one was under, and under the client's own settings as they are now. With a ledger, a client contributes
        to an attempt once, and confirms one list of survivors, even if it is given back a state that it had before. A
        delivery that cannot be masked with is refused before the client trains or its ledger counts it.

        Raises
        ------
        CannotContribute
            In a scheme without privacy, where nothing hides that a client has nothing to send.
        """
        if request.message is not None and not isinstance(request.message, Delivery):
            with self.clock.stage("agree", state.client):
                return self._agree(state, request, request.message)
        (answer,) = self.contribute([state], [request])
        if isinstance(answer, CannotContribute):
            raise answer
        return answer

    def contribute(
        self, states: Sequence[ClientState], requests: Sequence[Request]
    ) -> list[tuple[ClientState, Reply] | CannotContribute]:
        """Answer requests for vectors, all of one attempt and with one model, for several clients that run here.

        The same as one after the other, but they train together where the trainer can do that. In a scheme without
        privacy, the reason stands in place of the answer of a client that has nothing to send.

        Guarantees
        ----------
        As for :meth:`handle`. No client's vector depends on who else is in the batch.
        """
        number = requests[0].round
        operator = self.scheme.at(number).operator(self.trainer.num_coordinates, number)  # 3
        asked = [self._accept(state, request) for state, request in zip(states, requests, strict=True)]  # 4
        measured = self._measure([one for one in asked if one.trains], number, operator)  # 5, 6
        return [self._answer(one, measured.get(one.state.client), operator) for one in asked]  # 7, 8

    def _accept(self, state: ClientState, request: Request) -> _Asked:
        """Check a request for a vector, and decide whether the client's data may enter the sum."""
        self.clock.enter("accept", state.client)
        if (request.round, request.attempt) <= state.answered:
            raise InvalidInput(f"round {request.round} was answered already; a second answer would spend privacy again")
        privacy = self.scheme.at(request.round).privacy
        if request.weights is None and not privacy.private:
            raise InvalidInput(
                "the request has no model, and this scheme has no members that only add noise; check the server"
            )
        if request.message is None and privacy.aggregation == "masked":
            raise InvalidInput(
                "the server asks for an unmasked vector, which this client never sends; use secure aggregation"
            )
        privacy.require_clip(request.clip_norm)  # by all members alike: who fails must not tell whose data is used
        member = None
        if isinstance(request.message, Delivery):
            member = self._member(state, request)
            check_delivery(member, request.message)  # what cannot be masked costs nothing
        source = self.secrets.source("noise", request.round, request.attempt, state.client)
        trains = self._may_contribute(state, request, member) and flip_coin(source, privacy.sampling.coin)
        return _Asked(state, request, member, source, trains)

    def _answer(
        self, asked: _Asked, measured: _Measured | CannotContribute | None, operator: Operator
    ) -> tuple[ClientState, Reply] | CannotContribute:
        """Protect what was measured, if anything was, and mask it where that was agreed."""
        state, request, member = asked.state, asked.request, asked.member
        if isinstance(measured, CannotContribute):
            if not self.scheme.private:
                return measured
            measured = None
        measurement, weight = measured or (None, 1.0)
        with self.clock.stage("protect", state.client):
            vector = (
                self.scheme.at(request.round)
                .privacy.protect(
                    measurement, length=operator.num_measurements, clip_norm=request.clip_norm, source=asked.source
                )
                .value
            )
        after = ClientState(
            state.client,
            answered=(request.round, request.attempt),
            contributions=state.contributions + (request.weights is not None),
        )
        reply = Reply(round=request.round, attempt=request.attempt, vector=_weighted(vector, weight), weight=weight)
        if member is not None:
            identity = self._keys.identity(state.client)
            proof = self._prove(member, request, cast(Words, vector), operator)
            with self.clock.stage("mask", state.client):
                member, masked, said = mask(member, request.message, vector, identity, proof)  # type: ignore[arg-type]
            after, reply = replace(after, member=member), replace(reply, vector=masked, message=said)
        return after, reply

    @property
    def _keys(self) -> Keys:
        if self.keys is None:
            raise InvalidInput("secure aggregation needs the keys of the enrolled clients; give them to the client")
        return self.keys

    def _measure(
        self, asked: Sequence[_Asked], number: int, operator: Operator
    ) -> dict[ClientId, _Measured | CannotContribute]:
        """Compressed updates with their weights, or why there is none; anything but an excuse is raised."""
        measured: dict[ClientId, _Measured | CannotContribute] = {}
        scheme = self.scheme.at(number)
        self.attendance.tried += len(asked)
        by_person = scheme.privacy.by_person
        answers = self._train(asked, number) if scheme.question is None else self._respond(asked, scheme.question)
        for one, trained in zip(asked, repeat(None) if by_person else answers, strict=not by_person):
            client = one.state.client
            try:
                if trained is None:
                    measured[client] = self._sum_of_persons(one, scheme, operator), 1.0
                    continue
                if isinstance(trained, Exception):
                    self.clock.enter("train", client)
                    raise trained
                with self.clock.stage("compress", client):
                    measurement = operator.forward(trained.update[scheme.part])
                if not checks.is_finite(measurement):
                    raise CannotContribute(
                        "its update holds NaN or infinite numbers; lower the learning rate or check the data"
                    )
                weight = float(trained.num_examples) if scheme.weight_by_examples else 1.0
                measured[client] = Measurement(measurement), weight
            except self.excused as error:
                self.attendance.excuses.append(explain(error))
                measured[client] = CannotContribute(self.attendance.excuses[-1])
                measured[client].__cause__ = error  # type: ignore[union-attr]
        return measured

    def _sum_of_persons(self, asked: _Asked, scheme: Scheme, operator: Operator) -> Bounded:
        """The compressed updates of this client's persons, each bounded by itself, added up block after block."""
        client, request, trainer = asked.state.client, asked.request, self.trainer
        weights = cast(FloatArray, request.weights)
        blocks: Iterator[NDArray[Any]]
        if scheme.question is not None:
            blocks = self._respondent.answers(scheme.question, weights, client)
        elif isinstance(trainer, PersonTrainer):
            rng = generator(self.scheme.seed, "local training", request.round, client)
            blocks = trainer.train_persons(weights, client, rng)
        else:
            raise InvalidInput(
                f"privacy.unit is 'person', and a {type(trainer).__name__} does not tell persons apart; give it a "
                "method train_persons"
            )
        with self.clock.stage("train", client):
            return scheme.privacy.sum_of_persons(
                (
                    Measurement(operator.forward(np.asarray(update[scheme.part], np.float32)))
                    for block in blocks
                    for update in block
                ),
                length=operator.num_measurements,
                clip_norm=request.clip_norm,
                source=asked.source,
            )

    def _respond(self, asked: Sequence[_Asked], question: Question) -> Iterator[LocalUpdate | Exception]:
        """What each client answers: the mean over its units, of which a client that is protected itself has one."""
        for one in asked:
            client = one.state.client
            try:
                with self.clock.stage("train", client):
                    weights = cast(FloatArray, one.request.weights)
                    blocks = [*self._respondent.answers(question, weights, client)]
                    units = sum(len(block) for block in blocks)
                    if units == 0:
                        raise CannotContribute("it has no rows that the question is about")
                    mean = np.sum([block.sum(axis=0) for block in blocks], axis=0) / units
            except self.excused as error:
                yield error
            else:
                yield LocalUpdate(mean.astype(np.float32), units)

    @property
    def _respondent(self) -> Respondent:
        if self.respondent is None:
            raise InvalidInput("the scheme asks a question, and this client was given nothing that answers any")
        return self.respondent

    def _train(self, asked: Sequence[_Asked], number: int) -> Iterator[LocalUpdate | Exception]:
        """What each client has learned, or the excuse of one that could not train."""

        def rng_of(client: ClientId) -> np.random.Generator:
            return generator(self.scheme.seed, "local training", number, client)

        trainer = self.trainer
        if len(asked) > 1 and isinstance(trainer, BatchTrainer):
            weights = cast(FloatArray, asked[0].request.weights)
            with self.clock.stage("train", asked[0].state.client):
                updates = trainer.train_batch(weights, [one.state.client for one in asked], rng_of)
            yield from updates
            return
        for one in asked:
            client = one.state.client
            try:
                with self.clock.stage("train", client):
                    update = trainer.train(cast(FloatArray, one.request.weights), client, rng_of(client))
            except self.excused as error:
                yield error
            else:
                yield update

    def _prove(self, member: MemberState, request: Request, vector: Words, operator: Operator) -> bytes:
        """The proof that this client's vector is short; empty where none was agreed."""
        bound = self.scheme.at(request.round).privacy.norm_bound(operator.num_measurements)
        if bound is None:
            return b""
        source = self.secrets.source("proof", request.round, request.attempt, member.me)
        with self.clock.stage("prove", member.me):
            hidden = blinding(member, request.message)  # type: ignore[arg-type]
            return bound.prove(vector, hidden, member.session.digest, member.me, source)

    def _may_contribute(self, state: ClientState, request: Request, member: MemberState | None) -> bool:
        """Whether this client's data may enter the sum; its own ledger, if any, records it before anything is sent.

        This is the only place that checks limits: the limit of the scheme, by the client's memory or by its ledger of
        this app, and the limits of its own policy, over all apps.
        """
        limit, ledger = self.scheme.privacy.max_contributions, self.ledger
        own = self.scheme.at(request.round).privacy.max_contributions
        if member is None or ledger is None:  # memory does not tell kinds of releases apart
            most = limit if self.scheme.asked else own
            return request.weights is not None and (most is None or state.contributions < most)
        terms, session = self._terms(request), member.session
        if self.policy is not None:
            self.policy.check(terms)
        if request.weights is not None:
            self.attendance.limit = self._limit_reached(ledger, terms, limit, own)
        within = request.weights is not None and self.attendance.limit is None
        ledger.join(
            session.run,
            session.round,
            session.attempt,
            noise_multiplier=terms.noise_multiplier,
            coin=terms.coin,
            contributes=within,
        )
        return within

    def _limit_reached(self, ledger: ClientLedger, terms: Terms, limit: int | None, own: int | None) -> str | None:
        """Which limit keeps this client's data out of the sum, in words; None if none does.

        Releases with other noise than usual rounds, such as answers to questions, have a limit of their own beside.
        """
        used, under = ledger.participations(self.app), "" if self.app is None else f" under the app '{self.app}'"
        if limit is not None and len(used) >= limit:
            return f"{len(used)} of {limit} contributions{under} are used (privacy.max_contributions)"
        alike = sum(one.noise_multiplier == terms.noise_multiplier for one in used)
        if own is not None and alike >= own:
            return f"{alike} of {own} contributions{under} with this noise are used, as many as were planned"
        if self.scheme.asked and limit is not None and not terms.question:
            asking = self.scheme.at(self.scheme.asked[0]).privacy  # what is set aside for answers is for answers
            promise, reserved = asking.promise(), asking.max_contributions
            if promise is not None and reserved is not None:
                others = sum(one.noise_multiplier != promise.noise_multiplier for one in used)
                if others >= limit - reserved:
                    return f"{others} of {limit - reserved} contributions{under} besides answers are used"
        return None if self.policy is None else self.policy.limit_reached(ledger, terms)

    def _agree(self, state: ClientState, request: Request, message: ToMember) -> tuple[ClientState, Reply]:
        """A step of the secure aggregation that carries no vector."""
        keys = self._keys
        identity, source = keys.identity(state.client), self.secrets.source(
            "keys", type(message).__name__, request.round, request.attempt, state.client
        )  # fmt: skip
        member: MemberState | None
        reply: FromMember
        match message:
            case Invite():
                if self.policy is not None:
                    self.policy.check(self._terms(request))
                member, reply = advertise(self._session(message.run, message.roster, request), identity, source)
            case Adverts():
                member, reply = share(
                    self._member(state, request),
                    message.advertisers,
                    message.adverts,
                    keys.verify_keys,
                    identity,
                    source,
                )
            case Survivors():
                member, reply = confirm(self._member(state, request), message.survivors, identity)
                self._record_view(member)
            case Confirmations():
                _, reply = reveal(
                    self._member(state, request),
                    message.confirmations,
                    keys.verify_keys,
                    identity,
                    source,
                    message.vouchers,
                )
                member = None
            case _:
                raise InvalidInput(f"a {type(message).__name__} is not a step without a vector; check the server")
        return replace(state, member=member), Reply(round=request.round, attempt=request.attempt, message=reply)

    def _terms(self, request: Request) -> Terms:
        return self.scheme.at(request.round).terms(self.trainer.num_coordinates, request.round)

    def _session(self, run: str, roster: tuple[ClientId, ...], request: Request) -> Session:
        """The aggregation as this client sets it up from its own settings; a run of another app is refused."""
        app, _, rest = run.rpartition("/")
        if self.app is not None and (app != self.app or not rest):
            raise ProtocolViolation(f"the run is called {run!r}; this client takes part in runs '{self.app}/…' only")
        return self.scheme.session(run, request.round, request.attempt, roster, self._terms(request))

    def _member(self, state: ClientState, request: Request) -> MemberState:
        """This client's part in the aggregation that a request belongs to, if its settings are still the same."""
        member = state.member
        if member is None or (member.session.round, member.session.attempt) != (request.round, request.attempt):
            raise ProtocolViolation(
                f"client {state.client} takes no part in attempt {request.attempt} at round {request.round}"
            )
        if self._session(member.session.run, member.session.roster, request) != member.session:
            raise ProtocolViolation(
                f"client {state.client} made its keys for attempt {request.attempt} at round {request.round} under "
                "other terms than those of the app that it runs now; it leaves this attempt"
            )
        return member

    def _record_view(self, member: MemberState) -> None:
        """Write to the ledger what this client is about to confirm: its state may be set back, the ledger is not."""
        if self.ledger is not None:
            session = member.session
            view = view_digest(member.advertisers, member.sharers, member.survivors)
            self.ledger.confirm(session.run, session.round, session.attempt, view)


def explain(error: BaseException) -> str:
    """What happened, in at most some thousand characters that can be written to any file."""
    try:
        text = str(error)
    except Exception:  # an error that cannot even say what it is must not become another error
        text = ""
    text = f"{text[:_LONGEST]} …" if len(text) > _LONGEST else text
    return text.encode(errors="backslashreplace").decode() or type(error).__name__


def _weighted(vector: FloatArray | Words, weight: float) -> FloatArray | Words:
    return vector if weight == 1.0 else cast(FloatArray, vector) * np.float32(weight)
