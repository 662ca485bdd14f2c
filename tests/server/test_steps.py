"""Server rules as pure steps: hand-computed recursions, limiting cases, sizes of state."""

from __future__ import annotations

import numpy as np
import pytest

from lowkey.codec import AdjointDecoder, ChunkedDCT, Identity, LassoDecoder, RandomSubset, RelativeToRms
from lowkey.errors import InvalidInput
from lowkey.rng import PublicStream
from lowkey.server import Averaging, ErrorFeedback


def normal(seed: int, length: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=length).astype(np.float32)


def test_plain_averaging_moves_by_the_mean() -> None:
    rule, operator = Averaging(), Identity(4)
    mean = normal(0, 4)
    step = rule.step(rule.init(operator), mean, operator, AdjointDecoder())
    np.testing.assert_array_equal(step.decoded.update, mean)
    assert step.state == {}


def test_averaging_with_momentum_by_hand() -> None:
    rule, operator = Averaging(rate=0.5, momentum=0.9), Identity(1)
    state = rule.init(operator)
    moves = []
    for value in (1.0, 2.0, -1.0):
        step = rule.step(state, np.array([value], np.float32), operator, AdjointDecoder())
        state = step.state
        moves.append(float(step.decoded.update[0]))
    # u: 1, 2.9, 1.61
    assert moves == pytest.approx([0.5, 1.45, 0.805])


def test_momentum_over_changing_subsets_lives_with_the_model() -> None:
    """Written out densely: u ← ρ u + scatter(y)."""
    rule = Averaging(rate=2.0, momentum=0.5, changing_operator=True)
    state, u = rule.init(RandomSubset(10, 0.3, PublicStream(0, "x"))), np.zeros(10)
    for number in range(4):
        operator = RandomSubset(10, 0.3, PublicStream(number, "x"))
        mean = normal(number, 3)
        step = rule.step(state, mean, operator, AdjointDecoder())
        state = step.state
        u = 0.5 * u + operator.adjoint(mean)
        np.testing.assert_allclose(step.decoded.update, 2.0 * u, rtol=1e-5)


def test_error_feedback_by_hand() -> None:
    """Against the recursion of the paper, with a decoder that applies only half of what it is given."""

    class Half:
        def decode(self, operator, measurements, noise=0.0):  # type: ignore[no-untyped-def]
            return AdjointDecoder().decode(operator, np.float32(0.5) * measurements, noise)

    rule, operator = ErrorFeedback(rate=0.35, momentum=0.9), ChunkedDCT(60, 0.5, 3, PublicStream(0, "x"))
    state = rule.init(operator)
    u = e = np.zeros(operator.num_measurements)
    for number in range(5):
        y = normal(number, operator.num_measurements)
        step = rule.step(state, y, operator, Half())
        state = step.state
        u = 0.9 * u + y
        e = e + 0.35 * u
        s = operator.adjoint((0.5 * e).astype(np.float32))
        e = e - operator.forward(s)
        np.testing.assert_allclose(step.decoded.update, s, atol=1e-5)
        np.testing.assert_allclose(state["error"], e, atol=1e-5)
        assert step.residual_norm == pytest.approx(np.linalg.norm(e), rel=1e-4)


def test_nothing_is_lost_what_is_not_applied_stays_in_the_error() -> None:
    """Sum of inputs = measured sum of applied updates + residual (ρ = 0, η = 1), whatever the decoder does."""
    rule, operator = ErrorFeedback(rate=1.0, momentum=0.0), ChunkedDCT(300, 0.2, 5, PublicStream(0, "x"))
    decoder = LassoDecoder(rule=RelativeToRms(2.0))
    state, given, applied = rule.init(operator), np.zeros(operator.num_measurements), np.zeros(300, np.float32)
    for number in range(10):
        y = normal(number, operator.num_measurements)
        step = rule.step(state, y, operator, decoder)
        state = step.state
        given += y
        applied += step.decoded.update
    np.testing.assert_allclose(operator.forward(applied) + state["error"], given, atol=1e-4)


def test_noise_in_the_error_is_known() -> None:
    """A decoder that applies nothing leaves all noise in e: its deviation, told to the decoder, is that of e itself.

    50,000 numbers: the relative error of a deviation is 0.3 %, so a tenth of it fails once in 1e200.
    """
    told = []

    class Nothing:
        def decode(self, operator, measurements, noise=0.0):  # type: ignore[no-untyped-def]
            told.append((noise, float(measurements.std())))
            return AdjointDecoder().decode(operator, 0 * measurements)

    rule, operator = ErrorFeedback(rate=0.35, momentum=0.9), Identity(50_000)
    state = rule.init(operator)
    for number in range(30):
        state = rule.step(state, 0.2 * normal(number, 50_000), operator, Nothing(), noise=0.2).state
    assert told[0][0] == pytest.approx(0.35 * 0.2)
    np.testing.assert_allclose([known for known, _ in told], [seen for _, seen in told], rtol=0.03)


def test_error_feedback_with_maps_that_share_memory() -> None:
    """Identity and adjoint return their argument; the update must survive the subtraction."""
    rule, operator = ErrorFeedback(rate=1.0, momentum=0.0), Identity(3)
    step = rule.step(rule.init(operator), np.ones(3, np.float32), operator, AdjointDecoder())
    assert step.decoded.update.tolist() == [1.0, 1.0, 1.0]
    assert not step.state["error"].any()


def test_steps_do_not_change_their_arguments() -> None:
    operator = ChunkedDCT(60, 0.5, 3, PublicStream(0, "x"))
    for rule in (ErrorFeedback(), Averaging(momentum=0.5)):
        state, mean = dict(rule.init(operator)), normal(0, operator.num_measurements)
        state = {name: array + 1 for name, array in state.items()}
        before = {name: array.copy() for name, array in state.items()}
        given = mean.copy()
        rule.step(state, mean, operator, LassoDecoder())
        np.testing.assert_array_equal(mean, given)
        for name, array in state.items():
            np.testing.assert_array_equal(array, before[name])


def test_state_is_of_compressed_size() -> None:
    operator = ChunkedDCT(10_000, 0.05, 10, PublicStream(0, "x"))
    for rule in (ErrorFeedback(), Averaging(momentum=0.9)):
        sizes = {name: array.size for name, array in rule.init(operator).items()}
        assert sizes.pop("noise", 3) == 3
        assert set(sizes.values()) == {operator.num_measurements}
    assert Averaging().init(operator) == {}


@pytest.mark.parametrize("rule", [Averaging, ErrorFeedback])
def test_bad_settings_are_refused(rule: type) -> None:
    with pytest.raises(InvalidInput, match=r"server\.rate"):
        rule(rate=0.0)
    with pytest.raises(InvalidInput, match=r"server\.momentum"):
        rule(momentum=1.0)
