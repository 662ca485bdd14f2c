"""The round: limiting cases of all schemes, what is sent, what fails closed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest

from lowkey.errors import BudgetExhausted, ClientFailed, InvalidInput, RoundFailed
from lowkey.federation import (
    SCHEMES,
    Client,
    ClientState,
    Federation,
    Reply,
    Request,
    RunState,
    Schedule,
    drive,
    initial_state,
    make_scheme,
    round_flow,
)
from lowkey.privacy import ClientLevelPrivacy, Cohort, Event, Ledger
from lowkey.protocols import LocalUpdate
from lowkey.rng import OSSecrets, ReplaySecrets
from lowkey.simulation import InProcess
from lowkey.timing import StageClock

N, DIMENSION = 40, 60


class Pull:
    """A trainer without a framework: every client pulls the model towards a point of its own."""

    num_clients, num_coordinates = N, DIMENSION

    def limit_threads(self, threads: int) -> None: ...

    def train(self, weights: np.ndarray, client: int, rng: np.random.Generator) -> LocalUpdate:
        target = np.random.default_rng(client).normal(size=DIMENSION).astype(np.float32)
        return LocalUpdate(np.float32(0.5) * (target - weights), 1 + client % 7)


def scheme_for(name: str, **changes: object):  # type: ignore[no-untyped-def]
    options: dict[str, object] = {"num_clients": N, "cohort": 10, "chunks": 3}
    if not name.startswith("fl-std"):
        options["ratio"] = 0.3
    if name.endswith("-dp"):
        options |= {"clip_norm": 1.0, "noise_multiplier": 1.0}
    return make_scheme(name, **(options | changes)).for_layers([20, 40])  # type: ignore[arg-type]


def play(scheme, rounds: int = 1, trainer: object = None, secrets: object = None) -> RunState:  # type: ignore[no-untyped-def]
    client = Client(scheme=scheme, trainer=trainer or Pull(), secrets=secrets or ReplaySecrets(0))  # type: ignore[arg-type]
    state = initial_state(scheme, np.zeros(DIMENSION, np.float32))
    for _ in range(rounds):
        flow = round_flow(scheme, state, secrets=client.secrets, ledger=Ledger(None, run="test"), clock=StageClock())
        state = drive(flow, InProcess(client)).state
    return state


def fedavg(rounds: int, scheme) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Federated averaging written out in float64, on the scheme's own cohorts."""
    from lowkey.rng import PublicStream

    weights, trainer = np.zeros(DIMENSION), Pull()
    for number in range(1, rounds + 1):
        cohort = scheme.privacy.sampling.draw(PublicStream(scheme.seed, "cohort", number)).contributors
        locals_ = [trainer.train(weights.astype(np.float32), c, np.random.default_rng(0)) for c in cohort]
        sizes = np.array([u.num_examples for u in locals_], np.float64)
        weights = weights + np.average([u.update for u in locals_], axis=0, weights=sizes)
    return weights


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_plays_rounds(name: str) -> None:
    state = play(scheme_for(name), rounds=3)
    assert state.round == 3
    assert state.weights.dtype == np.float32
    assert np.isfinite(state.weights).all()
    assert np.abs(state.weights).sum() > 0


def test_fl_std_is_fedavg() -> None:
    scheme = scheme_for("fl-std")
    np.testing.assert_allclose(play(scheme, 4).weights, fedavg(4, scheme), atol=1e-5)


def test_infinite_clip_and_no_noise_is_fedavg_over_the_expected_cohort() -> None:
    """FL-STD-DP in its limit: the uniform mean, over the same cohort."""
    scheme = scheme_for("fl-std-dp", clip_norm=math.inf, noise_multiplier=0.0, sampling="fixed")
    trainer = Pull()
    cohort = scheme.privacy.sampling.draw(ReplaySecrets(0).source("cohort", 1)).contributors
    start = np.zeros(DIMENSION, np.float32)
    mean = np.mean([trainer.train(start, c, np.random.default_rng(0)).update for c in cohort], axis=0)
    np.testing.assert_allclose(play(scheme).weights, mean, atol=1e-6)


@pytest.mark.parametrize("name", ["fl-rnd", "fl-freq"])
def test_full_ratio_equals_fl_std(name: str) -> None:
    scheme = scheme_for(name, ratio=1.0)
    np.testing.assert_allclose(play(scheme, 3).weights, play(scheme_for("fl-std"), 3).weights, atol=1e-5)


def test_fl_cs_with_full_ratio_and_no_penalty_equals_fl_std() -> None:
    equal = type("Equal", (Pull,), {"train": lambda self, w, c, r: replace(Pull.train(self, w, c, r), num_examples=1)})
    cs = scheme_for("fl-cs", ratio=1.0, decoder="lasso", lambda_factor=0.0, momentum=0.0, server_rate=1.0)
    one, other = play(cs, 3, equal()), play(scheme_for("fl-std"), 3, equal())
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)
    np.testing.assert_allclose(one.server["error"], 0.0, atol=1e-5)


@pytest.mark.parametrize("family", ["fl-std", "fl-rnd", "fl-freq", "fl-cs"])
def test_private_twin_without_clip_and_noise_equals_the_open_scheme(family: str) -> None:
    equal = type("Equal", (Pull,), {"train": lambda self, w, c, r: replace(Pull.train(self, w, c, r), num_examples=1)})
    everyone = {"cohort": N, "sampling": "fixed", "decoder": "layered" if family == "fl-cs" else "adjoint"}
    open_ = play(scheme_for(family, **everyone), 2, equal())
    private = play(scheme_for(f"{family}-dp", clip_norm=math.inf, noise_multiplier=0.0, **everyone), 2, equal())
    np.testing.assert_allclose(private.weights, open_.weights, atol=1e-6)


def test_server_state_is_compressed() -> None:
    """At the paper's settings no n-sized array is kept besides the model."""
    for name in SCHEMES:
        state = play(scheme_for(name))
        sizes = {array.size for array in state.server.values()}
        assert all(size < DIMENSION for size in sizes), name


def test_seed_repeats_open_schemes_and_secrets_never_repeat_private_ones() -> None:
    one, again, other = (play(scheme_for("fl-cs", seed=s), 2, secrets=OSSecrets()).weights for s in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    first, second = (play(scheme_for("fl-cs-dp", seed=1), secrets=OSSecrets()).weights for _ in range(2))
    assert not np.array_equal(first, second)


def test_private_mean_is_divided_by_the_expected_cohort() -> None:
    """Without noise every contribution of norm 1 counts 1 / (q N), whatever the realised size."""

    class Same(Pull):
        def train(self, weights: np.ndarray, client: int, rng: np.random.Generator) -> LocalUpdate:
            update = np.zeros(DIMENSION, np.float32)
            update[0] = 1.0
            return LocalUpdate(update, 1)

    scheme = scheme_for("fl-std-dp", clip_norm=2.0, noise_multiplier=0.0)
    size = len(scheme.privacy.sampling.draw(ReplaySecrets(0).source("cohort", 1)).contributors)
    assert size != 10
    assert play(scheme, trainer=Same()).weights[0] == pytest.approx(size / 10)


class Recorder:
    """A runtime that keeps what crosses the wire."""

    def __init__(self, client: Client) -> None:
        self.inner, self.replies, self.requests = InProcess(client), {}, {}

    def __call__(self, requests: Mapping[int, Request]) -> Iterator[tuple[int, Reply]]:
        self.requests = dict(requests)
        for client, reply in self.inner(requests):
            self.replies[client] = replace(reply, vector=reply.vector.copy())
            yield client, reply


def test_what_private_clients_send_says_nothing_but_a_noised_vector() -> None:
    scheme = scheme_for("fl-cs-dp")
    recorder = Recorder(Client(scheme=scheme, trainer=Pull()))
    flow = round_flow(
        scheme, initial_state(scheme, np.zeros(DIMENSION, np.float32)), secrets=OSSecrets(),
        ledger=Ledger(None, run="test"), clock=StageClock(),
    )  # fmt: skip
    drive(flow, recorder)
    assert {reply.weight for reply in recorder.replies.values()} == {1.0}
    assert len({reply.vector.nbytes for reply in recorder.replies.values()}) == 1
    assert {request.shares for request in recorder.requests.values()} == {len(recorder.requests)}


def test_empty_cohort_releases_noise_of_full_size() -> None:
    scheme = scheme_for("fl-std-dp", noise_multiplier=2.0)

    class Nobody:
        population, probability, expected_size = N, 0.25, 10.0

        def draw(self, source: object) -> Cohort:
            return Cohort((), (3,))

        def event(self, noise_multiplier: float) -> Event:
            return Event(noise_multiplier=noise_multiplier, sampling_probability=0.25)

    scheme = replace(scheme, privacy=replace(scheme.privacy, sampling=Nobody()))
    weights = play(scheme, secrets=OSSecrets()).weights * 10  # the sum
    assert 60 * 4 * 0.3 < float((weights**2).sum()) < 60 * 4 * 2.2  # chi-square of 60, beyond 1e-6 on each side


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_diverging_client(bad: float) -> None:
    """Open: an error that names client and stage. Private: noise on zeros, so that nothing is told."""

    class Diverging(Pull):
        def train(self, weights: np.ndarray, client: int, rng: np.random.Generator) -> LocalUpdate:
            return LocalUpdate(np.full(DIMENSION, bad, np.float32), 1)

    with pytest.raises(ClientFailed, match=r"client \d+ failed in stage 'protect'.*NaN or infinite"):
        play(scheme_for("fl-std"), trainer=Diverging())
    state = play(scheme_for("fl-std-dp", noise_multiplier=1e-6), trainer=Diverging(), secrets=OSSecrets())
    assert np.abs(state.weights).max() < 1e-4


def test_wrong_length_update_names_the_client() -> None:
    class Short(Pull):
        def train(self, weights: np.ndarray, client: int, rng: np.random.Generator) -> LocalUpdate:
            return LocalUpdate(np.zeros(DIMENSION - 1, np.float32), 1)

    with pytest.raises(ClientFailed, match=r"stage 'compress'.*vector of 60 numbers"):
        play(scheme_for("fl-std"), trainer=Short())


def ask_with(change):  # type: ignore[no-untyped-def]
    """A runtime whose replies pass through ``change``; None drops the client."""

    def wrap(client: Client):  # type: ignore[no-untyped-def]
        def ask(requests: Mapping[int, Request]) -> Iterator[tuple[int, Reply]]:
            for number, (who, reply) in enumerate(InProcess(client)(requests)):
                changed = change(number, reply)
                if changed is not None:
                    yield who, changed

        return ask

    return wrap


def play_through(scheme, change, ledger: Ledger | None = None) -> RunState:  # type: ignore[no-untyped-def]
    client = Client(scheme=scheme, trainer=Pull())
    state = initial_state(scheme, np.zeros(DIMENSION, np.float32))
    flow = round_flow(scheme, state, secrets=OSSecrets(), ledger=ledger or Ledger(None, run="test"), clock=StageClock())
    return drive(flow, ask_with(change)(client)).state


def test_dropouts_of_an_open_round_are_left_out_and_of_a_private_one_stop_it() -> None:
    def drop_first(number: int, reply: Reply) -> Reply | None:
        return None if number == 0 else reply

    assert play_through(scheme_for("fl-std"), drop_first).round == 1
    ledger = Ledger(None, run="test")
    with pytest.raises(RoundFailed, match="less noise than promised"):
        play_through(scheme_for("fl-std-dp"), drop_first, ledger)
    assert len(ledger.entries) == 1  # paid although nothing was released
    with pytest.raises(RoundFailed, match="no client"):
        play_through(scheme_for("fl-std"), lambda number, reply: None)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda n, r: replace(r, vector=r.vector[:-1]), "vector of 60 numbers"),
        (lambda n, r: replace(r, vector=r.vector.astype(np.float64)), "float32"),
        (lambda n, r: replace(r, round=7), "round 7 instead of 1"),
        (lambda n, r: replace(r, weight=0.0), "weight"),
        (lambda n, r: replace(r, weight=math.nan), "weight"),
    ],
)
def test_bad_replies_name_the_client(change: object, named: str) -> None:
    with pytest.raises(ClientFailed, match=named):
        play_through(scheme_for("fl-std"), change)


def test_poisoned_sum_is_not_applied() -> None:
    with pytest.raises(InvalidInput, match="NaN or infinite"):
        play_through(scheme_for("fl-std"), lambda n, r: replace(r, vector=np.full_like(r.vector, math.inf)))


def test_a_client_answers_a_round_once() -> None:
    client = Client(scheme=scheme_for("fl-std"), trainer=Pull())
    request = Request(round=1, shares=1, weights=np.zeros(DIMENSION, np.float32))
    state, _ = client.handle(ClientState(0), request)
    with pytest.raises(InvalidInput, match="answered already"):
        client.handle(state, request)


def test_price_is_paid_before_anyone_is_asked() -> None:
    scheme, ledger = scheme_for("fl-std-dp"), Ledger(None, run="test")
    flow = round_flow(
        scheme, initial_state(scheme, np.zeros(DIMENSION, np.float32)), secrets=OSSecrets(), ledger=ledger,
        clock=StageClock(),
    )  # fmt: skip
    assert len(ledger.entries) == 0
    next(flow)
    assert [(entry.round, entry.event) for entry in ledger.entries] == [(1, scheme.privacy.event())]


def federation(scheme, ledger: Ledger, secrets: object = None) -> Federation:  # type: ignore[no-untyped-def]
    client = Client(scheme=scheme, trainer=Pull())
    return Federation(
        scheme=scheme, ask=InProcess(client), evaluate=lambda weights: {"accuracy": 0.5, "loss": 1.0}, ledger=ledger,
        secrets=secrets or OSSecrets(),  # type: ignore[arg-type]
    )  # fmt: skip


def test_hard_stop_before_the_target() -> None:
    scheme, ledger, records = scheme_for("fl-std-dp", noise_multiplier=2.0), Ledger(None, run="test"), []
    start = initial_state(scheme, np.zeros(DIMENSION, np.float32))
    state, stopped = federation(scheme, ledger).run(
        start, Schedule(rounds=50, target_epsilon=3.0), observers=[records.append]
    )
    assert stopped == "privacy target"
    assert 0 < state.round < 50
    assert records[-1].epsilon.pld <= 3.0
    more, _ = federation(scheme, ledger).run(state, Schedule(rounds=state.round + 1), observers=[records.append])
    assert more.round == state.round + 1
    assert records[-1].epsilon.pld > 3.0
    with pytest.raises(BudgetExhausted, match="first round"):
        federation(scheme, Ledger(None, run="test")).run(start, Schedule(rounds=5, target_epsilon=0.01))


def test_replayed_secrets_claim_no_epsilon() -> None:
    scheme, records = scheme_for("fl-std-dp"), []
    start = initial_state(scheme, np.zeros(DIMENSION, np.float32))
    federation(scheme, Ledger(None, run="test"), ReplaySecrets(0)).run(
        start, Schedule(rounds=1), observers=[records.append]
    )
    assert records[0].epsilon is None


def test_bytes_of_private_rounds_do_not_tell_the_cohort() -> None:
    for name in ("fl-std-dp", "fl-cs-dp"):
        scheme = scheme_for(name)
        state = play(scheme, 3, secrets=OSSecrets())
        per_client = 4 * scheme.codec.operator(DIMENSION, 1).num_measurements
        assert state.bytes_up == 3 * 10 * per_client
        assert state.bytes_down == 3 * 10 * 4 * DIMENSION


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("fl-magic", {}, "one of"),
        ("fl-std", {"ratio": 0.5}, "whole updates"),
        ("fl-std", {"clip_norm": 1.0}, "use fl-std-dp"),
        ("fl-std", {"sampling": "lottery"}, "sampling"),
        ("fl-cs", {"ratio": 0.0}, "ratio"),
        ("fl-cs", {"ratio": 1.5}, "ratio"),
        ("fl-cs", {"lambda_rule": "magic"}, "lambda_rule"),
        ("fl-cs", {"decoder": "lasso", "solver": "magic"}, "solver"),
        ("fl-cs", {"decoder": "lasso", "lambda_rule": "fixed", "lambda_factor": 0.0}, "above 0"),
        ("fl-freq", {"decoder": "lasso"}, "chunks of fl-cs"),
        ("fl-freq", {"decoder": "layered"}, "chunks of fl-cs"),
        ("fl-cs", {"decoder": "magic"}, "decoder"),
        ("fl-std", {"cohort": 41}, "cohort"),
        ("fl-std-dp", {"clip_norm": None}, "calibrate"),
        ("fl-std-dp", {"noise_multiplier": -1.0}, "noise_multiplier"),
        ("fl-std-dp", {"delta": 1.0}, "delta"),
    ],
)
def test_bad_schemes_are_refused(name: str, options: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        scheme_for(name, **options)


def test_chunks_beyond_parameters_are_refused() -> None:
    with pytest.raises(InvalidInput, match="use at most 60 chunks"):
        play(scheme_for("fl-cs", chunks=61))


def test_private_schemes_weigh_uniformly() -> None:
    for name in SCHEMES:
        scheme = scheme_for(name)
        assert scheme.weight_by_examples is (name in ("fl-std", "fl-rnd", "fl-freq"))
        assert isinstance(scheme.privacy, ClientLevelPrivacy) is name.endswith("-dp")
