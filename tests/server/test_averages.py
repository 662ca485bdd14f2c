"""Averages of the iterates: by hand, against the arithmetic mean, and limiting cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lowkey.errors import InvalidInput
from lowkey.server import AVERAGES, Averaging, ExponentialAverage, LastIterate, TailAverage


def released_after(averaging: Averaging, iterates: list[np.ndarray]) -> list[np.ndarray]:
    """What would be released after each round."""
    state, released = averaging.init(np.zeros_like(iterates[0])), []
    for number, weights in enumerate(iterates, start=1):
        state = averaging.add(state, weights, number)
        released.append(averaging.released(state, weights))
    return released


def iterates(*values: float) -> list[np.ndarray]:
    return [np.array([value, -value], np.float32) for value in values]


def test_the_last_iterate_is_itself() -> None:
    weights = iterates(4.0, 8.0, 1.0)
    released = released_after(LastIterate(), weights)
    assert all(one is other for one, other in zip(released, weights, strict=True))
    assert LastIterate().init(weights[0]) == {}


def test_exponential_average_by_hand() -> None:
    """4; ¾·4 + ¼·8 = 5; ¾·5 + ¼·1 = 4."""
    released = released_after(ExponentialAverage(decay=0.75), iterates(4.0, 8.0, 1.0))
    assert [weights.tolist() for weights in released] == [[4.0, -4.0], [5.0, -5.0], [4.0, -4.0]]


def test_exponential_average_that_forgets_at_once_is_the_last_iterate() -> None:
    weights = iterates(4.0, 8.0, 1.0)
    np.testing.assert_array_equal(released_after(ExponentialAverage(decay=0.0), weights), weights)


@pytest.mark.parametrize("start", [1, 3, 7])
def test_tail_average_is_the_arithmetic_mean_from_its_start(start: int) -> None:
    weights = list(np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32))
    for number, released in enumerate(released_after(TailAverage(start=start), weights), start=1):
        counted = weights[start - 1 : number] or weights[number - 1 : number]  # before its start, the last iterate
        np.testing.assert_allclose(released, np.mean(counted, axis=0, dtype=np.float64), rtol=1e-5, atol=1e-7)


def test_tail_average_by_hand() -> None:
    """Rounds 2, 3 and 4 count: 8, then (8 + 1)/2, then (8 + 1 + 6)/3."""
    released = released_after(TailAverage(start=2), iterates(4.0, 8.0, 1.0, 6.0))
    assert [weights[0] for weights in released] == [4.0, 8.0, 4.5, 5.0]


def test_noise_that_rounds_do_not_share_cancels_out() -> None:
    """100 iterates of deviation 1: their mean has 0.1; 10,000 coordinates know that to 0.7 %, and 5 % is 7 of these."""
    noisy = list(np.random.default_rng(0).normal(size=(100, 10_000)).astype(np.float32))
    assert released_after(TailAverage(), noisy)[-1].std() == pytest.approx(0.1, rel=0.05)
    assert released_after(LastIterate(), noisy)[-1].std() == pytest.approx(1.0, rel=0.05)


EVERY: list[Averaging] = [AVERAGES[name]() for name in AVERAGES]


@pytest.mark.parametrize("averaging", EVERY)
def test_an_average_of_equals_is_what_they_are(averaging: Averaging) -> None:
    weights = iterates(3.0, 3.0, 3.0, 3.0)
    np.testing.assert_array_equal(released_after(averaging, weights), weights)


@pytest.mark.parametrize("averaging", EVERY)
def test_before_the_first_round_the_first_weights_are_released(averaging: Averaging) -> None:
    (weights,) = iterates(3.0)
    np.testing.assert_array_equal(averaging.released(averaging.init(weights), weights), weights)


@pytest.mark.parametrize("averaging", EVERY)
def test_arguments_stay_as_they_were(averaging: Averaging) -> None:
    first, second, third = iterates(4.0, 8.0, 1.0)
    state = averaging.add(averaging.init(first), first, 1)
    before = {name: array.copy() for name, array in state.items()}
    later = averaging.add(averaging.add(state, second, 2), third, 3)
    for name, array in state.items():
        np.testing.assert_array_equal(array, before[name])
    np.testing.assert_array_equal([first, second, third], iterates(4.0, 8.0, 1.0))
    assert averaging.released(later, third).dtype == np.float32
    assert all(array.dtype == np.float32 for array in later.values())


@pytest.mark.parametrize("decay", [1.0, -0.1, float("nan"), "0.9", True])
def test_a_decay_out_of_range_is_refused(decay: Any) -> None:
    with pytest.raises(InvalidInput, match=r"averaging\.decay"):
        ExponentialAverage(decay=decay)


@pytest.mark.parametrize("start", [0, -3, 1.5, True])
def test_a_start_before_the_first_round_is_refused(start: Any) -> None:
    with pytest.raises(InvalidInput, match=r"averaging\.start"):
        TailAverage(start=start)


def test_averages_are_named_with_the_nearest() -> None:
    assert {name: AVERAGES[name] for name in AVERAGES} == {
        "last": LastIterate,
        "exponential": ExponentialAverage,
        "tail": TailAverage,
    }
    with pytest.raises(
        InvalidInput, match=r"averaging\.kind is 'tails'; .* last, exponential, tail; did you mean 'tail'\?"
    ):
        AVERAGES["tails"]
