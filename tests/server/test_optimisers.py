"""Server optimisers as pure steps: two steps by hand, limiting cases, and noise that Adam knows of."""

from __future__ import annotations

import numpy as np
import pytest

from lowkey.errors import InvalidInput
from lowkey.server import OPTIMISERS, Adam, Momentum, Optimiser, Plain


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def steps(optimiser: Optimiser, updates: list[np.ndarray], noise: float = 0.0) -> np.ndarray:
    """The steps that a model takes along updates, one a row."""
    state, taken = optimiser.init(np.zeros_like(updates[0])), []
    for update in updates:
        state, step = optimiser.apply(state, update, noise)
        taken.append(step)
    return np.array(taken)


def random_updates(count: int = 5, length: int = 7) -> list[np.ndarray]:
    return list(np.random.default_rng(0).normal(size=(count, length)).astype(np.float32))


def adam_by_numpy(
    updates: list[np.ndarray], noise: list[float], *, rate: float, beta1: float, beta2: float, floor: float
) -> np.ndarray:
    """The definition in float64: m̂ / (√max(v̂ − n̂, 0) + floor), all three with their start corrected."""
    m, v, n, taken = np.zeros(updates[0].shape), np.zeros(updates[0].shape), 0.0, []
    for t, (update, std) in enumerate(zip(updates, noise, strict=True), start=1):
        g = update.astype(np.float64)
        m, v, n = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2, beta2 * n + (1 - beta2) * std**2
        m_hat, v_hat, n_hat = m / (1 - beta1**t), v / (1 - beta2**t), n / (1 - beta2**t)
        taken.append(rate * m_hat / (np.sqrt(np.maximum(v_hat - n_hat, 0)) + floor))
    return np.array(taken)


def test_plain_steps_by_hand() -> None:
    updates = [vector(1.0, -2.0), vector(0.5, 4.0)]
    assert steps(Plain(), updates).tolist() == [[1.0, -2.0], [0.5, 4.0]]
    assert steps(Plain(rate=0.5), updates).tolist() == [[0.5, -1.0], [0.25, 2.0]]


def test_momentum_by_hand() -> None:
    """u: 1, 2.9, 1.61."""
    taken = steps(Momentum(rate=0.5, momentum=0.9), [vector(1.0), vector(2.0), vector(-1.0)])
    assert taken.ravel().tolist() == pytest.approx([0.5, 1.45, 0.805])
    two = steps(Momentum(rate=2.0, momentum=0.5), [vector(1.0, -4.0), vector(1.0, 0.0)])
    assert two.tolist() == [[2.0, -8.0], [3.0, -4.0]]


def test_momentum_of_nothing_is_plain() -> None:
    updates = random_updates()
    np.testing.assert_array_equal(steps(Momentum(rate=0.3, momentum=0.0), updates), steps(Plain(rate=0.3), updates))


def test_adam_without_noise_by_hand() -> None:
    """First step: g / (|g| + 1). Then m = 1.25, m̂ = 1.25 / 0.75, v = 1.9375, v̂ = 1.9375 / 0.4375, and 1/8, 7/64."""
    taken = steps(Adam(rate=0.1, beta1=0.5, beta2=0.75, floor=1.0), [vector(3.0, -0.5), vector(1.0, 0.5)])
    assert taken[0].tolist() == pytest.approx([0.1 * 3 / 4, -0.1 * 0.5 / 1.5])
    second = [0.1 * (5 / 3) / ((31 / 7) ** 0.5 + 1), 0.1 * (1 / 6) / (0.25**0.5 + 1)]
    assert taken[1].tolist() == pytest.approx(second)


def test_adam_takes_the_known_noise_off_by_hand() -> None:
    """Noise of ½ has variance ¼: of 3² there remain 8.75, of ½² nothing, so that the floor alone divides."""
    taken = steps(Adam(rate=0.1, beta1=0.5, beta2=0.75, floor=1.0), [vector(3.0, -0.5), vector(1.0, 0.5)], noise=0.5)
    assert taken[0].tolist() == pytest.approx([0.1 * 3 / (8.75**0.5 + 1), -0.1 * 0.5 / 1])
    second = [0.1 * (5 / 3) / ((31 / 7 - 0.25) ** 0.5 + 1), 0.1 * (1 / 6) / 1]
    assert taken[1].tolist() == pytest.approx(second)


@pytest.mark.parametrize("noise", [[0.0] * 5, [0.3] * 5, [0.0, 1.5, 0.2, 0.0, 0.7]])
def test_adam_agrees_with_numpy(noise: list[float]) -> None:
    settings = {"rate": 0.02, "beta1": 0.9, "beta2": 0.99, "floor": 1e-2}
    optimiser, updates = Adam(**settings), random_updates()
    state = optimiser.init(updates[0])
    for update, std, expected in zip(updates, noise, adam_by_numpy(updates, noise, **settings), strict=True):
        state, step = optimiser.apply(state, update, std)
        np.testing.assert_allclose(step, expected, rtol=2e-4)


def test_adam_without_noise_is_fedadam() -> None:
    """Reddi et al. (2021), Algorithm 2, with the start of both averages corrected: v is never lowered."""
    settings = {"rate": 0.02, "beta1": 0.9, "beta2": 0.99, "floor": 1e-3}
    updates = random_updates(count=20)
    m = v = np.zeros(7)
    for t, (update, step) in enumerate(zip(updates, steps(Adam(**settings), updates), strict=True), start=1):
        m, v = 0.9 * m + 0.1 * update, 0.99 * v + 0.01 * np.square(update, dtype=np.float64)
        expected = 0.02 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-3)
        np.testing.assert_allclose(step, expected, rtol=1e-4)


def test_adam_without_memory_is_a_soft_sign() -> None:
    update = vector(3.0, -0.5, 0.0)
    for step in steps(Adam(rate=1.0, beta1=0.0, beta2=0.0, floor=1.0), [update, update]):
        assert step.tolist() == pytest.approx([3 / 4, -0.5 / 1.5, 0.0])


@pytest.mark.parametrize("excess", [1.0, 3.0])
def test_coordinates_that_are_all_noise_are_divided_by_the_floor(excess: float) -> None:
    """Their second moment is no more than the noise, and what rounding or chance leaves of it divides by no less."""
    update, floor = vector(0.2, -0.2, 1e-4, 0.0), 0.05
    for step in steps(Adam(rate=1.0, beta1=0.9, beta2=0.99, floor=floor), [update] * 50, noise=0.2 * excess):
        np.testing.assert_allclose(step[2:], update[2:] / floor, rtol=1e-4)
        assert np.isfinite(step).all()
        assert (np.abs(step) <= np.abs(update) / floor * 1.001).all()
        assert np.abs(step[0]) > 0.9 * 0.2 / floor  # where rounding left next to nothing


def test_steps_are_relative_to_the_signal_once_the_noise_is_known() -> None:
    """A signal of 1 under noise of 3: steps are the rate itself, and a third of it where nobody tells of the noise.

    The median over 2,000 coordinates after 400 updates; the seed is fixed.
    """
    rng = np.random.default_rng(0)
    updates = [(1 + 3 * rng.normal(size=2000)).astype(np.float32) for _ in range(400)]
    settings = Adam(rate=1.0, beta1=0.99, beta2=0.999, floor=1e-3)
    aware, unaware = (float(np.median(steps(settings, updates, noise=noise)[-1])) for noise in (3.0, 0.0))
    assert unaware == pytest.approx(1 / 10**0.5, rel=0.1)  # divided by the size of signal and noise
    assert aware == pytest.approx(1.0, rel=0.15)  # by that of the signal


EVERY: list[Optimiser] = [OPTIMISERS[name]() for name in OPTIMISERS]


@pytest.mark.parametrize("optimiser", EVERY)
def test_arguments_stay_as_they_were(optimiser: Optimiser) -> None:
    weights, update = vector(1.0, 2.0, 3.0), vector(0.1, 0.0, -7.0)
    state, _ = optimiser.apply(optimiser.init(weights), update, 0.1)
    before = {name: array.copy() for name, array in state.items()}
    following, step = optimiser.apply(state, update, 0.1)
    assert weights.tolist() == [1.0, 2.0, 3.0]
    np.testing.assert_array_equal(update, vector(0.1, 0.0, -7.0))
    assert state.keys() == following.keys() == before.keys()
    for name, array in state.items():
        np.testing.assert_array_equal(array, before[name])
    again, same = optimiser.apply(state, update, 0.1)
    np.testing.assert_array_equal(step, same)
    for name, array in again.items():
        np.testing.assert_array_equal(array, following[name])
    assert step.dtype == np.float32
    assert all(array.dtype == np.float32 for array in following.values())


@pytest.mark.parametrize("optimiser", EVERY)
def test_no_update_no_step(optimiser: Optimiser) -> None:
    assert not steps(optimiser, [vector(0.0, 0.0)] * 3, noise=0.1).any()


def test_what_is_remembered_is_small() -> None:
    weights = np.zeros(1000, np.float32)
    assert Plain().init(weights) == {}
    assert {name: array.size for name, array in Momentum().init(weights).items()} == {"momentum": 1000}
    sizes = {name: array.size for name, array in Adam().init(weights).items()}
    assert sizes == {"first": 1000, "second": 1000, "noise": 2}


NO_RATE = [0.0, -1.0, float("nan"), float("inf"), "1", True]
NO_MEMORY = [1.0, -0.1, 1.5, float("nan"), "0.9"]


@pytest.mark.parametrize(
    ("optimiser", "setting", "values"),
    [
        (Plain, "rate", NO_RATE),
        (Momentum, "rate", NO_RATE),
        (Momentum, "momentum", NO_MEMORY),
        (Adam, "rate", NO_RATE),
        (Adam, "beta1", NO_MEMORY),
        (Adam, "beta2", NO_MEMORY),
        (Adam, "floor", NO_RATE),
    ],
)
def test_bad_settings_are_refused(optimiser: type, setting: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(InvalidInput, match=rf"server\.{setting} is "):
            optimiser(**{setting: value})


def test_optimisers_are_named_with_the_nearest() -> None:
    assert {name: OPTIMISERS[name] for name in OPTIMISERS} == {"plain": Plain, "momentum": Momentum, "adam": Adam}
    with pytest.raises(
        InvalidInput, match=r"server\.optimiser is 'adamw'; .* plain, momentum, adam; did you mean 'adam'\?"
    ):
        OPTIMISERS["adamw"]
