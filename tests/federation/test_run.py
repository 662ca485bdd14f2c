"""The run: what is accounted, to whom, and when it ends; and what the parts of a scheme are told."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from lowkey.codec import AdjointDecoder, LayeredDecoder, WholeUpdate
from lowkey.errors import InvalidInput
from lowkey.federation import Client, ClientState, Invite, Request, Schedule, initial_state, scheme
from lowkey.privacy import ClientPrivacy, released_epsilon, server_epsilon, server_view
from lowkey.server import DecodeMean, ErrorFeedback, State
from lowkey.types import FloatArray
from tests.conftest import mechanism_of
from tests.federation.test_round import DIMENSION, Pull, federation, memory, scheme_for

START = np.zeros(DIMENSION, np.float32)


def test_every_round_is_accounted_to_both_audiences() -> None:
    made, ledger, lines = scheme_for("fl-std-dp", noise_multiplier=2.0), memory(), list[Any]()
    federation(made, ledger).run(initial_state(made, START), Schedule(rounds=3), observers=[lines.append])
    event = made.privacy.event()
    assert event is not None
    for number, line in enumerate(lines, 1):
        spent = released_epsilon([event] * number, made.privacy.delta)
        assert (line["epsilon_pld"], line["epsilon_rdp"], line["epsilon_paper"]) == (spent.pld, spent.rdp, spent.paper)
        assert line["epsilon_server"] == server_epsilon(2.0, number, made.privacy.delta)


def test_what_other_runs_spent_counts_and_the_limit_bounds_this_run_alone() -> None:
    made = scheme_for("fl-std-dp", cohort=40, noise_multiplier=2.0, max_contributions=2)
    event, ledger = made.privacy.event(), memory()
    assert event is not None
    ledger.run = "another run"  # on the same clients
    for number in (1, 2, 3):
        ledger.intend(number, 0, event)
    ledger.run = "test"
    state, _ = federation(made, ledger).run(initial_state(made, START), Schedule(rounds=4))
    assert state.round == 4
    run = federation(made, ledger)
    assert run.server_epsilon() == server_view([event] * (3 + 2), made.privacy.delta)
    assert run.server_epsilon_limit() == run.server_epsilon()  # the limit was reached
    spent = run.epsilon()
    assert spent is not None
    assert spent.pld == released_epsilon([event] * 7, made.privacy.delta).pld


def test_the_servers_epsilon_is_also_told_at_the_limit_that_clients_keep() -> None:
    """What has been asked so far may be less than what clients would give."""
    made, lines = scheme_for("fl-std-dp", cohort=40, noise_multiplier=2.0, max_contributions=9), list[Any]()
    federation(made, memory()).run(initial_state(made, START), Schedule(rounds=2), observers=[lines.append])
    delta = made.privacy.delta
    assert [line["epsilon_server"] for line in lines] == [server_epsilon(2.0, n, delta) for n in (1, 2)]
    assert [line["epsilon_server_limit"] for line in lines] == [server_epsilon(2.0, 9, delta)] * 2
    unlimited = scheme_for("fl-std-dp", cohort=40, noise_multiplier=2.0, max_contributions="unlimited")
    assert federation(unlimited, memory()).server_epsilon_limit() is None


def test_an_open_run_spends_nothing() -> None:
    made, lines = scheme_for("fl-std"), list[Any]()
    federation(made, memory()).run(initial_state(made, START), Schedule(rounds=1), observers=[lines.append])
    views = ("pld", "rdp", "paper", "server", "server_limit")
    assert [lines[0][f"epsilon_{name}"] for name in views] == [None] * 5


def test_a_target_ends_the_run_just_before_it_is_passed() -> None:
    made, ledger = scheme_for("fl-std-dp", cohort=40, noise_multiplier=4.0, epsilon=2.5), memory()
    event = made.privacy.event()
    assert event is not None
    state, stopped = federation(made, ledger).run(initial_state(made, START), Schedule(rounds=50))
    assert stopped == "privacy target"
    within, beyond = (released_epsilon([event] * n, made.privacy.delta).pld for n in (state.round, state.round + 1))
    assert within <= 2.5 < beyond


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"rounds": -1}, "schedule.rounds is -1"),
        ({"rounds": 2.5}, r"schedule.rounds is 2\.5; it must be a whole number"),
        ({"rounds": "many"}, "schedule.rounds"),
        ({"evaluate_every": 0}, "schedule.evaluate_every is 0"),
        ({"attempts": 0}, "schedule.attempts is 0"),
    ],
)
def test_bad_schedules_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        Schedule(**settings)
    assert Schedule(rounds=1, evaluate_every=1, attempts=1).last_round == 1


def test_an_open_number_of_rounds_must_be_resolved() -> None:
    with pytest.raises(InvalidInput, match="auto"):
        _ = Schedule(rounds="auto").last_round


@dataclass(frozen=True)
class Listening:
    """An optimiser that remembers which noise it was told of."""

    heard: list[float] = field(default_factory=list)

    def init(self, weights: FloatArray) -> State:
        return {}

    def apply(self, state: State, update: FloatArray, noise: float) -> tuple[State, FloatArray]:
        self.heard.append(noise)
        return state, update


@pytest.mark.parametrize("name", ["fl-std-dp", "fl-freq-dp"])
def test_the_optimiser_is_told_the_noise_in_each_coordinate(name: str) -> None:
    """An adjoint spreads the noise of m numbers over n coordinates: its variance falls by m / n."""
    made = replace(scheme_for(name, cohort=40, clip_norm=1.0, noise_multiplier=2.0), server=Listening())
    federation(made, memory()).run(initial_state(made, START), Schedule(rounds=1))
    numbers = made.operator(DIMENSION, 1).num_measurements
    encoding = mechanism_of(made).encoding(numbers)
    of_mean = encoding.total_std(40) * encoding.step(1.0) / 40
    assert isinstance(made.server, Listening)
    assert made.server.heard == [pytest.approx(of_mean * math.sqrt(numbers / DIMENSION))]
    assert numbers < DIMENSION or name == "fl-std-dp"


def test_the_usual_parts_of_a_scheme() -> None:
    privacy = ClientPrivacy(clip_norm=1.0, noise_multiplier=1.0)
    std, cs = (scheme(name, clients=50, cohort=5) for name in ("fl-std", "fl-cs"))
    private = scheme("fl-cs-dp", clients=50, cohort=5, privacy=privacy)
    assert (std.codec, std.decoder, std.gather) == (WholeUpdate(), AdjointDecoder(), DecodeMean())
    assert (cs.decoder, cs.gather) == (LayeredDecoder(), ErrorFeedback(rate=0.35, momentum=0.9))
    assert (private.decoder, private.gather) == (AdjointDecoder(), ErrorFeedback(rate=0.35, momentum=0.9))
    assert (std.seed, std.private, private.private) == (0, False, True)


def test_secure_aggregation_needs_keys() -> None:
    made = scheme_for("fl-std-dp", cohort=40, aggregation="masked")
    invite = Request(round=1, message=Invite(run="test", roster=tuple(range(40))))
    with pytest.raises(InvalidInput, match="keys of the enrolled clients"):
        Client(scheme=made, trainer=Pull()).handle(ClientState(0), invite)


@pytest.mark.parametrize("clip_norm", [None, float("nan"), float("inf"), 0.0, -1.0, 0.5, 1e9])
def test_a_clip_norm_that_was_not_agreed_is_refused_by_all_members_alike(clip_norm: float | None) -> None:
    """Or the server would learn by who fails whose coin fell on heads, and who still contributes."""
    made = scheme_for("fl-std-dp", sampling="secret_poisson", clip_norm=1.0, max_contributions=1)
    model = np.zeros(DIMENSION, np.float32)
    for number in range(20):
        for weights, contributions in ((model, 0), (model, 5), (None, 0)):
            request = Request(round=1, weights=weights, clip_norm=clip_norm)
            with pytest.raises(InvalidInput, match="clip norm"):
                Client(scheme=made, trainer=Pull()).handle(ClientState(number, contributions=contributions), request)


def test_an_adaptive_clip_norm_may_move_but_not_beyond_reason() -> None:
    made = scheme_for("fl-std-dp", cohort=40, clip="adaptive", clip_norm=1.0)
    client, model = Client(scheme=made, trainer=Pull()), np.zeros(DIMENSION, np.float32)
    client.handle(ClientState(0), Request(round=1, weights=model, clip_norm=0.7))
    with pytest.raises(InvalidInput, match="must be at most"):
        client.handle(ClientState(0), Request(round=1, weights=model, clip_norm=1e9))


def test_error_feedback_tells_the_noise_that_is_really_there() -> None:
    """With the adjoint everything is decoded in every round: only the momentum carries noise on."""
    made = replace(scheme_for("fl-cs-dp", cohort=40, ratio=1.0, noise_multiplier=2.0), server=Listening())
    federation(made, memory()).run(initial_state(made, START), Schedule(rounds=40))
    assert isinstance(made.server, Listening)
    first, last, rho = made.server.heard[0], made.server.heard[-1], 0.9
    assert last == pytest.approx(first / math.sqrt(1 - rho**2), rel=0.02)
