"""Secure aggregation within the round: the same bits as a plain sum, whoever vanishes, and what crosses the wire."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lowkey.codec import ChunkedDCT
from lowkey.errors import ClientFailed, PolicyRefused, RoundFailed
from lowkey.federation import (
    Client,
    Federation,
    Reply,
    Request,
    RoundOutcome,
    Schedule,
    Scheme,
    drive,
    initial_state,
    round_flow,
    scheme,
)
from lowkey.privacy import ClientLedger, ClientPrivacy, Ledger, Policy
from lowkey.rng import OSSecrets, ReplaySecrets, Secrets
from lowkey.simulation import InProcess, SimulatedKeys
from lowkey.timing import StageClock
from tests.federation.test_round import DIMENSION, Pull
from tests.federation.vanishing import Vanishing

MEMBERS = 100
TAKES_NO_CHANCE = Policy(
    min_noise_multiplier=0.5, min_roster=10, min_honest=10, min_tolerated_colluders=5, max_participations=9,
    max_epsilon=99.0, delta=1e-5,
)  # fmt: skip


class Crowd(Pull):
    num_clients = MEMBERS


def crowd(aggregation: str, seed: int = 0, **changes: Any) -> Scheme:
    settings: dict[str, Any] = {
        "clip_norm": 2.0,
        "noise_multiplier": 1.0,
        "sampling": "all",
        "aggregation": aggregation,
    } | changes
    return scheme(
        "fl-cs-dp", clients=MEMBERS, cohort=MEMBERS, codec=ChunkedDCT(ratio=0.5, chunks=3), seed=seed,
        privacy=ClientPrivacy(**settings),
    )  # fmt: skip


def run_rounds(
    scheme: Scheme,
    vanishing: Mapping[int, int] | None = None,
    *,
    secrets: Secrets | None = None,
    ledger: Ledger | None = None,
    rounds: int = 1,
) -> RoundOutcome:
    secrets = secrets or ReplaySecrets(3)
    keys = SimulatedKeys(MEMBERS, secrets)
    client = Client(scheme=scheme, trainer=Crowd(), secrets=secrets, keys=keys)
    state = initial_state(scheme, np.zeros(DIMENSION, np.float32))
    ledger = ledger or Ledger(None, run="test")
    ask = Vanishing(InProcess(client), vanishing or {})
    for _ in range(rounds):
        flow = round_flow(
            scheme, state, secrets=secrets, ledger=ledger, clock=StageClock(), verify_keys=keys.verify_keys
        )
        outcome = drive(flow, ask)
        state = outcome.state
    return outcome


@pytest.mark.parametrize("graph", ["worst-case", "random"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3, "mixed"])
def test_masked_and_plain_sums_are_the_same_bits_with_ten_dropouts(stage: int | str, graph: str) -> None:
    gone = {client: client % 4 if stage == "mixed" else int(stage) for client in range(5, 15)}
    before = {client: 2 for client, at in gone.items() if at <= 2}  # later their vectors are in the sum
    masked, plain = run_rounds(crowd("masked", graph=graph), gone), run_rounds(crowd("plain", graph=graph), before)
    np.testing.assert_array_equal(masked.state.weights, plain.state.weights)


def test_a_random_graph_is_in_terms_noise_and_price() -> None:
    """100 members, of whom 10 may leave and 10 collude: two more could be cut off, whose noise is not counted."""
    sure, drawn = (crowd("masked", graph=graph).terms(DIMENSION, 1) for graph in ("worst-case", "random"))
    assert (sure.graph, sure.neighbours, sure.strays, sure.failure, sure.honest) == ("worst-case", 32, 0, 0.0, 80)
    assert (drawn.graph, drawn.neighbours, drawn.strays, drawn.failure, drawn.honest) == ("random", 30, 2, 2.0**-52, 78)
    assert sure.colluders == drawn.colluders == 10
    ledger = Ledger(None, run="test")
    run_rounds(crowd("masked", graph="random"), ledger=ledger)
    assert [event.failure for event in ledger.events] == [2.0**-52]
    assert crowd("masked", graph="auto").terms(DIMENSION, 1) == sure
    with pytest.raises(PolicyRefused, match="chance that the masks of an attempt fail"):
        TAKES_NO_CHANCE.check(drawn)
    TAKES_NO_CHANCE.check(sure)
    replace(TAKES_NO_CHANCE, max_failure=2.0**-52).check(drawn)


def test_twenty_rounds_over_random_graphs_have_the_bits_of_plain_ones() -> None:
    gone = {client: client % 4 for client in range(40, 50)}
    before = {client: 2 for client, at in gone.items() if at <= 2}
    masked = run_rounds(crowd("masked", graph="random"), gone, rounds=20)
    plain = run_rounds(crowd("plain", graph="random"), before, rounds=20)
    np.testing.assert_array_equal(masked.state.weights, plain.state.weights)


def test_final_model_of_a_private_run_is_the_same_with_either() -> None:
    masked, plain = (run_rounds(crowd(kind), rounds=3) for kind in ("masked", "plain"))
    np.testing.assert_array_equal(masked.state.weights, plain.state.weights)


def test_an_attempt_costs_once_its_vectors_were_asked_for_and_nothing_before() -> None:
    """Stages 0 and 1 are keys and shares; then come vectors, confirmations, and the shares that unmask the sum."""
    for stage, missing in ((0, 11), (1, 11), (2, 11), (3, 11), (4, 50)):
        ledger = Ledger(None, run="test")
        with pytest.raises(RoundFailed):
            run_rounds(crowd("masked"), dict.fromkeys(range(missing), stage), ledger=ledger)
        assert [entry.state for entry in ledger.entries] == (["ABORTED"] if stage >= 2 else [])
        assert len(ledger.events) == (stage >= 2)


def test_a_client_that_agreed_to_masks_gives_no_plain_vector() -> None:
    with pytest.raises(ClientFailed, match="unmasked vector"):
        drive(
            round_flow(
                crowd("plain"),
                initial_state(crowd("plain"), np.zeros(DIMENSION, np.float32)),
                secrets=OSSecrets(),
                ledger=Ledger(None, run="test"),
                clock=StageClock(),
            ),
            InProcess(Client(scheme=crowd("masked"), trainer=Crowd())),
        )


@pytest.mark.parametrize("weaker", [{"noise_multiplier": 0.9}, {"colluders": 0.05}, {"bits": 24}, {"seed": 1}])
def test_clients_refuse_other_terms_than_their_own(weaker: dict[str, Any]) -> None:
    """A server with less noise, fewer honest shares, other integers or another seed meets nobody."""
    scheme, secrets = crowd("masked"), OSSecrets()
    keys = SimulatedKeys(MEMBERS, secrets)
    theirs = crowd("masked", **weaker)
    with pytest.raises(RoundFailed, match="0 of 100 members advertised"):
        drive(
            round_flow(
                theirs,
                initial_state(theirs, np.zeros(DIMENSION, np.float32)),
                secrets=secrets,
                ledger=Ledger(None, run="test"),
                clock=StageClock(),
                verify_keys=keys.verify_keys,
            ),
            InProcess(Client(scheme=scheme, trainer=Crowd(), secrets=secrets, keys=keys)),
        )


def test_wire_tells_no_role_and_no_number_about_a_client() -> None:
    """Data and noise-only members send messages of the same types and sizes, and nothing else."""
    secrets, sizes = OSSecrets(), dict[int, list[Any]]()
    sampled = scheme(
        "fl-cs-dp", clients=MEMBERS, cohort=10, codec=ChunkedDCT(ratio=0.5, chunks=3),
        privacy=ClientPrivacy(clip_norm=1.0, noise_multiplier=1.0, aggregation="masked"),
    )  # fmt: skip
    keys = SimulatedKeys(MEMBERS, secrets)
    inner = InProcess(Client(scheme=sampled, trainer=Crowd(), secrets=secrets, keys=keys))

    def capture(requests: Mapping[int, Request]) -> Iterator[tuple[int, Reply]]:
        for client, reply in inner(requests):
            text = repr(reply)
            assert not re.search("num_examples|loss|norm|role|coin|share=|seed=|secret=b'[^']", text)
            vector = None if reply.vector is None else (reply.vector.nbytes, str(reply.vector.dtype))
            sizes.setdefault(client, []).append((type(reply.message).__name__, vector, reply.weight))
            yield client, reply

    flow = round_flow(
        sampled, initial_state(sampled, np.zeros(DIMENSION, np.float32)), secrets=secrets,
        ledger=Ledger(None, run="test"), clock=StageClock(), verify_keys=keys.verify_keys,
    )  # fmt: skip
    drive(flow, capture)
    assert len(sizes) == sampled.privacy.sampling.roster_size
    assert len({tuple(seen) for seen in sizes.values()}) == 1


POLICY: dict[str, Any] = {
    "min_noise_multiplier": 1.0, "min_roster": 100, "min_honest": 80, "min_tolerated_colluders": 10,
    "max_participations": 1,
    "max_epsilon": 6.0, "delta": 1e-5,
}  # fmt: skip


def guarded(tmp_path: Path, rounds: int, **policy: float) -> tuple[ClientLedger, RoundOutcome]:
    """Client 7 keeps a ledger and a policy of its own; the others are as always."""
    scheme, secrets = crowd("masked"), OSSecrets()
    keys, ledger = SimulatedKeys(MEMBERS, secrets), ClientLedger(tmp_path / "client.jsonl")
    others = Client(scheme=scheme, trainer=Crowd(), secrets=secrets, keys=keys)
    careful = replace(others, policy=Policy(**(POLICY | policy)), ledger=ledger)
    crowd_asks, one_asks = InProcess(others), InProcess(careful)

    def ask(requests: Mapping[int, Request]) -> Iterator[tuple[int, Reply]]:
        yield from crowd_asks({c: r for c, r in requests.items() if c != 7})
        yield from one_asks({c: r for c, r in requests.items() if c == 7})

    state = initial_state(scheme, np.zeros(DIMENSION, np.float32))
    for _ in range(rounds):
        flow = round_flow(
            scheme, state, secrets=secrets, ledger=Ledger(None, run="test"), clock=StageClock(),
            verify_keys=keys.verify_keys,
        )  # fmt: skip
        outcome = drive(flow, ask)
        state = outcome.state
    return ledger, outcome


def test_a_client_with_a_ledger_counts_for_itself_and_stops_giving_data(tmp_path: Path) -> None:
    ledger, outcome = guarded(tmp_path, rounds=3)
    assert outcome.state.round == 3
    assert [entry.contributes for entry in ledger.entries] == [True, False, False]
    assert len(ledger.participations("test")) == 1


@pytest.mark.parametrize(
    "policy",
    [{"min_noise_multiplier": 1.1}, {"min_roster": 101}, {"min_tolerated_colluders": 11}, {"max_epsilon": 1.0}],
)
def test_a_client_refuses_what_its_policy_forbids(tmp_path: Path, policy: dict[str, float]) -> None:
    with pytest.raises(ClientFailed, match="takes no part"):
        guarded(tmp_path, rounds=1, **policy)


def test_logs_hold_neither_secrets_nor_anything_about_a_client(caplog: pytest.LogCaptureFixture) -> None:
    """Everything down to DEBUG, of a round that succeeds and of one that fails and is tried again."""
    caplog.set_level(0)
    scheme, secrets = crowd("masked"), OSSecrets()
    keys, calls = SimulatedKeys(MEMBERS, secrets), []
    inner = InProcess(Client(scheme=scheme, trainer=Crowd(), secrets=secrets, keys=keys))

    def flaky(requests: Mapping[int, Request]) -> Iterator[tuple[int, Reply]]:
        calls.append(requests)
        yield from list(inner(requests))[: 50 if len(calls) == 1 else None]

    federation = Federation(
        scheme=scheme, ask=flaky, evaluate=lambda weights: {"accuracy": 0.0, "loss": 0.0}, secrets=secrets,
        verify_keys=keys.verify_keys,
    )  # fmt: skip
    federation.run(initial_state(scheme, np.zeros(DIMENSION, np.float32)), Schedule(rounds=1))
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("lowkey")]
    assert len(ours) == 1  # that the first attempt failed
    assert not re.search(r"client \d|b'|0x[0-9a-f]{8}|[0-9a-f]{16}|norm|loss|coin", ours[0])
