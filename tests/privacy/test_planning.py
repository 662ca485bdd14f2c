"""Is it within reach, and at what price."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from lowkey.errors import InvalidInput
from lowkey.privacy import claimed_epsilon, feasibility, paper_megabits, plan, server_epsilon, signal_to_noise

PARAMETERS = 1_663_370


@pytest.mark.parametrize(
    ("contributors", "noise", "measurements", "expected"),
    [
        (100, 1.54, 83_200, 0.225),
        (100, 1.2245, 83_200, 0.283),
        (100, 1.54, 1_663_400, 0.050),
        (20, 4.24, 83_200, 0.016),
    ],
)
def test_signal_to_noise(contributors: int, noise: float, measurements: int, expected: float) -> None:
    assert signal_to_noise(contributors, noise, measurements) == pytest.approx(expected, abs=5e-4)


def test_feasibility_in_one_line() -> None:
    assert feasibility(0.1).startswith("feasible")
    hopeless = feasibility(0.0999)
    assert hopeless.startswith("doubtful")
    assert "only small server steps (server.rate) add up to something; consider more clients" in hopeless
    assert "\n" not in hopeless


def test_cost_as_the_paper_counts() -> None:
    assert paper_megabits(PARAMETERS, 0.05, 200, 1 / 60) == pytest.approx(8.871, abs=5e-4)


def test_plan_of_the_papers_setting() -> None:
    made = plan(clients=6000, epsilon=1.0, delta=1e-5, parameters=PARAMETERS)
    event = made.event
    assert (event.mode, event.count, event.roster, event.honest) == ("poisson_padded", 210, 160, 128)
    assert (made.rounds, made.spare_attempts) == (200, 10)
    assert made.noise_without_spare == pytest.approx(1.2245, abs=1.01e-4)
    assert event.noise_multiplier == pytest.approx(1.2393, abs=1.01e-4)
    assert made.released.pld == claimed_epsilon([event], 1e-5) <= 1.0
    assert (made.participations, made.server) == (10, server_epsilon(event.noise_multiplier, 10, 1e-5))
    assert made.ratio == 0.2  # at 0.5 the signal is too weak
    assert made.measurements == 332_674
    assert made.signal_to_noise == pytest.approx(signal_to_noise(100, event.noise_multiplier, 332_674))
    assert made.feasible
    vector = 831_685  # 20 bits a number
    assert made.bytes_up_per_client == vector + 160 * 145
    assert made.bytes_up == 200 * 160 * made.bytes_up_per_client
    assert made.bytes_down_per_client == 4 * PARAMETERS + 160 * 145
    assert made.bytes_down == 200 * (100 * 4 * PARAMETERS + 160 * 160 * 145)
    assert json.loads(json.dumps(made.to_json()))["event"]["roster"] == 160


def test_what_is_given_is_kept() -> None:
    made = plan(
        clients=6000, epsilon=0.5, delta=1e-6, parameters=1000, ratio=0.3, rounds=7, cohort=50, mode="secret_poisson",
        dropouts=0.0, colluders=0.0, bits=16, spare_attempts=2,
    )  # fmt: skip
    assert (made.ratio, made.measurements, made.event.count, made.event.mode) == (0.3, 300, 9, "secret_poisson")
    assert (made.rounds, made.spare_attempts, made.participations) == (7, 2, 9)
    assert (made.event.roster, made.shares) == (6000, (6000, 6000))
    assert made.bytes_up_per_client == 600 + 6000 * 145
    assert made.server == pytest.approx(made.released.pld)


def test_few_clients_all_take_part_and_are_told_when_it_is_hopeless() -> None:
    made = plan(clients=20, epsilon=8.0, delta=1e-5, parameters=PARAMETERS, rounds=50, ratio=0.05, spare_attempts=0)
    assert made.event.mode == "all"
    assert made.event.noise_multiplier == pytest.approx(4.24, abs=5e-3)
    assert made.signal_to_noise == pytest.approx(0.016, abs=5e-4)
    assert not made.feasible
    assert "little but noise" in made.verdict
    chosen = plan(clients=20, epsilon=8.0, delta=1e-5, parameters=PARAMETERS)
    assert (chosen.ratio, chosen.rounds, chosen.event.count, chosen.feasible) == (0.01, 100, 105, False)
    assert plan(clients=20, epsilon=8.0, delta=1e-5, parameters=1000).ratio == 1.0


def test_the_price_of_spare_attempts_and_the_limit_that_clients_keep() -> None:
    """Everybody in every round: noise grows as the root of the attempts, and ε for the server is that of the limit."""
    made, bare = (
        plan(clients=20, epsilon=8.0, delta=1e-5, parameters=1000, rounds=50, spare_attempts=n) for n in (10, 0)
    )
    assert made.event.noise_multiplier == pytest.approx(bare.event.noise_multiplier * (60 / 50) ** 0.5, rel=1e-3)
    assert made.noise_without_spare == bare.noise_without_spare == bare.event.noise_multiplier
    assert (made.participations, bare.participations) == (60, 50)
    assert made.server == server_epsilon(made.event.noise_multiplier, 60, 1e-5) == pytest.approx(made.released.pld)
    assert made.bytes_up == bare.bytes_up  # attempts that fail are not planned to be made


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"delta": 0.1}, "below 0.05"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"parameters": 0}, "parameters"),
        ({"ratio": 1.5}, "ratio"),
        ({"mode": "all", "cohort": 3}, "poisson_padded"),
        ({"rounds": 0}, "rounds"),
        ({"spare_attempts": -1}, "spare_attempts is -1"),
        ({"delta": 1e-13}, "at least 1e-12"),
        ({"bits": 0}, "bits"),
        ({"dropouts": 0.4}, "dropouts"),
    ],
)
def test_bad_plans_are_refused(changes: dict[str, Any], named: str) -> None:
    setting: dict[str, Any] = {"clients": 20, "epsilon": 8.0, "delta": 1e-5, "parameters": 1000}
    with pytest.raises(InvalidInput, match=named):
        plan(**(setting | changes))


def test_large_delta_on_request() -> None:
    made = plan(clients=20, epsilon=8.0, delta=0.1, parameters=1000, allow_large_delta=True)
    assert claimed_epsilon([replace(made.event)], 0.1) <= 8.0
