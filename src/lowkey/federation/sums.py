"""How the vectors of a cohort become one mean: openly, as a plain sum of integers, or under secure aggregation.

Each is a part of a round's flow: a generator that yields requests by client and is sent the replies. The two private
ones give the same bits: masks cancel.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar, cast

import numpy as np

from lowkey import checks
from lowkey.errors import ClientFailed, InvalidInput, RoundFailed
from lowkey.federation.records import (
    Adverts,
    Confirmations,
    Invite,
    Reply,
    Request,
    RunState,
    Survivors,
    ToMember,
)
from lowkey.federation.schemes import Scheme
from lowkey.privacy import ClientLevelPrivacy, Cohort, Ledger
from lowkey.protocols import Operator
from lowkey.secagg import (
    Advert,
    Confirmation,
    Directory,
    Revealed,
    SealedShares,
    Session,
    Tally,
    accept_adverts,
    accept_confirmations,
    deliver,
    unmask,
)
from lowkey.timing import StageClock
from lowkey.types import ClientId, FloatArray, Words

Requests: TypeAlias = Mapping[ClientId, Request]
Replies: TypeAlias = Iterable[tuple[ClientId, Reply]]
Message = TypeVar("Message", Advert, SealedShares, Confirmation, Revealed)

_IMPLAUSIBLE = 6.0  # standard deviations of the noise: beyond what honest members add up to


@dataclass(frozen=True, kw_only=True)
class Mean:
    """The mean of a round.

    Attributes
    ----------
    value : m numbers.
    noise : standard deviation of the privacy noise in each of them; 0 in open schemes.
    clip_norm : S of the next round; None in open schemes.
    median_norm : typical norm of openly sent vectors, which helps to choose a bound; None in private schemes.
    survivors : clients whose vectors are in it.
    """

    value: FloatArray = field(repr=False)
    survivors: int
    noise: float = 0.0
    clip_norm: float | None = None
    median_norm: float | None = None


def open_mean(
    number: int, attempt: int, state: RunState, operator: Operator, cohort: Cohort, least: int, clock: StageClock
) -> Generator[Requests, Replies, Mean]:
    """The weighted mean of vectors sent as they are; who does not answer is left out, if at least ``least`` do."""
    asked = {client: Request(round=number, attempt=attempt, weights=state.weights) for client in cohort.contributors}
    replies = yield asked
    total, weight, norms = np.zeros(operator.num_measurements, np.float32), 0.0, []
    missing = set(asked)
    for client, reply in replies:
        vector = _open_vector(client, reply, asked.get(client), missing, total.size)
        missing.remove(client)
        with clock.stage("sum"):
            total += vector
            weight += reply.weight
            norms.append(float(np.linalg.norm(vector)) / reply.weight)
    if len(norms) < least:
        raise RoundFailed(
            f"{len(norms)} clients of the cohort of {len(asked)} answered; at least {least} are needed "
            "(federation.min_clients). Check the clients and run the round again"
        )
    total /= np.float32(weight)
    return Mean(value=total, survivors=len(norms), median_norm=statistics.median(norms))


def private_mean(
    scheme: Scheme,
    privacy: ClientLevelPrivacy,
    state: RunState,
    operator: Operator,
    cohort: Cohort,
    *,
    number: int,
    attempt: int,
    ledger: Ledger,
    directory: Directory,
    clock: StageClock,
) -> Generator[Requests, Replies, Mean]:
    """The noisy sum of integers over a public number.

    Guarantees
    ----------
    With fewer survivors than the noise was scaled for, the attempt fails and nothing is released. Otherwise its price
    is durable in the ledger before the sum can be known. A sum that is larger than honest members can make it is not
    used; its price stays paid.
    """
    clip_norm = privacy.clip_norm if state.clip_norm is None else state.clip_norm
    encoding = privacy.encoding(operator.num_measurements)
    asked = {
        client: Request(round=number, attempt=attempt, weights=state.weights, clip_norm=clip_norm)
        for client in cohort.contributors
    }
    asked |= {client: Request(round=number, attempt=attempt, clip_norm=clip_norm) for client in cohort.noise_only}

    event = privacy.event()
    paid = False

    def pay() -> None:
        nonlocal paid
        if event is not None:
            ledger.intend(number, attempt, event)
            paid = True

    try:
        if scheme.aggregation == "masked":
            terms = scheme.terms(state.weights.size, number)
            session = scheme.session(ledger.run, number, attempt, cohort.roster, terms)
            total, survivors = yield from _masked_sum(session, asked, directory, pay, clock)
        else:
            total, survivors = yield from _plain_sum(privacy, asked, encoding.wire_length, pay, clock)
    except RoundFailed:
        if paid:  # too few shares came to unmask the sum, so that nobody has learned it
            ledger.abort(number, attempt)
        raise
    if paid:
        ledger.release(number, attempt)
    with clock.stage("sum"):
        decoded = encoding.decode(total, clip_norm)
        norm = checks.finite_norm("the sum", decoded) / encoding.step(clip_norm)
    noise = encoding.total_std(survivors)
    if norm > survivors * encoding.sensitivity + _IMPLAUSIBLE * noise * math.sqrt(encoding.length):
        raise RoundFailed(
            "the sum is larger than honest members can make it, so it was not used; what it cost stays in the ledger. "
            "A client is broken or hostile"
        )
    expected = privacy.sampling.expected_size
    decoded /= np.float32(expected)
    return Mean(
        value=decoded,
        survivors=survivors,
        noise=noise * encoding.step(clip_norm) / expected,
        clip_norm=(
            clip_norm
            if privacy.adaptive is None
            else privacy.adaptive.update(clip_norm, encoding.count(total), expected)
        ),
    )


def _plain_sum(
    privacy: ClientLevelPrivacy, asked: Requests, length: int, pay: Callable[[], None], clock: StageClock
) -> Generator[Requests, Replies, tuple[Words, int]]:
    """Sum and number of survivors, by a server that sees every vector; only a simulation may do that."""
    replies = yield asked
    total, missing = np.zeros(length, np.uint32), set(asked)
    for client, reply in replies:
        vector = _words(reply, asked[client], length) if client in missing else None
        if vector is not None:
            missing.remove(client)
            with clock.stage("sum"):
                total += vector
    survivors = len(asked) - len(missing)
    _require_survivors(survivors, privacy)
    pay()
    return total, survivors


def _masked_sum(
    session: Session, asked: Requests, directory: Directory, pay: Callable[[], None], clock: StageClock
) -> Generator[Requests, Replies, tuple[Words, int]]:
    """Sum and number of survivors, by secure aggregation: five exchanges, after which only the sum is known."""

    def everyone(clients: Iterable[ClientId], message: ToMember) -> Requests:
        return {c: Request(round=session.round, attempt=session.attempt, message=message) for c in clients}

    replies = yield everyone(session.roster, Invite(run=session.run, roster=session.roster))
    offered = _messages(replies, asked, Advert)
    with clock.stage("unmask"):
        adverts = accept_adverts(session, offered, directory)
    replies = yield everyone((advert.sender for advert in adverts), Adverts(adverts=adverts))
    shared = _messages(replies, asked, SealedShares)
    with clock.stage("unmask"):
        deliveries = deliver(session, adverts, shared)
    tally = Tally(session, adverts, deliveries)
    replies = yield {client: replace(asked[client], message=delivery) for client, delivery in deliveries.items()}
    for client, reply in replies:
        if client in deliveries and (vector := _words(reply, asked[client], session.length)) is not None:
            with clock.stage("sum"):
                tally.add(client, vector)
    survivors = tally.close()
    replies = yield everyone(survivors, Survivors(survivors=survivors))
    confirmed = _messages(replies, asked, Confirmation)
    with clock.stage("unmask"):
        confirmations = accept_confirmations(tally, confirmed, directory)
    pay()
    witnesses = (confirmation.sender for confirmation in confirmations)
    replies = yield everyone(witnesses, Confirmations(confirmations=confirmations))
    revealed = _messages(replies, asked, Revealed)
    with clock.stage("unmask"):
        return unmask(tally, revealed), len(survivors)


def _messages(replies: Replies, asked: Requests, kind: type[Message]) -> dict[ClientId, Message]:
    """What members say in one step, by sender; whatever is not of this kind and attempt is left out."""
    return {
        client: reply.message
        for client, reply in replies
        if client in asked
        and (reply.round, reply.attempt) == (asked[client].round, asked[client].attempt)
        and isinstance(reply.message, kind)
    }


def _require_survivors(survivors: int, privacy: ClientLevelPrivacy) -> None:
    """Fail before anything is released when the noise would fall short."""
    if survivors < privacy.shares.survivors:
        raise RoundFailed(
            f"{survivors} members answered; the noise was scaled for at least {privacy.shares.survivors} of "
            f"{privacy.sampling.roster_size}, so nothing was released"
        )


def _words(reply: Reply, request: Request, length: int) -> Words | None:
    """The vector of a private reply; None if it cannot be added, so that its sender counts as dropped out."""
    vector = reply.vector
    if (reply.round, reply.attempt) != (request.round, request.attempt) or vector is None:
        return None
    return cast(Words, vector) if vector.shape == (length,) and vector.dtype == np.uint32 else None


def _open_vector(
    client: ClientId, reply: Reply, request: Request | None, missing: set[ClientId], length: int
) -> FloatArray:
    if request is None or client not in missing:
        raise ClientFailed(client, "reply", "it was not asked, or has answered already")
    if reply.vector is None:
        raise ClientFailed(client, "reply", "it has no vector")
    vector = cast(FloatArray, reply.vector)
    try:
        checks.vector_of("its vector", vector, length)
    except InvalidInput as error:
        raise ClientFailed(client, "reply", str(error)) from error
    if (reply.round, reply.attempt) != (request.round, request.attempt):
        raise ClientFailed(client, "reply", f"it answers round {reply.round} instead of {request.round}")
    if not (reply.weight > 0 and math.isfinite(reply.weight)):
        raise ClientFailed(client, "reply", f"its weight is {reply.weight}; it must be above 0")
    return vector
