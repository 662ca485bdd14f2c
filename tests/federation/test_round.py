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
from lowkey.privacy import ClientMechanism, Cohort, Ledger, PoissonSampling
from lowkey.protocols import LocalUpdate
from lowkey.rng import OSSecrets, ReplaySecrets
from lowkey.simulation import InProcess
from lowkey.timing import StageClock

N, DIMENSION = 40, 60
WIDE = 8.0  # longer than any update of Pull


def memory() -> Ledger:
    return Ledger(None, run="test")


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
        options |= {"clip_norm": 1.0, "noise_multiplier": 1.0, "dropouts": 0.0, "colluders": 0.0}
    return make_scheme(name, **(options | changes)).for_layers([20, 40])  # type: ignore[arg-type]


def play(scheme, rounds: int = 1, trainer: object = None, secrets: object = None) -> RunState:  # type: ignore[no-untyped-def]
    client = Client(scheme=scheme, trainer=trainer or Pull(), secrets=secrets or ReplaySecrets(0))  # type: ignore[arg-type]
    state = initial_state(scheme, np.zeros(DIMENSION, np.float32))
    for _ in range(rounds):
        flow = round_flow(scheme, state, secrets=client.secrets, ledger=memory(), clock=StageClock())
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


def test_wide_clip_and_no_noise_is_fedavg_over_the_expected_cohort() -> None:
    """FL-STD-DP in its limit: the uniform mean over the same cohort, but for rounding to the grid."""
    scheme = scheme_for("fl-std-dp", clip_norm=WIDE, noise_multiplier=0.0, sampling="fixed")
    trainer = Pull()
    cohort = scheme.privacy.sampling.draw(ReplaySecrets(0).source("cohort", 1, 0)).contributors
    start = np.zeros(DIMENSION, np.float32)
    mean = np.mean([trainer.train(start, c, np.random.default_rng(0)).update for c in cohort], axis=0)
    np.testing.assert_allclose(play(scheme).weights, mean, atol=scheme.privacy.encoding(DIMENSION).step(WIDE))


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
    private = scheme_for(f"{family}-dp", clip_norm=WIDE, noise_multiplier=0.0, bits=24, **everyone)
    step = private.privacy.encoding(private.codec.operator(DIMENSION, 1).num_measurements).step(WIDE)
    open_ = play(scheme_for(family, **everyone), 2, equal())
    np.testing.assert_allclose(play(private, 2, equal()).weights, open_.weights, atol=3 * step)  # rounding, 40 clients


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
    size = len(scheme.privacy.sampling.draw(ReplaySecrets(1).source("cohort", 1, 0)).contributors)
    assert size != 10
    assert play(scheme, trainer=Same(), secrets=ReplaySecrets(1)).weights[0] == pytest.approx(size / 10, abs=0.05)


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
        ledger=memory(), clock=StageClock(),
    )  # fmt: skip
    drive(flow, recorder)
    replies, requests = recorder.replies.values(), recorder.requests.values()
    assert len(requests) == scheme.privacy.sampling.roster_size
    assert {request.weights is None for request in requests} == {True, False}  # data and noise-only members
    assert {reply.weight for reply in replies} == {1.0}
    assert {(reply.vector.dtype, reply.vector.nbytes) for reply in replies} == {(np.dtype(np.uint32), 4 * 18)}
    assert all(int(reply.vector.max()) < 2**20 for reply in replies)


def test_empty_cohort_releases_noise_of_full_size() -> None:
    scheme = scheme_for("fl-std-dp", noise_multiplier=2.0)

    class Nobody(PoissonSampling):
        def draw(self, source: object) -> Cohort:
            return Cohort((), tuple(range(self.roster_size)))

    scheme = replace(scheme, privacy=replace(scheme.privacy, sampling=Nobody(population=N, probability=0.25)))
    weights = play(scheme, secrets=OSSecrets()).weights * 10  # the sum
    assert 60 * 4 * 0.3 < float((weights**2).sum()) < 60 * 4 * 2.4  # chi-square of 60, beyond 1e-6 on each side


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_diverging_client(bad: float) -> None:
    """Open: an error that names client and stage. Private: noise on zeros, so that nothing is told."""

    class Diverging(Pull):
        def train(self, weights: np.ndarray, client: int, rng: np.random.Generator) -> LocalUpdate:
            return LocalUpdate(np.full(DIMENSION, bad, np.float32), 1)

    with pytest.raises(ClientFailed, match=r"client \d+ failed in stage 'protect'.*NaN or infinite"):
        play(scheme_for("fl-std"), trainer=Diverging())
    state = play(scheme_for("fl-std-dp", noise_multiplier=0.0), trainer=Diverging(), secrets=OSSecrets())
    assert np.abs(state.weights).max() == 0.0


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
    flow = round_flow(scheme, state, secrets=OSSecrets(), ledger=ledger or memory(), clock=StageClock())
    return drive(flow, ask_with(change)(client)).state


def test_dropouts_of_an_open_round_are_left_out() -> None:
    assert play_through(scheme_for("fl-std"), lambda n, r: None if n == 0 else r).round == 1
    with pytest.raises(RoundFailed, match="0 clients of the cohort"):
        play_through(scheme_for("fl-std"), lambda n, r: None)


@pytest.mark.parametrize(
    "unusable",
    [
        lambda r: None,
        lambda r: replace(r, vector=None),
        lambda r: replace(r, vector=r.vector[:-1]),
        lambda r: replace(r, vector=r.vector.astype(np.float32)),
        lambda r: replace(r, round=7),
        lambda r: replace(r, attempt=7),
    ],
)
def test_private_rounds_bear_the_declared_dropouts_and_no_more(unusable: object) -> None:
    """Who does not answer, or not with a vector that can be added, has dropped out; too many, and nothing is spent."""

    def spoil(count: int):  # type: ignore[no-untyped-def]
        return lambda n, r: unusable(r) if n < count else r  # type: ignore[operator]

    scheme, ledger = scheme_for("fl-std-dp", dropouts=0.1, colluders=0.1), memory()
    roster, (survivors, _) = scheme.privacy.sampling.roster_size, scheme.privacy.shares
    assert play_through(scheme, spoil(roster - survivors), ledger).round == 1
    assert [entry.state for entry in ledger.entries] == ["RELEASED"]
    ledger = memory()
    with pytest.raises(RoundFailed, match=f"scaled for at least {survivors} of {roster}"):
        play_through(scheme, spoil(roster - survivors + 1), ledger)
    assert ledger.entries == ()


def test_a_sum_larger_than_honest_members_can_make_is_not_used_but_paid() -> None:
    ledger = memory()
    with pytest.raises(RoundFailed, match="honest members"):
        play_through(
            scheme_for("fl-std-dp"),
            lambda n, r: replace(r, vector=np.full_like(r.vector, 2**22)) if n == 0 else r,
            ledger,
        )
    assert len(ledger.events) == 1


def test_failed_attempts_are_repeated_with_new_rosters_and_noise() -> None:
    scheme, ledger, asked = scheme_for("fl-std-dp"), memory(), []

    def flaky(client: Client):  # type: ignore[no-untyped-def]
        def ask(requests: Mapping[int, Request]) -> Iterator[tuple[int, Reply]]:
            asked.append((next(iter(requests.values())).attempt, tuple(requests)))
            answers = list(InProcess(client)(requests))
            yield from answers if len(asked) == 3 else answers[1:]

        return ask

    client = Client(scheme=scheme, trainer=Pull())
    many = Federation(
        scheme=scheme, ask=flaky(client), evaluate=lambda w: {"accuracy": 0.0, "loss": 0.0}, ledger=ledger
    )
    state, _ = many.run(initial_state(scheme, np.zeros(DIMENSION, np.float32)), Schedule(rounds=1, attempts=3))
    assert state.round == 1
    assert [attempt for attempt, _ in asked] == [0, 1, 2]
    assert len({clients for _, clients in asked}) == 3
    assert len(ledger.events) == 1
    asked.clear()
    with pytest.raises(RoundFailed):
        many.run(state, Schedule(rounds=2, attempts=2))


def test_clients_at_their_limit_add_noise_only() -> None:
    """Without noise the third round changes nothing, though every client answers."""
    scheme = scheme_for("fl-std-dp", cohort=N, noise_multiplier=0.0, max_contributions=2)
    ask, state, ledger = InProcess(Client(scheme=scheme, trainer=Pull())), None, memory()
    state, models = initial_state(scheme, np.zeros(DIMENSION, np.float32)), []
    for _ in range(3):
        flow = round_flow(scheme, state, secrets=OSSecrets(), ledger=ledger, clock=StageClock())
        state = drive(flow, ask).state
        models.append(state.weights)
    assert not np.array_equal(models[0], models[1])
    np.testing.assert_array_equal(models[1], models[2])


def test_secret_coins_thin_the_contributions() -> None:
    """Everybody is asked; about a quarter of 40 clients contributes (within 6 standard deviations)."""
    scheme = scheme_for("fl-std-dp", sampling="secret_poisson", noise_multiplier=0.0, clip_norm=2.0)
    contributions = []

    class Counting(Pull):
        def train(self, weights: np.ndarray, client: int, rng: np.random.Generator) -> LocalUpdate:
            contributions.append(client)
            return super().train(weights, client, rng)

    play(scheme, 5, trainer=Counting(), secrets=OSSecrets())
    assert abs(len(contributions) - 50) < 6 * math.sqrt(200 * 0.25 * 0.75)


def test_adaptive_clip_norm_follows_the_norms_of_updates() -> None:
    """Updates have a norm near 3.8; the bound starts at 0.5 and comes near, whatever the noise."""
    scheme = scheme_for("fl-std-dp", cohort=N, clip_norm=0.5, noise_multiplier=0.5, adaptive_clip=True)
    still = type("Still", (Pull,), {"train": lambda self, w, c, r: Pull.train(self, np.zeros_like(w), c, r)})
    state = play(scheme, 40, trainer=still(), secrets=OSSecrets())
    assert 2.5 < state.clip_norm < 6.0


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
    request = Request(round=1, weights=np.zeros(DIMENSION, np.float32))
    state, _ = client.handle(ClientState(0), request)
    with pytest.raises(InvalidInput, match="answered already"):
        client.handle(state, request)


def test_price_is_paid_before_the_sum_is_used() -> None:
    scheme, ledger = scheme_for("fl-std-dp"), memory()
    flow = round_flow(
        scheme, initial_state(scheme, np.zeros(DIMENSION, np.float32)), secrets=OSSecrets(), ledger=ledger,
        clock=StageClock(),
    )  # fmt: skip
    asked, states = next(flow), []
    client = Client(scheme=scheme, trainer=Pull())
    original = ledger.release
    ledger.release = lambda *a: (states.append([e.state for e in ledger.entries]), original(*a))  # type: ignore[method-assign, assignment]
    with pytest.raises(StopIteration):
        flow.send(InProcess(client)(asked))
    assert states == [["INTENT"]]
    assert [(entry.round, entry.event, entry.state) for entry in ledger.entries] == [
        (1, scheme.privacy.event(), "RELEASED")
    ]


def federation(scheme, ledger: Ledger, secrets: object = None) -> Federation:  # type: ignore[no-untyped-def]
    client = Client(scheme=scheme, trainer=Pull())
    return Federation(
        scheme=scheme, ask=InProcess(client), evaluate=lambda weights: {"accuracy": 0.5, "loss": 1.0}, ledger=ledger,
        secrets=secrets or OSSecrets(),  # type: ignore[arg-type]
    )  # fmt: skip


def test_hard_stop_before_the_target() -> None:
    scheme, ledger, records = scheme_for("fl-std-dp", noise_multiplier=2.0), memory(), []
    start = initial_state(scheme, np.zeros(DIMENSION, np.float32))
    state, stopped = federation(scheme, ledger).run(
        start, Schedule(rounds=50, epsilon=3.0), observers=[records.append]
    )
    assert stopped == "privacy target"
    assert 0 < state.round < 50
    assert records[-1].epsilon.pld <= 3.0
    more, _ = federation(scheme, ledger).run(state, Schedule(rounds=state.round + 1), observers=[records.append])
    assert more.round == state.round + 1
    assert records[-1].epsilon.pld > 3.0
    with pytest.raises(BudgetExhausted, match="first round"):
        federation(scheme, memory()).run(start, Schedule(rounds=5, epsilon=0.01))


def test_replayed_secrets_claim_no_epsilon() -> None:
    scheme, records = scheme_for("fl-std-dp"), []
    start = initial_state(scheme, np.zeros(DIMENSION, np.float32))
    federation(scheme, memory(), ReplaySecrets(0)).run(start, Schedule(rounds=1), observers=[records.append])
    assert records[0].epsilon is None


def test_bytes_of_private_rounds_do_not_tell_the_cohort() -> None:
    for name in ("fl-std-dp", "fl-cs-dp"):
        scheme = scheme_for(name)
        state = play(scheme, 3, secrets=OSSecrets())
        per_client = math.ceil(scheme.codec.operator(DIMENSION, 1).num_measurements * scheme.privacy.bits / 8)
        assert state.bytes_up == 3 * scheme.privacy.sampling.roster_size * per_client
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
        assert isinstance(scheme.privacy, ClientMechanism) is name.endswith("-dp")
