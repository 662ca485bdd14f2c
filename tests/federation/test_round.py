"""The round: limiting cases of all schemes, what is sent, what fails closed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lowkey.codec import CODECS, AdjointDecoder, LassoDecoder, LayeredDecoder
from lowkey.errors import BudgetExhausted, CannotContribute, ClientFailed, InvalidInput, RoundFailed
from lowkey.federation import (
    SCHEMES,
    Client,
    ClientState,
    Federation,
    Reply,
    Request,
    RunState,
    Schedule,
    Scheme,
    drive,
    initial_state,
    round_flow,
    scheme,
    usual_parts,
)
from lowkey.privacy import ClientPrivacy, Cohort, Ledger, PoissonSampling
from lowkey.protocols import Ask, LocalUpdate
from lowkey.rng import OSSecrets, ReplaySecrets, Secrets
from lowkey.server import Adam, ErrorFeedback, Momentum, TailAverage
from lowkey.simulation import InProcess
from lowkey.timing import StageClock
from tests.conftest import mechanism_of, sent_vector

N, DIMENSION = 40, 60
WIDE = 8.0  # longer than any update of Pull
Change = Callable[[int, Reply], Reply | None]


def memory() -> Ledger:
    return Ledger(None, run="test")


class Pull:
    """A trainer without a framework: every client pulls the model towards a point of its own."""

    num_clients, num_coordinates = N, DIMENSION

    def limit_threads(self, threads: int) -> None: ...

    def train(self, weights: np.ndarray, client: int, rng: np.random.Generator) -> LocalUpdate:
        target = np.random.default_rng(client).normal(size=DIMENSION).astype(np.float32)
        return LocalUpdate(np.float32(0.5) * (target - weights), 1 + client % 7)


def scheme_for(
    name: str,
    *,
    cohort: int = 10,
    ratio: float = 0.3,
    chunks: int = 3,
    seed: int = 0,
    parts: Any = None,
    **privacy: Any,
) -> Scheme:
    """A scheme for the clients of Pull; a noise multiplier of 0 is a limiting case that users cannot choose."""
    kind = usual_parts(name)["codec"]
    sizes = {"whole": {}, "chunked-dct": {"ratio": ratio, "chunks": chunks}}.get(kind, {"ratio": ratio})
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0, "dropouts": 0.0, "colluders": 0.0} | privacy
    silent = settings["noise_multiplier"] == 0
    promised = ClientPrivacy(**(settings | ({"noise_multiplier": 1.0} if silent else {})))
    made = scheme(
        name, clients=N, cohort=cohort, codec=CODECS[kind](**sizes), seed=seed,
        privacy=promised if name.endswith("-dp") else None, **(parts or {}),
    ).for_layers([20, 40])  # fmt: skip
    if name.endswith("-dp") and silent:
        mechanism = mechanism_of(made)
        return replace(made, privacy=replace(mechanism, settings=replace(mechanism.settings, noise_multiplier=0.0)))
    return made


def run_rounds(scheme: Scheme, rounds: int = 1, trainer: Any = None, secrets: Any = None) -> RunState:
    client = Client(scheme=scheme, trainer=trainer or Pull(), secrets=secrets or ReplaySecrets(0))
    state = initial_state(scheme, np.zeros(DIMENSION, np.float32))
    for _ in range(rounds):
        flow = round_flow(scheme, state, secrets=client.secrets, ledger=memory(), clock=StageClock())
        state = drive(flow, InProcess(client)).state
    return state


def fedavg(rounds: int, scheme: Scheme) -> np.ndarray:
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
def test_every_scheme_runs_rounds(name: str) -> None:
    state = run_rounds(scheme_for(name), rounds=3)
    assert state.round == 3
    assert state.weights.dtype == np.float32
    assert np.isfinite(state.weights).all()
    assert np.abs(state.weights).sum() > 0


def test_fl_std_is_fedavg() -> None:
    scheme = scheme_for("fl-std")
    np.testing.assert_allclose(run_rounds(scheme, 4).weights, fedavg(4, scheme), atol=1e-5)


def test_wide_clip_and_no_noise_is_fedavg_over_the_expected_cohort() -> None:
    """FL-STD-DP in its limit: the uniform mean over the same cohort, but for rounding to the grid."""
    scheme = scheme_for("fl-std-dp", clip_norm=WIDE, noise_multiplier=0.0, sampling="fixed")
    trainer = Pull()
    cohort = scheme.privacy.sampling.draw(ReplaySecrets(0).source("cohort", 1, 0)).contributors
    start = np.zeros(DIMENSION, np.float32)
    mean = np.mean([trainer.train(start, c, np.random.default_rng(0)).update for c in cohort], axis=0)
    step = mechanism_of(scheme).encoding(DIMENSION).step(WIDE)
    np.testing.assert_allclose(run_rounds(scheme).weights, mean, atol=step)


@pytest.mark.parametrize("name", ["fl-rnd", "fl-freq"])
def test_full_ratio_equals_fl_std(name: str) -> None:
    scheme = scheme_for(name, ratio=1.0)
    np.testing.assert_allclose(run_rounds(scheme, 3).weights, run_rounds(scheme_for("fl-std"), 3).weights, atol=1e-5)


def test_fl_cs_with_full_ratio_and_no_penalty_equals_fl_std() -> None:
    equal = type("Equal", (Pull,), {"train": lambda self, w, c, r: replace(Pull.train(self, w, c, r), num_examples=1)})
    cs = scheme_for(
        "fl-cs", ratio=1.0,
        parts={"decoder": LassoDecoder(lambda_factor=0.0), "gather": ErrorFeedback(rate=1.0, momentum=0.0)},
    )  # fmt: skip
    one, other = run_rounds(cs, 3, equal()), run_rounds(scheme_for("fl-std"), 3, equal())
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)
    np.testing.assert_allclose(one.gathered["error"], 0.0, atol=1e-5)


@pytest.mark.parametrize("family", ["fl-std", "fl-rnd", "fl-freq", "fl-cs"])
def test_private_twin_without_clip_and_noise_equals_the_open_scheme(family: str) -> None:
    equal = type("Equal", (Pull,), {"train": lambda self, w, c, r: replace(Pull.train(self, w, c, r), num_examples=1)})
    everyone: Any = {"cohort": N, "parts": {"decoder": LayeredDecoder() if family == "fl-cs" else AdjointDecoder()}}
    private = scheme_for(f"{family}-dp", clip_norm=WIDE, noise_multiplier=0.0, bits=24, sampling="fixed", **everyone)
    step = mechanism_of(private).encoding(private.operator(DIMENSION, 1).num_measurements).step(WIDE)
    open_ = run_rounds(scheme_for(family, **everyone), 2, equal())
    np.testing.assert_allclose(
        run_rounds(private, 2, equal()).weights, open_.weights, atol=3 * step
    )  # rounding, 40 clients


def test_server_state_is_compressed() -> None:
    """At the paper's settings no n-sized array is kept besides the model."""
    for name in SCHEMES:
        state = run_rounds(scheme_for(name))
        kept = {**state.gathered, **state.optimiser, **state.average}
        assert all(array.size < DIMENSION for array in kept.values()), name


def test_seed_repeats_open_schemes_and_secrets_never_repeat_private_ones() -> None:
    one, again, other = (run_rounds(scheme_for("fl-cs", seed=s), 2, secrets=OSSecrets()).weights for s in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    first, second = (run_rounds(scheme_for("fl-cs-dp", seed=1), secrets=OSSecrets()).weights for _ in range(2))
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
    assert run_rounds(scheme, trainer=Same(), secrets=ReplaySecrets(1)).weights[0] == pytest.approx(size / 10, abs=0.05)


class Recorder:
    """A runtime that keeps what crosses the wire."""

    def __init__(self, client: Client) -> None:
        self.inner, self.replies, self.requests = InProcess(client), dict[int, Reply](), dict[int, Request]()

    def __call__(self, requests: Mapping[int, Request]) -> Iterator[tuple[int, Reply]]:
        self.requests = dict(requests)
        for client, reply in self.inner(requests):
            self.replies[client] = replace(reply, vector=sent_vector(reply).copy())
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
    vectors = [sent_vector(reply) for reply in replies]
    assert {(vector.dtype, vector.nbytes) for vector in vectors} == {(np.dtype(np.uint32), 4 * 18)}
    assert all(int(vector.max()) < 2**20 for vector in vectors)


def test_empty_cohort_releases_noise_of_full_size() -> None:
    scheme = scheme_for("fl-std-dp", noise_multiplier=2.0)

    class Nobody(PoissonSampling):
        def draw(self, source: object) -> Cohort:
            return Cohort((), tuple(range(self.roster_size)))

    nobody = Nobody(population=N, probability=0.25)
    scheme = replace(scheme, privacy=replace(mechanism_of(scheme), sampling=nobody))
    weights = run_rounds(scheme, secrets=OSSecrets()).weights * 10  # the sum
    assert 60 * 4 * 0.3 < float((weights**2).sum()) < 60 * 4 * 2.4  # chi-square of 60, beyond 1e-6 on each side


class Diverging(Pull):
    """Every third client has nothing to send."""

    bad, every = math.nan, 3

    def train(self, weights: np.ndarray, client: int, rng: np.random.Generator) -> LocalUpdate:
        if client % self.every == 0:
            return LocalUpdate(np.full(DIMENSION, self.bad, np.float32), 1)
        return super().train(weights, client, rng)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_clients_that_diverge_send_zeros_with_their_noise_and_are_counted(bad: float) -> None:
    """Private, everybody takes part: the sum is that of the others. Open: they are left out of the mean."""
    trainer = type("Bad", (Diverging,), {"bad": bad})()
    excused = len(range(0, N, 3))
    private = scheme_for("fl-std-dp", cohort=N, clip_norm=WIDE, noise_multiplier=0.0)
    ask = InProcess(Client(scheme=private, trainer=trainer))
    start = initial_state(private, np.zeros(DIMENSION, np.float32))
    state = drive(round_flow(private, start, secrets=OSSecrets(), ledger=memory(), clock=StageClock()), ask).state
    others = [Pull().train(start.weights, c, np.random.default_rng(0)).update for c in range(N) if c % 3]
    step = mechanism_of(private).encoding(60).step(WIDE)
    np.testing.assert_allclose(state.weights, np.sum(others, axis=0) / N, atol=step)
    assert ask.take_figures() == {"could_not_contribute": excused}
    assert ask.take_figures() == {}

    open_ = scheme_for("fl-std", cohort=N)
    ask = InProcess(Client(scheme=open_, trainer=trainer))
    flow = round_flow(
        open_, initial_state(open_, start.weights), secrets=OSSecrets(), ledger=memory(), clock=StageClock()
    )
    outcome = drive(flow, ask)
    sizes = [1 + c % 7 for c in range(N) if c % 3]
    np.testing.assert_allclose(outcome.state.weights, np.average(others, axis=0, weights=sizes), atol=1e-5)
    assert outcome.survivors == N - excused
    assert ask.take_figures() == {"could_not_contribute": excused}


@pytest.mark.parametrize("name", ["fl-std", "fl-cs-dp"])
def test_when_half_of_a_cohort_cannot_contribute_the_run_stops_and_nothing_is_released(name: str) -> None:
    trainer, ledger, made = type("Half", (Diverging,), {"every": 2})(), memory(), scheme_for(name, cohort=N)
    flow = round_flow(
        made,
        initial_state(made, np.zeros(DIMENSION, np.float32)),
        secrets=OSSecrets(),
        ledger=ledger,
        clock=StageClock(),
    )
    with pytest.raises(CannotContribute, match=r"20 of the 40 clients that tried.*NaN or infinite"):
        drive(flow, InProcess(Client(scheme=made, trainer=trainer)))
    assert [entry.state for entry in ledger.entries] == (["INTENT"] if made.private else [])


class Doubles(Pull):
    """A defect: the update is float64."""

    def train(self, weights: np.ndarray, client: int, rng: np.random.Generator) -> LocalUpdate:
        return LocalUpdate(super().train(weights, client, rng).update.astype(np.float64), 1)


@pytest.mark.parametrize("name", ["fl-std", "fl-std-dp", "fl-cs-dp"])
def test_a_defect_of_a_trainer_stops_every_scheme_and_names_the_client(name: str) -> None:
    with pytest.raises(ClientFailed, match=r"client \d+ failed in stage 'compress'.*float64; it must be float32"):
        run_rounds(scheme_for(name), trainer=Doubles())


def test_at_a_real_node_any_failure_to_train_becomes_zeros_and_noise() -> None:
    """What went wrong stays in the client's own record; the reply is that of a client without data."""

    class Broken(Pull):
        def train(self, weights: np.ndarray, client: int, rng: np.random.Generator) -> LocalUpdate:
            raise KeyError("Jane Doe, born 1970-01-01")

    made = scheme_for("fl-std-dp")
    request = Request(round=1, weights=np.zeros(DIMENSION, np.float32), clip_norm=1.0)
    node = Client(scheme=made, trainer=Broken(), secrets=ReplaySecrets(5), excused=Exception)
    _, reply = node.handle(ClientState(3), request)
    _, of_nothing = node.handle(ClientState(3), replace(request, weights=None))
    np.testing.assert_array_equal(reply.vector, of_nothing.vector)
    assert reply.weight == of_nothing.weight == 1.0
    assert node.attendance.take() == (1, ["'Jane Doe, born 1970-01-01'"])
    with pytest.raises(KeyError):
        Client(scheme=made, trainer=Broken()).handle(ClientState(3), request)


def test_optimisers_and_averages_spend_nothing() -> None:
    """All is post-processing: the same events, whatever the server does with the sums."""
    spent = set()
    for parts in (
        {},
        {"server": Momentum()},
        {"server": Adam()},
        {"server": Adam(), "averaging": TailAverage(start=2)},
    ):
        made, ledger = scheme_for("fl-std-dp", parts=parts), memory()
        state, _ = federation(made, ledger).run(
            initial_state(made, np.zeros(DIMENSION, np.float32)), Schedule(rounds=3)
        )
        assert np.isfinite(state.weights).all()
        spent.add(ledger.events)
    assert len(spent) == 1


def test_the_average_is_what_is_evaluated_and_clients_train_from_the_last_iterate() -> None:
    made = scheme_for("fl-std", parts={"averaging": TailAverage(start=2)})
    seen: list[np.ndarray] = []
    client = Client(scheme=made, trainer=Pull())
    asked: list[np.ndarray] = []
    inner = InProcess(client)

    def ask(requests: Mapping[int, Request]) -> Iterator[tuple[int, Reply]]:
        weights = next(iter(requests.values())).weights
        assert weights is not None
        asked.append(weights)
        return inner(requests)

    def evaluate(weights: np.ndarray) -> dict[str, float]:
        seen.append(weights.copy())
        return {"accuracy": 0.0}

    judged = Federation(scheme=made, ask=ask, evaluate=evaluate)
    state, _ = judged.run(initial_state(made, np.zeros(DIMENSION, np.float32)), Schedule(rounds=4))
    iterates = [*asked[1:], state.weights]
    np.testing.assert_array_equal(seen[0], iterates[0])
    for last in (2, 3, 4):
        np.testing.assert_allclose(seen[last - 1], np.mean(iterates[1:last], axis=0), atol=1e-6)
    assert not np.array_equal(seen[-1], state.weights)


def test_wrong_length_update_names_the_client() -> None:
    class Short(Pull):
        def train(self, weights: np.ndarray, client: int, rng: np.random.Generator) -> LocalUpdate:
            return LocalUpdate(np.zeros(DIMENSION - 1, np.float32), 1)

    with pytest.raises(ClientFailed, match=r"stage 'compress'.*vector of 60 numbers"):
        run_rounds(scheme_for("fl-std"), trainer=Short())


def ask_with(change: Change) -> Callable[[Client], Ask]:
    """A runtime whose replies pass through ``change``; None drops the client."""

    def wrap(client: Client) -> Ask:
        def ask(requests: Mapping[int, Request]) -> Iterator[tuple[int, Reply]]:
            for number, (who, reply) in enumerate(InProcess(client)(requests)):
                changed = change(number, reply)
                if changed is not None:
                    yield who, changed

        return ask

    return wrap


def run_through(scheme: Scheme, change: Change, ledger: Ledger | None = None) -> RunState:
    client = Client(scheme=scheme, trainer=Pull())
    state = initial_state(scheme, np.zeros(DIMENSION, np.float32))
    flow = round_flow(scheme, state, secrets=OSSecrets(), ledger=ledger or memory(), clock=StageClock())
    return drive(flow, ask_with(change)(client)).state


def test_dropouts_of_an_open_round_are_left_out() -> None:
    assert run_through(scheme_for("fl-std"), lambda n, r: None if n == 0 else r).round == 1
    with pytest.raises(RoundFailed, match="0 of 10 members answered"):
        run_through(scheme_for("fl-std"), lambda n, r: None)


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
def test_private_rounds_bear_the_declared_dropouts_and_no_more(unusable: Callable[[Reply], Reply | None]) -> None:
    """Who does not answer, or not with a vector that can be added, has dropped out; too many, and nothing is known."""

    def spoil(count: int) -> Change:
        return lambda n, r: unusable(r) if n < count else r

    scheme, ledger = scheme_for("fl-std-dp", dropouts=0.1, colluders=0.1), memory()
    roster, min_survivors = scheme.privacy.sampling.roster_size, mechanism_of(scheme).shares.min_survivors
    assert run_through(scheme, spoil(roster - min_survivors), ledger).round == 1
    assert [entry.state for entry in ledger.entries] == ["RELEASED"]
    ledger = memory()
    with pytest.raises(
        RoundFailed, match=f"{min_survivors - 1} of {roster} members answered, and at least {min_survivors} must"
    ):
        run_through(scheme, spoil(roster - min_survivors + 1), ledger)
    assert [entry.state for entry in ledger.entries] == ["ABORTED"]
    assert len(ledger.events) == 1  # the vectors have left


def test_a_sum_larger_than_honest_members_can_make_is_not_used_but_paid() -> None:
    ledger = memory()
    with pytest.raises(RoundFailed, match="honest members"):
        run_through(
            scheme_for("fl-std-dp"),
            lambda n, r: replace(r, vector=np.full_like(sent_vector(r), 2**22)) if n == 0 else r,
            ledger,
        )
    assert len(ledger.events) == 1


def test_failed_attempts_are_repeated_with_new_rosters_and_noise() -> None:
    scheme, ledger, asked = scheme_for("fl-std-dp"), memory(), []

    def flaky(client: Client) -> Ask:
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
    assert [entry.state for entry in ledger.entries] == ["ABORTED", "ABORTED", "RELEASED"]
    assert len(ledger.events) == 3
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

    run_rounds(scheme, 5, trainer=Counting(), secrets=OSSecrets())
    assert abs(len(contributions) - 50) < 6 * math.sqrt(200 * 0.25 * 0.75)


def test_adaptive_clip_norm_follows_the_norms_of_updates() -> None:
    """Updates have a norm near 3.8; the bound starts at 0.5 and comes near, whatever the noise."""
    scheme = scheme_for("fl-std-dp", cohort=N, clip_norm=0.5, noise_multiplier=0.5, clip="adaptive")
    still = type("Still", (Pull,), {"train": lambda self, w, c, r: Pull.train(self, np.zeros_like(w), c, r)})
    state = run_rounds(scheme, 40, trainer=still(), secrets=OSSecrets())
    assert state.clip_norm is not None
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
def test_bad_replies_name_the_client(change: Change, named: str) -> None:
    with pytest.raises(ClientFailed, match=named):
        run_through(scheme_for("fl-std"), change)


def test_poisoned_sum_is_not_applied() -> None:
    with pytest.raises(InvalidInput, match="NaN or infinite"):
        run_through(scheme_for("fl-std"), lambda n, r: replace(r, vector=np.full_like(r.vector, math.inf)))


def test_a_client_answers_a_round_once() -> None:
    client = Client(scheme=scheme_for("fl-std"), trainer=Pull())
    request = Request(round=1, weights=np.zeros(DIMENSION, np.float32))
    state, _ = client.handle(ClientState(0), request)
    with pytest.raises(InvalidInput, match="answered already"):
        client.handle(state, request)


def test_price_is_paid_before_vectors_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme, ledger = scheme_for("fl-std-dp"), memory()
    flow = round_flow(
        scheme, initial_state(scheme, np.zeros(DIMENSION, np.float32)), secrets=OSSecrets(), ledger=ledger,
        clock=StageClock(),
    )  # fmt: skip
    asked, states = next(flow), []
    assert [entry.state for entry in ledger.entries] == ["INTENT"]
    client = Client(scheme=scheme, trainer=Pull())
    original = ledger.release

    def release(round_number: int, attempt: int) -> None:
        states.append([e.state for e in ledger.entries])
        original(round_number, attempt)

    monkeypatch.setattr(ledger, "release", release)
    with pytest.raises(StopIteration):
        flow.send(InProcess(client)(asked))
    assert states == [["INTENT"]]
    assert [(entry.round, entry.event, entry.state) for entry in ledger.entries] == [
        (1, scheme.privacy.event(), "RELEASED")
    ]


def federation(scheme: Scheme, ledger: Ledger, secrets: Secrets | None = None) -> Federation:
    client = Client(scheme=scheme, trainer=Pull())
    return Federation(
        scheme=scheme, ask=InProcess(client), evaluate=lambda weights: {"accuracy": 0.5, "loss": 1.0}, ledger=ledger,
        secrets=secrets or OSSecrets(),
    )  # fmt: skip


def test_hard_stop_before_the_target() -> None:
    def noisy(epsilon: float | None) -> Scheme:
        return scheme_for("fl-std-dp", noise_multiplier=2.0, epsilon=epsilon)

    ledger, records = memory(), list[Any]()
    start = initial_state(noisy(3.0), np.zeros(DIMENSION, np.float32))
    state, stopped = federation(noisy(3.0), ledger).run(start, Schedule(rounds=50), observers=[records.append])
    assert stopped == "privacy target"
    assert 0 < state.round < 50
    assert records[-1]["epsilon_pld"] <= 3.0
    onwards = Schedule(rounds=state.round + 1)
    more, _ = federation(noisy(None), ledger).run(state, onwards, observers=[records.append])
    assert more.round == state.round + 1
    assert records[-1]["epsilon_pld"] > 3.0
    with pytest.raises(BudgetExhausted, match="first round"):
        federation(noisy(0.01), memory()).run(start, Schedule(rounds=5))


def test_replayed_secrets_claim_no_epsilon() -> None:
    scheme, records = scheme_for("fl-std-dp"), list[Any]()
    start = initial_state(scheme, np.zeros(DIMENSION, np.float32))
    federation(scheme, memory(), ReplaySecrets(0)).run(start, Schedule(rounds=1), observers=[records.append])
    assert records[0]["epsilon_pld"] is None


def test_bytes_of_private_rounds_do_not_tell_the_cohort() -> None:
    for name in ("fl-std-dp", "fl-cs-dp"):
        scheme = scheme_for(name)
        state = run_rounds(scheme, 3, secrets=OSSecrets())
        per_client = math.ceil(scheme.operator(DIMENSION, 1).num_measurements * mechanism_of(scheme).bits / 8)
        assert state.bytes_up == 3 * scheme.privacy.sampling.roster_size * per_client
        assert state.bytes_down == 3 * 10 * 4 * DIMENSION


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("fl-magic", {}, "one of"),
        ("fl-std", {"privacy": ClientPrivacy(clip_norm=1.0)}, "use fl-std-dp"),
        ("fl-freq", {"decoder": LassoDecoder()}, "chunks of 'chunked-dct'"),
        ("fl-freq", {"decoder": LayeredDecoder()}, "chunks of 'chunked-dct'"),
        ("fl-rnd", {"gather": ErrorFeedback()}, "no common domain"),
        ("fl-std", {"cohort": 41}, "cohort"),
        ("fl-std", {"cohort": None}, "federation.cohort is None; it must be a whole number"),
        ("fl-std", {"cohort": 2.5}, "whole number"),
        ("fl-std", {"clients": 0}, "federation.clients"),
        ("fl-std", {"seed": -1}, "seed is -1"),
        ("fl-std", {"min_clients": 11}, "federation.min_clients"),
        ("fl-std-dp", {}, "needs privacy settings"),
        ("fl-std-dp", {"privacy": ClientPrivacy(clip_norm=1.0)}, "needs privacy.epsilon and the number of rounds"),
        ("fl-std-dp", {"privacy": ClientPrivacy(clip_norm=1.0, noise_multiplier=0.0)}, "protects nobody"),
        ("fl-std-dp", {"privacy": ClientPrivacy(clip_norm=1.0, noise_multiplier=1.0, delta=0.5)}, "delta"),
        ("fl-std-dp", {"privacy": ClientPrivacy(clip_norm=1.0, noise_multiplier=1.0), "min_clients": 2}, "dropouts"),
    ],
)  # fmt: skip
def test_bad_schemes_are_refused(name: str, options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        scheme(name, **({"clients": N, "cohort": 10} | options))


def test_a_ratio_that_keeps_nothing_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(InvalidInput, match="keeps none of 60 numbers"):
        run_rounds(scheme_for("fl-rnd", ratio=1e-9))


def test_chunks_beyond_parameters_are_refused() -> None:
    with pytest.raises(InvalidInput, match="use at most 60 chunks"):
        run_rounds(scheme_for("fl-cs", chunks=61))


def test_private_schemes_weigh_uniformly() -> None:
    for name in SCHEMES:
        scheme = scheme_for(name)
        assert scheme.weight_by_examples is (name in ("fl-std", "fl-rnd", "fl-freq"))
        assert scheme.private is name.endswith("-dp")
