"""The weighted mean of vectors sent as they are, for schemes that promise no privacy."""

from __future__ import annotations

import math
import statistics
from collections.abc import Generator
from typing import cast

import numpy as np

from lowkey import checks
from lowkey.errors import ClientFailed, InvalidInput
from lowkey.federation.aggregation.attempt import Attempt, Outcome, Replies, Requests
from lowkey.federation.records import Reply
from lowkey.types import ClientId, FloatArray


def open_mean(attempt: Attempt) -> Generator[Requests, Replies, Outcome]:
    """The weighted mean of all answers; the attempt fails if too few clients answer."""
    requests, length = attempt.requests, attempt.operator.num_measurements
    replies = yield requests
    total, weight, norms = np.zeros(length, np.float32), 0.0, []
    missing = set(requests)
    for client, reply in replies:
        vector = _vector(attempt, client, reply, missing)
        missing.remove(client)
        with attempt.clock.stage("sum"):
            total += vector
            weight += reply.weight
            norms.append(float(np.linalg.norm(vector)) / reply.weight)
    attempt.require_survivors(len(norms))
    mean = attempt.scheme.privacy.read_sum(
        total, length=length, clip_norm=attempt.clip_norm, survivors=len(norms), weight=weight
    )
    return Outcome(mean=mean, survivors=len(norms), median_norm=statistics.median(norms))


def _vector(attempt: Attempt, client: ClientId, reply: Reply, missing: set[ClientId]) -> FloatArray:
    """The vector of a reply; a vector that cannot be used is a defect, and the error names its client."""
    if client not in missing:
        raise ClientFailed(client, "reply", "it was not asked, or has answered already")
    if not attempt.belongs(reply):
        raise ClientFailed(client, "reply", f"it answers round {reply.round} instead of {attempt.number}")
    if reply.vector is None:
        raise ClientFailed(client, "reply", "it has no vector")
    vector = cast(FloatArray, reply.vector)
    try:
        checks.vector_of("its vector", vector, attempt.operator.num_measurements)
    except InvalidInput as error:
        raise ClientFailed(client, "reply", str(error)) from error
    if not (reply.weight > 0 and math.isfinite(reply.weight)):
        raise ClientFailed(client, "reply", f"its weight is {reply.weight}; it must be finite and above 0")
    return vector
