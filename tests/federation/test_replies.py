"""Replies that nobody asked for: second answers, strangers, other attempts, messages of another step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest

from lowkey.errors import ClientFailed
from lowkey.federation import Client, Reply, Request, RoundOutcome, Scheme, drive, initial_state, round_flow
from lowkey.privacy import Ledger
from lowkey.protocols import Ask
from lowkey.rng import ReplaySecrets
from lowkey.secagg import Advert
from lowkey.simulation import InProcess, SimulatedKeys
from lowkey.timing import StageClock
from tests.federation.test_round import DIMENSION, Pull, scheme_for
from tests.federation.test_secure_sums import MEMBERS, Crowd, crowd

SECRETS = ReplaySecrets(3)
Replies = Iterator[tuple[int, Reply]]


def one_round(scheme: Scheme, trainer: Pull, wrap: Callable[[InProcess], Ask]) -> RoundOutcome:
    keys = SimulatedKeys(trainer.num_clients, SECRETS)
    ask = wrap(InProcess(Client(scheme=scheme, trainer=trainer, secrets=SECRETS, keys=keys)))
    flow = round_flow(
        scheme, initial_state(scheme, np.zeros(DIMENSION, np.float32)), secrets=SECRETS,
        ledger=Ledger(None, run="test"), clock=StageClock(), verify_keys=keys.verify_keys,
    )  # fmt: skip
    return drive(flow, ask)


def twice(ask: InProcess) -> Ask:
    def answers(requests: Mapping[int, Request]) -> Replies:
        for client, reply in ask(requests):
            yield client, reply
            yield client, reply

    return answers


def test_a_second_answer_is_not_added_to_a_private_sum_and_stops_an_open_round() -> None:
    private = scheme_for("fl-std-dp", cohort=40)
    once, again = (one_round(private, Pull(), wrap) for wrap in (lambda ask: ask, twice))
    np.testing.assert_array_equal(once.state.weights, again.state.weights)
    assert again.survivors == 40
    with pytest.raises(ClientFailed, match="answered already"):
        one_round(scheme_for("fl-std"), Pull(), twice)


def strangers(ask: InProcess) -> Ask:
    """After every exchange a client that is on no roster says what a member said."""

    def answers(requests: Mapping[int, Request]) -> Replies:
        for client, reply in ask(requests):
            yield client, reply
        yield MEMBERS + 1, reply

    return answers


@pytest.mark.parametrize("aggregation", ["plain", "masked"])
def test_strangers_are_not_heard(aggregation: str) -> None:
    usual, disturbed = (one_round(crowd(aggregation), Crowd(), wrap) for wrap in (lambda ask: ask, strangers))
    np.testing.assert_array_equal(usual.state.weights, disturbed.state.weights)
    assert disturbed.survivors == MEMBERS


def confused(change: Callable[[Reply], Reply]) -> Callable[[InProcess], Ask]:
    """Five members answer the second exchange, and all after it, as ``change`` says."""

    def wrap(ask: InProcess) -> Ask:
        seen: dict[int, Reply] = {}

        def answers(requests: Mapping[int, Request]) -> Replies:
            for client, reply in ask(requests):
                later = client in seen
                seen.setdefault(client, reply)
                if later and client < 5:
                    yield client, change(replace(reply, message=reply.message or seen[client].message))
                else:
                    yield client, reply

        return answers

    return wrap


@pytest.mark.parametrize("change", ["attempt", "round", "kind"])
def test_members_that_answer_something_else_have_dropped_out_of_a_masked_sum(change: str) -> None:
    advert = Advert(sender=0, sealing_key=bytes(32), mask_key=bytes(32), seed_digest=bytes(32), signature=bytes(64))
    changes: dict[str, Callable[[Reply], Reply]] = {
        "attempt": lambda reply: replace(reply, attempt=7),
        "round": lambda reply: replace(reply, round=7),
        "kind": lambda reply: replace(reply, message=advert, vector=None),
    }
    outcome = one_round(crowd("masked"), Crowd(), confused(changes[change]))
    assert outcome.survivors == MEMBERS - 5
