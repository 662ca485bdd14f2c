"""What both private aggregators do: make the price durable before vectors are asked for, then read the sum."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias, cast

import numpy as np

from lowkey.errors import RoundFailed
from lowkey.federation.aggregation.attempt import Attempt, Outcome, Replies, Requests
from lowkey.federation.records import Reply
from lowkey.types import Words

Pay: TypeAlias = Callable[[], None]
IntegerSum: TypeAlias = Callable[[Attempt, Pay], Generator[Requests, Replies, tuple[Words, int]]]
"""Adds up the members' integers; calls its second argument before it asks for them. Returns sum and survivors."""


def private_mean(attempt: Attempt, integer_sum: IntegerSum) -> Generator[Requests, Replies, Outcome]:
    """The noisy sum of integers, divided by a public number.

    Guarantees
    ----------
    The price is durable in the ledger before the requests leave that ask for vectors, and stays paid however the
    attempt ends: what a server has been sent it may keep. With fewer survivors than the noise was scaled for, the
    attempt fails and nothing is released. A sum that is larger than honest members can make it is not used.
    """
    number, ledger, privacy = attempt.number, attempt.ledger, attempt.scheme.privacy
    event, paid = privacy.event(), False

    def pay() -> None:
        nonlocal paid
        if event is not None:
            ledger.intend(number, attempt.attempt, event)
            paid = True

    try:
        total, survivors = yield from integer_sum(attempt, pay)
    except RoundFailed:
        if paid:
            ledger.abort(number, attempt.attempt)
        raise
    if paid:
        ledger.release(number, attempt.attempt)
    with attempt.clock.stage("sum"):
        mean = privacy.read_sum(
            total,
            length=attempt.operator.num_measurements,
            clip_norm=attempt.clip_norm,
            survivors=survivors,
            weight=survivors,
        )
    return Outcome(mean=mean, survivors=survivors)


def words_of(attempt: Attempt, reply: Reply, length: int) -> Words | None:
    """The vector of a private reply; None if it cannot be added, so that its sender counts as dropped out."""
    vector = reply.vector
    if not attempt.belongs(reply) or vector is None:
        return None
    return cast(Words, vector) if vector.shape == (length,) and vector.dtype == np.uint32 else None
