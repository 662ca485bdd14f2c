"""The sum of integers by a server that sees every vector: the same bits as a masked sum, for simulations."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from lowkey.federation.aggregation.attempt import Attempt, Outcome, Replies, Requests
from lowkey.federation.aggregation.private import Pay, private_mean, words_of
from lowkey.types import Words


def plain_mean(attempt: Attempt) -> Generator[Requests, Replies, Outcome]:
    """One exchange: every member sends its noised vector."""
    return (yield from private_mean(attempt, _plain_sum))


def _plain_sum(attempt: Attempt, pay: Pay) -> Generator[Requests, Replies, tuple[Words, int]]:
    length = attempt.scheme.privacy.wire(attempt.operator.num_measurements).length
    requests, bound = attempt.requests, attempt.scheme.privacy.norm_bound(attempt.operator.num_measurements)
    pay()
    replies = yield requests
    total, missing = np.zeros(length, np.uint32), set(requests)
    for client, reply in replies:
        vector = words_of(attempt, reply, length) if client in missing else None
        if vector is not None and (bound is None or bound.fits(vector)):
            missing.remove(client)
            with attempt.clock.stage("sum"):
                total += vector
    survivors = len(requests) - len(missing)
    attempt.require_survivors(survivors)
    return total, survivors
