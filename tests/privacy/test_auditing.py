"""What guesses prove: exact vectors, limiting cases, and how often a true claim would be refuted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from lowkey.errors import InvalidInput
from lowkey.privacy import server_epsilon
from lowkey.privacy.auditing import one_run_bound, one_run_p_value, rate_upper_bound, two_world_bound

DELTA = 1e-5


@pytest.mark.parametrize(("count", "trials"), [(0, 10), (3, 10), (9, 10), (40, 1000)])
def test_the_true_rate_is_exactly_where_so_few_become_unlikely(count: int, trials: int) -> None:
    assert binom.cdf(count, trials, rate_upper_bound(count, trials, 0.025)) == pytest.approx(0.025)


def test_nothing_bounds_a_rate_that_was_always_hit() -> None:
    assert rate_upper_bound(7, 7, 0.025) == 1.0
    with pytest.raises(InvalidInput, match="8 of 7"):
        rate_upper_bound(8, 7, 0.025)
    with pytest.raises(InvalidInput, match="-1 of 7"):
        rate_upper_bound(-1, 7, 0.025)
    with pytest.raises(InvalidInput, match="trials is 0"):
        rate_upper_bound(0, 0, 0.025)


def test_two_worlds_by_hand() -> None:
    bound = two_world_bound(present=1000, absent=2000, missed=300, false_alarms=500, delta=DELTA)
    missing, alarms = rate_upper_bound(300, 1000, 0.025), rate_upper_bound(500, 2000, 0.025)
    assert bound.mu == pytest.approx(norm.isf(missing) + norm.isf(alarms))
    assert bound.epsilon == pytest.approx(server_epsilon(1 / bound.mu, 1, DELTA))


def test_guessing_proves_nothing() -> None:
    assert two_world_bound(present=1000, absent=1000, missed=500, false_alarms=500, delta=DELTA).epsilon == 0.0
    assert two_world_bound(present=10, absent=10, missed=10, false_alarms=0, delta=DELTA).epsilon == 0.0
    assert one_run_bound(canaries=1000, guesses=100, correct=50, delta=DELTA).epsilon == 0.0


def test_a_true_claim_is_rarely_refuted() -> None:
    """Of 4,000 audits of a tight claim at most 5 % may refute it. Their errors are independent, so 0.28 % do."""
    mu, trials = 1 / 1.54, 20_000
    rng = np.random.default_rng(5)
    missed, alarms = rng.binomial(trials, norm.sf(mu / 2), (2, 4000))
    found = [
        two_world_bound(present=trials, absent=trials, missed=m, false_alarms=a, delta=DELTA).mu
        for m, a in zip(missed, alarms, strict=True)
    ]
    assert 0 < np.mean(np.array(found) > mu) < 0.007
    assert np.median(found) > 0.93 * mu


def test_one_run_p_value_without_delta() -> None:
    p = one_run_p_value(canaries=100, guesses=100, correct=75, epsilon=math.log(3), delta=0.0)
    assert p == pytest.approx(0.5535, abs=5e-5)


def test_one_run_p_value_as_published() -> None:
    """The loop of the paper's own listing, written out."""
    canaries, guesses, correct, epsilon, delta = 1000, 100, 75, 0.6, 1e-4
    q, below, broken = 1 / (1 + math.exp(-epsilon)), 0.0, 0.0
    for i in range(1, correct + 1):
        below += binom.pmf(correct - i, guesses, q)
        broken = max(broken, below / i)
    expected = binom.sf(correct - 1, guesses, q) + 2 * canaries * delta * broken
    found = one_run_p_value(canaries=canaries, guesses=guesses, correct=correct, epsilon=epsilon, delta=delta)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("canaries", "guesses", "correct", "delta", "epsilon"),
    [(1000, 100, 75, 1e-4, 0.6730), (10_000, 200, 180, 1e-5, 1.7716), (10_000, 200, 195, 1e-5, 2.8325)],
)
def test_one_run_bound(canaries: int, guesses: int, correct: int, delta: float, epsilon: float) -> None:
    bound = one_run_bound(canaries=canaries, guesses=guesses, correct=correct, delta=delta)
    assert bound.epsilon == pytest.approx(epsilon, abs=5e-5)


def test_more_correct_guesses_prove_more_but_never_everything() -> None:
    bounds = [one_run_bound(canaries=40_000, guesses=400, correct=v, delta=DELTA).epsilon for v in range(200, 401, 20)]
    assert bounds == sorted(bounds)
    assert bounds[0] == 0.0
    assert bounds[-1] < 4.0


def test_impossible_counts() -> None:
    with pytest.raises(InvalidInput, match="11 correct of 10 guesses"):
        one_run_bound(canaries=100, guesses=10, correct=11, delta=DELTA)
    with pytest.raises(InvalidInput, match="about 5 canaries"):
        one_run_bound(canaries=5, guesses=10, correct=1, delta=DELTA)
    with pytest.raises(InvalidInput, match="significance is 1"):
        two_world_bound(present=1, absent=1, missed=0, false_alarms=0, delta=DELTA, significance=1)
