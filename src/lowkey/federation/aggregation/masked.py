"""The sum of integers under secure aggregation: five exchanges, after which only the sum is known."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import replace
from typing import TypeVar

from lowkey.federation.aggregation.attempt import Attempt, Outcome, Replies, Requests
from lowkey.federation.aggregation.private import Pay, private_mean, words_of
from lowkey.federation.records import Adverts, Confirmations, Invite, Request, Survivors, ToMember
from lowkey.secagg import (
    Advert,
    Confirmation,
    Revealed,
    SealedShares,
    Tally,
    accept_adverts,
    accept_confirmations,
    deliver,
    unmask,
)
from lowkey.types import ClientId, Words

Message = TypeVar("Message", Advert, SealedShares, Confirmation, Revealed)


def masked_mean(attempt: Attempt) -> Generator[Requests, Replies, Outcome]:
    """Keys, shares, masked vectors, confirmations; then, after the price is paid, the shares that unmask the sum."""
    return (yield from private_mean(attempt, _masked_sum))


def _masked_sum(attempt: Attempt, pay: Pay) -> Generator[Requests, Replies, tuple[Words, int]]:
    scheme, requests, keys, clock = attempt.scheme, attempt.requests, attempt.verify_keys, attempt.clock
    terms = scheme.terms(attempt.state.weights.size, attempt.number)
    roster = attempt.cohort.roster
    session = scheme.session(attempt.ledger.run, attempt.number, attempt.attempt, roster, terms)

    def everyone(clients: Iterable[ClientId], message: ToMember) -> Requests:
        return dict.fromkeys(clients, Request(round=attempt.number, attempt=attempt.attempt, message=message))

    replies = yield everyone(roster, Invite(run=session.run, roster=roster))
    offered = _messages(attempt, replies, Advert)
    with clock.stage("unmask"):
        adverts = accept_adverts(session, offered, keys)
    replies = yield everyone((advert.sender for advert in adverts), Adverts(adverts=adverts))
    shared = _messages(attempt, replies, SealedShares)
    with clock.stage("unmask"):
        deliveries = deliver(session, adverts, shared)
    tally = Tally(session, adverts, deliveries)
    replies = yield {client: replace(requests[client], message=delivery) for client, delivery in deliveries.items()}
    for client, reply in replies:
        if client in deliveries and (vector := words_of(attempt, reply, session.length)) is not None:
            with clock.stage("sum"):
                tally.add(client, vector)
    survivors = tally.close()
    replies = yield everyone(survivors, Survivors(survivors=survivors))
    confirmed = _messages(attempt, replies, Confirmation)
    with clock.stage("unmask"):
        confirmations = accept_confirmations(tally, confirmed, keys)
    pay()
    witnesses = (confirmation.sender for confirmation in confirmations)
    replies = yield everyone(witnesses, Confirmations(confirmations=confirmations))
    revealed = _messages(attempt, replies, Revealed)
    with clock.stage("unmask"):
        return unmask(tally, revealed), len(survivors)


def _messages(attempt: Attempt, replies: Replies, kind: type[Message]) -> dict[ClientId, Message]:
    """The messages of one step by sender; anything of another kind or attempt is left out."""
    members = set(attempt.cohort.roster)
    return {
        client: reply.message
        for client, reply in replies
        if client in members and attempt.belongs(reply) and isinstance(reply.message, kind)
    }
