"""One round, top to bottom.

``round_flow`` is a generator: it yields requests by client and is sent the replies; a runtime in between (worker
processes, a network) carries them. It never touches a client's data, and in a private scheme sees only noised vectors.
"""

from __future__ import annotations

from collections.abc import Generator
from types import MappingProxyType

import numpy as np

from lowkey import checks
from lowkey.federation.records import RoundOutcome, RunState
from lowkey.federation.schemes import Scheme
from lowkey.federation.sums import Replies, Requests, open_mean, private_mean
from lowkey.privacy import ClientLevelPrivacy, Ledger
from lowkey.protocols import Ask
from lowkey.rng import PublicStream, Secrets
from lowkey.secagg import Directory
from lowkey.timing import StageClock
from lowkey.types import FloatArray


def round_flow(
    scheme: Scheme,
    state: RunState,
    *,
    attempt: int = 0,
    secrets: Secrets,
    ledger: Ledger,
    clock: StageClock,
    directory: Directory = MappingProxyType({}),
) -> Generator[Requests, Replies, RoundOutcome]:
    """Play the round after ``state``.

    Parameters
    ----------
    scheme, state : the way to learn, and how far it has come.
    attempt : at this round, from 0; every attempt has its own cohort, keys and noise.
    secrets : draw cohorts of private schemes.
    ledger : told what a private round costs, before its sum can be known.
    clock : gets the seconds of each stage.
    directory : verify keys of the enrolled clients; needed under secure aggregation.
    """
    number, privacy = state.round + 1, scheme.privacy
    operator = scheme.codec.operator(state.weights.size, number)

    # 1. Who takes part: secretly where amplification is claimed, reproducibly where nothing is.
    draws = secrets.source("cohort", number, attempt) if scheme.private else PublicStream(scheme.seed, "cohort", number)
    cohort = privacy.sampling.draw(draws)

    # 2. Every member trains, compresses and protects; only the mean is kept.
    if isinstance(privacy, ClientLevelPrivacy):
        mean = yield from private_mean(
            scheme, privacy, state, operator, cohort,
            number=number, attempt=attempt, ledger=ledger, directory=directory, clock=clock,
        )  # fmt: skip
    else:
        mean = yield from open_mean(number, attempt, state, operator, cohort, privacy.survivors, clock)

    # 3. Momentum, error feedback, recovery: pure post-processing of the mean.
    with clock.stage("decode"):
        step = scheme.server.step(state.server, mean.value, operator, scheme.decoder, mean.noise)
    update = step.decoded.update
    update_norm = checks.finite_norm("the decoded update", update)
    weights = np.add(update, state.weights, out=update)  # the update's memory becomes the new model

    up, down = scheme.vector_bytes(operator), 4 * weights.size
    return RoundOutcome(
        state=RunState(
            round=number,
            weights=weights,
            server=step.state,
            clip_norm=mean.clip_norm,
            bytes_up=state.bytes_up + up * cohort.size,
            bytes_down=state.bytes_down + round(down * privacy.sampling.expected_size),  # the true number is secret
        ),
        bytes_up_per_client=up,
        bytes_down_per_client=down,
        survivors=mean.survivors,
        update_norm=update_norm,
        residual_norm=step.residual_norm,
        nonzeros=step.decoded.nonzeros,
        relative_gap=step.decoded.relative_gap,
        iterations=step.decoded.iterations,
        stopped=step.decoded.stopped,
        regularisation=step.decoded.regularisation,
        median_norm=mean.median_norm,
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
