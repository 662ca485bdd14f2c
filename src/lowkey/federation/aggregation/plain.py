"""The sum of integers by a server that sees every vector: the same bits as a masked sum, for simulations."""

from __future__ import annotations

from collections.abc import Generator
from typing import cast

from lowkey.federation.aggregation.attempt import Attempt, Outcome, Replies
from lowkey.federation.aggregation.private import IntegerRule, Pay, private_mean
from lowkey.federation.aggregation.sums import sum_of
from lowkey.federation.records import Requests
from lowkey.types import Words


def plain_mean(attempt: Attempt) -> Generator[Requests, Replies, Outcome]:
    """One exchange: every member sends its noised vector."""
    return (yield from private_mean(attempt, _plain_sum))


def _plain_sum(attempt: Attempt, pay: Pay) -> Generator[Requests, Replies, tuple[Words, int]]:
    requests = attempt.vectors(IntegerRule.of(attempt))
    pay()
    replies = yield requests
    added = sum_of(requests, replies, attempt.clock)
    attempt.require_survivors(added.survivors)
    return cast(Words, added.total), added.survivors
