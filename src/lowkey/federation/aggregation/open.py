"""The weighted mean of vectors sent as they are, for schemes that promise no privacy."""

from __future__ import annotations

import math
import statistics
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar, NoReturn, cast

import numpy as np

from lowkey import checks
from lowkey.errors import ClientFailed, InvalidInput
from lowkey.federation.aggregation.attempt import Attempt, Outcome, Replies
from lowkey.federation.aggregation.sums import sum_of
from lowkey.federation.records import Reply, Requests
from lowkey.types import ClientId, FloatArray


def open_mean(attempt: Attempt) -> Generator[Requests, Replies, Outcome]:
    """The weighted mean of all answers; the attempt fails if too few clients answer."""
    length = attempt.operator.num_measurements
    requests = attempt.vectors(OpenRule(number=attempt.number, attempt=attempt.attempt, length=length))
    replies = yield requests
    added = sum_of(requests, replies, attempt.clock)
    attempt.require_survivors(added.survivors)
    mean = attempt.scheme.privacy.read_sum(
        added.total, length=length, clip_norm=attempt.clip_norm, survivors=added.survivors, weight=added.weight
    )
    return Outcome(
        mean=mean, survivors=added.survivors, weight=added.weight, median_norm=statistics.median(added.norms)
    )


@dataclass(frozen=True, kw_only=True)
class OpenRule:
    """Satisfies :class:`lowkey.federation.aggregation.sums.Rule`: what cannot be used is a defect, and is named."""

    number: int
    attempt: int
    length: int
    dtype: ClassVar[type[np.float32]] = np.float32
    keeps_norms: ClassVar[bool] = True

    def read(self, client: ClientId, reply: Reply) -> FloatArray:
        if (reply.round, reply.attempt) != (self.number, self.attempt):
            raise ClientFailed(client, "reply", f"it answers round {reply.round} instead of {self.number}")
        if reply.vector is None:
            raise ClientFailed(client, "reply", "it has no vector")
        vector = cast(FloatArray, reply.vector)
        try:
            checks.vector_of("its vector", vector, self.length)
        except InvalidInput as error:
            raise ClientFailed(client, "reply", str(error)) from error
        if not (reply.weight > 0 and math.isfinite(reply.weight)):
            raise ClientFailed(client, "reply", f"its weight is {reply.weight}; it must be finite and above 0")
        return vector

    def refuse(self, client: ClientId) -> NoReturn:
        raise ClientFailed(client, "reply", "it was not asked, or has answered already")
