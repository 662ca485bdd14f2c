"""One round, top to bottom.

``round_flow`` is a generator: it yields requests by client and is sent the replies; a runtime in between (worker
processes, a network) carries them. It never touches a client's data, and in a private scheme sees only noised vectors.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Generator, Iterable, Mapping
from typing import TypeAlias

import numpy as np

from lowkey import checks
from lowkey.errors import ClientFailed, InvalidInput, RoundFailed
from lowkey.federation.records import Reply, Request, RoundOutcome, RunState
from lowkey.federation.schemes import Scheme
from lowkey.privacy import Cohort, Ledger
from lowkey.protocols import Ask
from lowkey.rng import PublicStream, Secrets
from lowkey.timing import StageClock
from lowkey.types import ClientId, FloatArray

Requests: TypeAlias = Mapping[ClientId, Request]
Replies: TypeAlias = Iterable[tuple[ClientId, Reply]]


def round_flow(
    scheme: Scheme, state: RunState, *, secrets: Secrets, ledger: Ledger, clock: StageClock
) -> Generator[Requests, Replies, RoundOutcome]:
    """Play the round after ``state``.

    Guarantees
    ----------
    What a private round costs is durable in the ledger before any client is asked. If a member of its cohort does not
    answer, the noise of the sum falls short, so the round fails and nothing is released.
    """
    number = state.round + 1
    operator = scheme.codec.operator(state.weights.size, number)

    # 1. Who takes part: secretly where amplification is claimed, reproducibly where nothing is.
    draws = secrets.source("cohort", number) if scheme.private else PublicStream(scheme.seed, "cohort", number)
    cohort = scheme.privacy.sampling.draw(draws)

    # 2. The price is paid before anything can be seen.
    if (event := scheme.privacy.event()) is not None:
        attempt = ledger.next_attempt(number)
        ledger.intend(number, attempt, event)

    # 3. Every member trains, compresses and protects; only the sum is kept.
    asked = {c: Request(round=number, shares=cohort.size, weights=state.weights) for c in cohort.contributors}
    asked |= {c: Request(round=number, shares=cohort.size) for c in cohort.noise_only}
    replies = yield asked
    total, weight, norms = np.zeros(operator.num_measurements, np.float32), 0.0, []
    missing = set(asked)
    for client, reply in replies:
        if client not in missing:
            raise ClientFailed(client, "reply", "it was not asked, or has answered already")
        missing.remove(client)
        _check(client, reply, number, total.size)
        with clock.stage("sum"):
            total += reply.vector
            weight += reply.weight
            if not scheme.private:  # openly sent vectors may be looked at: their typical norm helps to choose a bound
                norms.append(float(np.linalg.norm(reply.vector)) / reply.weight)
    _require_everyone(scheme, cohort, len(missing))
    if event is not None:
        ledger.release(number, attempt)

    # 4. One division, by a public number in private schemes.
    total /= np.float32(scheme.privacy.sampling.expected_size if scheme.private else weight)

    # 5. Momentum, error feedback, recovery: pure post-processing of the mean.
    with clock.stage("decode"):
        step = scheme.server.step(state.server, total, operator, scheme.decoder, scheme.privacy.noise_of_mean)
    update = step.decoded.update
    update_norm = checks.finite_norm("the decoded update", update)
    weights = np.add(update, state.weights, out=update)  # the update's memory becomes the new model

    up, down = 4 * operator.num_measurements, 4 * weights.size
    members = cohort.size if not scheme.private else scheme.privacy.sampling.expected_size  # the true size is secret
    return RoundOutcome(
        state=RunState(
            round=number,
            weights=weights,
            server=step.state,
            bytes_up=state.bytes_up + round(up * members),
            bytes_down=state.bytes_down + round(down * members),
        ),
        bytes_up_per_client=up,
        bytes_down_per_client=down,
        update_norm=update_norm,
        residual_norm=step.residual_norm,
        nonzeros=step.decoded.nonzeros,
        relative_gap=step.decoded.relative_gap,
        iterations=step.decoded.iterations,
        stopped=step.decoded.stopped,
        regularisation=step.decoded.regularisation,
        median_norm=statistics.median(norms) if norms else None,
    )


def drive(flow: Generator[Requests, Replies, RoundOutcome], ask: Ask) -> RoundOutcome:
    """Run a flow to its end: every yielded batch of requests goes through ``ask``."""
    try:
        requests = next(flow)
        while True:
            requests = flow.send(ask(requests))
    except StopIteration as end:
        outcome: RoundOutcome = end.value
        return outcome


def initial_state(scheme: Scheme, weights: FloatArray) -> RunState:
    """The state before round 1."""
    operator = scheme.codec.operator(weights.size, 1)
    return RunState(round=0, weights=weights, server=scheme.server.init(operator))


def _check(client: ClientId, reply: Reply, number: int, length: int) -> None:
    try:
        checks.vector_of("its vector", reply.vector, length)
    except InvalidInput as error:
        raise ClientFailed(client, "reply", str(error)) from error
    if reply.round != number:
        raise ClientFailed(client, "reply", f"it answers round {reply.round} instead of {number}")
    if not (reply.weight > 0 and math.isfinite(reply.weight)):
        raise ClientFailed(client, "reply", f"its weight is {reply.weight}; it must be above 0")


def _require_everyone(scheme: Scheme, cohort: Cohort, missing: int) -> None:
    if missing == 0:
        return
    if scheme.private:
        raise RoundFailed(
            f"{missing} of the cohort did not answer, so the sum carries less noise than promised; it was not "
            "released. Run the round again: the attempt stays in the ledger"
        )
    if missing == cohort.size:
        raise RoundFailed("no client of the cohort answered; check the clients and run the round again")
