"""What both private aggregators do: make the price durable before vectors are asked for, then read the sum."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias, cast

import numpy as np

from lowkey.errors import RoundFailed
from lowkey.federation.aggregation.attempt import Attempt, Outcome, Replies
from lowkey.federation.records import Reply, Requests
from lowkey.types import ClientId, Words

if TYPE_CHECKING:
    from lowkey.privacy.proofs import NormBound

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
    return Outcome(mean=mean, survivors=survivors, weight=survivors)


@dataclass(frozen=True, kw_only=True)
class IntegerRule:
    """Satisfies :class:`lowkey.federation.aggregation.sums.Rule`: who sends what cannot be added has dropped out."""

    number: int
    attempt: int
    length: int
    bound: NormBound | None = None
    dtype: ClassVar[type[np.uint32]] = np.uint32
    keeps_norms: ClassVar[bool] = False

    @classmethod
    def of(cls, attempt: Attempt) -> IntegerRule:
        privacy, length = attempt.scheme.privacy, attempt.operator.num_measurements
        wire, bound = privacy.wire(length), privacy.norm_bound(length)
        return cls(number=attempt.number, attempt=attempt.attempt, length=wire.length, bound=bound)

    def read(self, client: ClientId, reply: Reply) -> Words | None:
        vector = self.words(reply)
        return vector if vector is not None and (self.bound is None or self.bound.fits(vector)) else None

    def words(self, reply: Reply) -> Words | None:
        """The integers of a reply, masked or not; None if they cannot be added."""
        vector = reply.vector
        if vector is None or (reply.round, reply.attempt) != (self.number, self.attempt):
            return None
        return cast(Words, vector) if vector.shape == (self.length,) and vector.dtype == np.uint32 else None

    def refuse(self, client: ClientId) -> None: ...
