"""Backwards through the accountant, always to the private side."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowkey.errors import InvalidInput
from lowkey.privacy import (
    Sampling,
    affordable_rounds,
    calibrate_noise,
    claimed_epsilon,
    make_sampling,
    released_epsilon,
)

DELTA = 1e-5
FASHION, MEDICAL = (make_sampling(None, population=n, cohort=100) for n in (6000, 5011))


@pytest.mark.parametrize(
    ("mode", "population", "rounds", "expected", "tolerance"),
    [
        (None, 6000, 200, 1.2245, 1.01e-4),
        (None, 5011, 100, 1.1615, 1.01e-4),
        ("fixed", 6000, 200, 2.6281, 2e-3),
        ("fixed", 5011, 100, 2.4309, 2e-3),
        ("secret_poisson", 6000, 200, 1.2244, 1.01e-4),
    ],
)
def test_noise_for_epsilon_one(
    mode: str | None, population: int, rounds: int, expected: float, tolerance: float
) -> None:
    sampling = make_sampling(mode, population=population, cohort=100)
    z = calibrate_noise(sampling, epsilon=1.0, delta=DELTA, rounds=rounds)
    assert z == pytest.approx(expected, abs=tolerance)
    assert z == round(z, 4)

    def spent(noise: float) -> float:
        return claimed_epsilon([replace(sampling.event(noise), count=rounds)], DELTA)

    assert spent(z) <= 1.0 < spent(z - 0.001)


@pytest.mark.parametrize(
    ("target", "rounds", "expected"),
    [(1, 1, 3.7306), (1, 10, 11.7973), (1, 100, 37.3063), (4, 1, 1.0812), (4, 100, 10.8116), (8, 10, 1.8981)],
)
def test_noise_without_sampling(target: float, rounds: int, expected: float) -> None:
    everybody = make_sampling("all", population=6000, cohort=6000)
    z = calibrate_noise(everybody, epsilon=target, delta=DELTA, rounds=rounds)
    assert z == pytest.approx(expected, abs=1.01e-4)
    assert claimed_epsilon([replace(everybody.event(z), count=rounds)], DELTA) <= target


def test_large_targets_need_little_noise_and_impossible_ones_are_refused() -> None:
    everybody = make_sampling("all", population=10, cohort=10)
    assert calibrate_noise(everybody, epsilon=1000.0, delta=DELTA, rounds=1) <= 0.1
    with pytest.raises(InvalidInput, match="epsilon is 0"):
        calibrate_noise(everybody, epsilon=0.0, delta=DELTA, rounds=1)
    with pytest.raises(InvalidInput, match="raise epsilon"):
        calibrate_noise(everybody, epsilon=1e-12, delta=1e-12, rounds=1)


def test_affordable_rounds() -> None:
    assert affordable_rounds(FASHION.event(1.54), epsilon=1.0, delta=DELTA) == 431
    assert affordable_rounds(MEDICAL.event(1.49), epsilon=1.0, delta=DELTA) == 264
    before = [replace(FASHION.event(1.54), count=400)]
    assert affordable_rounds(FASHION.event(1.54), epsilon=1.0, delta=DELTA, spent=before) == 31
    assert affordable_rounds(FASHION.event(1.54), epsilon=0.05, delta=DELTA) == 0
    assert affordable_rounds(FASHION.event(1.54), epsilon=0.5, delta=DELTA, spent=before) == 0


@pytest.mark.parametrize("target", [0.0, -1.0, float("nan")])
def test_no_rounds_are_counted_for_an_impossible_target(target: float) -> None:
    with pytest.raises(InvalidInput, match="epsilon is"):
        affordable_rounds(FASHION.event(1.54), epsilon=target, delta=DELTA)


@pytest.mark.parametrize(("sampling", "noise", "rounds"), [(FASHION, 1.54, 199), (MEDICAL, 1.49, 99)])
def test_the_papers_accountant_affords_one_round_less_than_the_paper_runs(
    sampling: Sampling, noise: float, rounds: int
) -> None:
    event = sampling.event(noise)
    within, beyond = (released_epsilon([replace(event, count=n)], DELTA).paper for n in (rounds, rounds + 1))
    assert within is not None
    assert beyond is not None
    assert within <= 1.0 < beyond


def test_affordable_rounds_end_where_rosters_overflow() -> None:
    """With coins, overflowing rosters eat δ: ε is infinite from some round on, and no round after it is afforded."""
    event = replace(make_sampling("secret_poisson", population=600, cohort=10, roster=60).event(8.0), roster=90)
    rounds = affordable_rounds(event, epsilon=50.0, delta=DELTA)
    assert rounds > 0
    assert claimed_epsilon([replace(event, count=rounds + 1)], DELTA) == float("inf")
