"""The sum of integers under secure aggregation: five exchanges, after which only the sum is known."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from lowkey.errors import RoundFailed
from lowkey.federation.aggregation.attempt import Attempt, Outcome, Replies
from lowkey.federation.aggregation.private import IntegerRule, Pay, private_mean
from lowkey.federation.aggregation.sums import singly
from lowkey.federation.records import Adverts, Confirmations, Invite, Requests, Survivors
from lowkey.secagg import (
    Advert,
    Confirmation,
    Links,
    Masked,
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
    """Keys and shares; then, after the price is paid, masked vectors, confirmations, shares that unmask the sum."""
    return (yield from private_mean(attempt, _masked_sum))


def _masked_sum(attempt: Attempt, pay: Pay) -> Generator[Requests, Replies, tuple[Words, int]]:
    scheme, keys, clock, rule = attempt.scheme, attempt.verify_keys, attempt.clock, IntegerRule.of(attempt)
    terms = scheme.terms(attempt.state.weights.size, attempt.number)
    roster = attempt.cohort.roster
    session = scheme.session(attempt.ledger.run, attempt.number, attempt.attempt, roster, terms)

    replies = yield attempt.step(roster, Invite(run=session.run, roster=roster))
    offered = _messages(attempt, replies, Advert)
    with clock.stage("unmask"):
        links = Links(session, accept_adverts(session, offered, keys))
        going = links.advertisers
        shown = {client: Adverts(advertisers=going, adverts=links.shown_to(client)) for client in going}
    replies = yield attempt.steps(shown)
    shared = _messages(attempt, replies, SealedShares)
    with clock.stage("unmask"):
        deliveries = deliver(links, shared, keys)
    tally = Tally(links, deliveries)
    pay()
    replies = yield attempt.masked_vectors(deliveries)
    bound = rule.bound
    unproven: dict[ClientId, tuple[Words, Masked]] = {}
    for client, reply in singly(replies):
        vector = rule.words(reply) if client in deliveries else None
        if vector is None or not isinstance(reply.message, Masked):
            continue
        if bound is None:
            with clock.stage("sum"):
                tally.add(client, vector, reply.message, keys)
        elif client not in unproven and bound.is_sized(reply.message.proof):
            unproven[client] = vector.copy(), reply.message
    if bound is not None:
        with clock.stage("verify"):
            for client in sorted(bound.honest({c: said.proof for c, (_, said) in unproven.items()}, session.digest)):
                tally.add(client, *unproven[client], keys)
    survivors = tally.close()
    replies = yield attempt.step(survivors, Survivors(survivors=survivors))
    confirmed = _messages(attempt, replies, Confirmation)
    with clock.stage("unmask"):
        confirmations = accept_confirmations(tally, confirmed, keys)
    replies = yield attempt.steps(
        {
            witness.sender: Confirmations(confirmations=confirmations, vouchers=tally.vouchers_for(witness.sender))
            for witness in confirmations
        }
    )
    revealed = _messages(attempt, replies, Revealed)
    with clock.stage("unmask"):
        total, blinding = unmask(tally, revealed, keys)
    if bound is not None and not bound.opens([unproven[c][1].proof for c in survivors], total, blinding):
        raise RoundFailed(
            "the sum is not that of the vectors that members proved to be short, so it was not used, and its cost "
            "stays in the ledger; look for a broken or hostile client"
        )
    return total, len(survivors)


def _messages(attempt: Attempt, replies: Replies, kind: type[Message]) -> dict[ClientId, Message]:
    """The messages of one step by sender; anything of another kind or attempt is left out."""
    members = set(attempt.cohort.roster)
    return {
        client: reply.message
        for client, reply in singly(replies)
        if client in members and attempt.belongs(reply) and isinstance(reply.message, kind)
    }
