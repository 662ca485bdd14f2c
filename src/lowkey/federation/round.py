"""One round, top to bottom. The numbers are those of "One round" in ARCHITECTURE.md.

``round_flow`` is a generator: it yields requests by client and is sent the replies; a runtime in between (worker
processes, a network) carries them. It never touches a client's data, and in a private scheme sees only noised vectors.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np

from lowkey import checks
from lowkey.analytics import Answer, Total, is_vague
from lowkey.federation.aggregation import AGGREGATORS, Attempt, Outcome, Replies, Requests
from lowkey.federation.records import RoundOutcome, RunState
from lowkey.federation.schemes import Scheme
from lowkey.privacy import ClientMechanism, Ledger
from lowkey.protocols import Ask
from lowkey.rng import PublicStream, Secrets
from lowkey.secagg import VerifyKeys
from lowkey.server import State
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
    verify_keys: VerifyKeys = MappingProxyType({}),
) -> Generator[Requests, Replies, RoundOutcome]:
    """Run the round after ``state``.

    Parameters
    ----------
    scheme, state : Scheme, RunState
        How to learn, and the state after the last round.
    attempt : int
        Number of the attempt at this round, from 0; every attempt has its own cohort, keys and noise.
    secrets : Secrets
        Source of the bits that draw the rosters of private schemes.
    ledger : Ledger
        Told what a private round costs, before its vectors are asked for.
    clock : StageClock
        Gets the seconds of each stage.
    verify_keys : VerifyKeys
        Public keys of the enrolled clients; needed under secure aggregation.
    """
    number, whole = state.round + 1, scheme
    scheme = whole.at(number)
    privacy, operator = scheme.privacy, scheme.operator(state.weights.size, number)
    calibrates = scheme.purpose == "calibrate"  # what is released, whose iterates are averaged no more
    start = released_model(whole, state) if calibrates or scheme.question else state.weights
    before = state if scheme is whole else initial_state(scheme, start)

    # 1. Roster: drawn secretly where amplification is claimed, reproducibly where nothing is.
    draws = secrets.source("cohort", number, attempt) if scheme.private else PublicStream(scheme.seed, "cohort", number)
    cohort = privacy.sampling.draw(draws)

    # 2 to 12. What it costs is on disk first; then every member trains, compresses and protects.
    aggregate = AGGREGATORS[privacy.aggregation]
    summed = yield from aggregate(
        Attempt(
            scheme=scheme, state=before, number=number, attempt=attempt, operator=operator, cohort=cohort,
            ledger=ledger, verify_keys=verify_keys, clock=clock,
        )
    )  # fmt: skip

    up, down = privacy.wire(operator.num_measurements).num_bytes, 4 * start.size
    sent = state.bytes_up + up * cohort.size
    received = state.bytes_down + round(down * privacy.sampling.expected_size)  # the true number is secret
    if scheme.question is not None:  # the sum is the answer, and the model stays as it is
        answer = scheme.question.read(_total(scheme, summed))
        return RoundOutcome(
            state=replace(
                state, round=number, evaluated=_noted(scheme, state, answer), bytes_up=sent, bytes_down=received
            ),
            bytes_up_per_client=up,
            bytes_down_per_client=down,
            survivors=summed.survivors,
            answer=answer,
        )

    # 13. Gather, in the compressed domain: what earlier rounds left over, and decoding.
    decode = partial(scheme.decoder.decode, operator, layers=scheme.layers)
    with clock.stage("decode"):
        gathered = scheme.gather.gather(before.gathered, summed.mean.value, operator, decode, summed.mean.noise)

    # 14. Step: the optimiser moves the model, and the average that will be released follows.
    # Decoding spreads the noise of m measurements over n coordinates.
    noise = gathered.noise * math.sqrt(operator.num_measurements / operator.num_coordinates)
    optimiser, step = scheme.server.apply(before.optimiser, gathered.decoded.update, noise)
    step_norm = checks.finite_norm("the step of the model", step)
    weights = start.copy()
    weights[scheme.part] += step
    average = (
        whole.averaging.init(weights)
        if calibrates
        else whole.averaging.add(state.average, weights, whole.learning_number(number))
    )

    # 15. Outcome: the new state, and numbers about the round that may be published.
    return RoundOutcome(
        state=replace(
            state,
            round=number,
            weights=weights,
            gathered=gathered.state if scheme is whole else state.gathered,
            optimiser=optimiser if scheme is whole else state.optimiser,
            average=average,
            clip_norm=summed.mean.clip_norm if scheme is whole else state.clip_norm,
            bytes_up=sent,
            bytes_down=received,
        ),
        bytes_up_per_client=up,
        bytes_down_per_client=down,
        survivors=summed.survivors,
        update_norm=step_norm,
        residual_norm=gathered.residual_norm,
        nonzeros=gathered.decoded.nonzeros,
        relative_gap=gathered.decoded.relative_gap,
        iterations=gathered.decoded.iterations,
        stopped=gathered.decoded.stopped,
        regularisation=gathered.decoded.regularisation,
        median_norm=summed.median_norm,
    )


def _total(scheme: Scheme, summed: Outcome) -> Total:
    """The sum that a mean stands for, and how many units are in it, of those that were expected."""
    privacy, mean = scheme.privacy, summed.mean
    divided_by: float = privacy.contributors if isinstance(privacy, ClientMechanism) else summed.weight
    present = summed.survivors / privacy.sampling.roster_size if scheme.private else 1.0
    return Total(
        value=mean.value.astype(np.float64) * divided_by,
        noise=mean.noise * divided_by,
        units=max(1, round(divided_by * present)),
        unit="client" if scheme.private and not privacy.by_person else "person",
    )


def _noted(scheme: Scheme, state: RunState, answer: Answer) -> State:
    """What clients have found about the model so far: the AUROC of each evaluation that says something about it."""
    if not scheme.evaluated_by_clients or "auroc" not in answer.estimates or is_vague(answer.estimates["auroc"]):
        return state.evaluated
    value = answer.estimates["auroc"].value
    return {"values": np.append(state.evaluated.get("values", []), value).astype(np.float32)}


def drive(flow: Generator[Requests, Replies, RoundOutcome], ask: Ask) -> RoundOutcome:
    """Run a flow to its end: ``ask`` carries every batch of requests that it yields."""
    try:
        requests = next(flow)
        while True:
            requests = flow.send(ask(requests))
    except StopIteration as end:
        outcome: RoundOutcome = end.value
        return outcome


def initial_state(scheme: Scheme, weights: FloatArray) -> RunState:
    """The state before round 1."""
    operator = scheme.operator(weights.size, 1)
    return RunState(
        round=0,
        weights=weights,
        gathered=scheme.gather.init(operator),
        optimiser=scheme.server.init(weights[scheme.part]),
        average=scheme.averaging.init(weights),
    )


def released_model(scheme: Scheme, state: RunState) -> FloatArray:
    """The model that is evaluated and released: the last one, or an average of iterates."""
    return scheme.averaging.released(state.average, state.weights)
