"""In the compressed domain: the mean as it is, or error feedback; hand-computed recursions, noise, sizes of state."""

from __future__ import annotations

import numpy as np
import pytest

from lowkey.codec import AdjointDecoder, ChunkedOperator, Decoded, LassoDecoder, SubsetOperator, WholeOperator
from lowkey.errors import InvalidInput
from lowkey.protocols import Decoder, Operator
from lowkey.rng import PublicStream
from lowkey.server import GATHERS, Decode, DecodeMean, ErrorFeedback, Gather, Momentum
from lowkey.types import FloatArray


def normal(seed: int, length: int) -> FloatArray:
    return np.random.default_rng(seed).normal(size=length).astype(np.float32)


def decode_with(operator: Operator, decoder: Decoder | None = None) -> Decode:
    chosen = decoder or AdjointDecoder()
    return lambda measurements, noise: chosen.decode(operator, measurements, noise)


class Recorder:
    """A decoder that applies a share of what it is given, and notes what it was told."""

    def __init__(self, operator: Operator, share: float = 1.0) -> None:
        self.operator, self.share = operator, np.float32(share)
        self.told: list[tuple[np.ndarray, float]] = []

    def __call__(self, measurements: np.ndarray, noise: float) -> Decoded:
        self.told.append((measurements.copy(), noise))
        return AdjointDecoder().decode(self.operator, self.share * measurements)


def test_the_mean_is_decoded_as_it_is() -> None:
    rule, operator = DecodeMean(), ChunkedOperator(60, 0.5, 3, PublicStream(0, "x"))
    mean = normal(0, operator.num_measurements)
    gathered = rule.gather(rule.init(operator), mean, operator, decode_with(operator), 0.0)
    np.testing.assert_array_equal(gathered.decoded.update, operator.adjoint(mean))
    assert (gathered.state, gathered.noise, gathered.residual_norm) == ({}, 0.0, 0.0)


def test_the_decoder_is_told_of_the_noise_in_the_mean() -> None:
    operator = WholeOperator(4)
    decode, mean = Recorder(operator), normal(0, 4)
    gathered = DecodeMean().gather({}, mean, operator, decode, 0.25)
    ((seen, noise),) = decode.told
    np.testing.assert_array_equal(seen, mean)
    assert (noise, gathered.noise) == (0.25, 0.25)


def test_momentum_over_changing_subsets_lives_with_the_model() -> None:
    """Written out densely: u ← ρ u + scatter(y)."""
    rule, optimiser = DecodeMean(), Momentum(rate=2.0, momentum=0.5)
    state, u = optimiser.init(np.zeros(10, np.float32)), np.zeros(10)
    for number in range(4):
        operator = SubsetOperator(10, 0.3, PublicStream(number, "x"))
        mean = normal(number, 3)
        gathered = rule.gather({}, mean, operator, decode_with(operator), 0.0)
        state, step = optimiser.apply(state, gathered.decoded.update, gathered.noise)
        u = 0.5 * u + operator.adjoint(mean)
        np.testing.assert_allclose(step, 2.0 * u, rtol=1e-5)


def test_error_feedback_by_hand() -> None:
    """Against the recursion of the paper, with a decoder that applies only half of what it is given."""
    rule, operator = ErrorFeedback(rate=0.35, momentum=0.9), ChunkedOperator(60, 0.5, 3, PublicStream(0, "x"))
    state, decode = rule.init(operator), Recorder(operator, share=0.5)
    u = e = np.zeros(operator.num_measurements)
    for number in range(5):
        y = normal(number, operator.num_measurements)
        gathered = rule.gather(state, y, operator, decode, 0.0)
        state = gathered.state
        u = 0.9 * u + y
        e = e + 0.35 * u
        np.testing.assert_allclose(decode.told[-1][0], e, atol=1e-5)
        s = operator.adjoint((0.5 * e).astype(np.float32))
        e = e - operator.forward(s)
        np.testing.assert_allclose(gathered.decoded.update, s, atol=1e-5)
        np.testing.assert_allclose(state["momentum"], u, atol=1e-5)
        np.testing.assert_allclose(state["error"], e, atol=1e-5)
        assert gathered.residual_norm == pytest.approx(np.linalg.norm(e), rel=1e-4)


def test_error_feedback_without_memory_is_the_mean() -> None:
    """At rate 1 without momentum, a decoder that applies everything leaves nothing over."""
    rule, operator = ErrorFeedback(rate=1.0, momentum=0.0), WholeOperator(5)
    state = rule.init(operator)
    for number in range(3):
        mean = normal(number, 5)
        gathered = rule.gather(state, mean, operator, decode_with(operator), 0.3)
        state = gathered.state
        np.testing.assert_array_equal(gathered.decoded.update, mean)
        assert gathered.residual_norm == 0.0


def test_nothing_is_lost_what_is_not_applied_stays_in_the_error() -> None:
    """Sum of inputs = measured sum of applied updates + residual (ρ = 0, η = 1), whatever the decoder does."""
    rule, operator = ErrorFeedback(rate=1.0, momentum=0.0), ChunkedOperator(300, 0.2, 5, PublicStream(0, "x"))
    decode = decode_with(operator, LassoDecoder(lambda_factor=2.0))
    state, given, applied = rule.init(operator), np.zeros(operator.num_measurements), np.zeros(300, np.float32)
    for number in range(10):
        y = normal(number, operator.num_measurements)
        gathered = rule.gather(state, y, operator, decode, 0.0)
        state = gathered.state
        given += y
        applied += gathered.decoded.update
    np.testing.assert_allclose(operator.forward(applied) + state["error"], given, atol=1e-4)


def test_noise_in_the_error_is_known() -> None:
    """A decoder that applies nothing leaves all noise in e: its deviation, told to the decoder, is that of e itself.

    50,000 numbers: the relative error of a deviation is 0.3 %, so a tenth of it fails once in 1e200.
    """
    rule, operator = ErrorFeedback(rate=0.35, momentum=0.9), WholeOperator(50_000)
    state, decode = rule.init(operator), Recorder(operator, share=0.0)
    for number in range(30):
        gathered = rule.gather(state, np.float32(0.2) * normal(number, 50_000), operator, decode, 0.2)
        state = gathered.state
        assert gathered.noise == decode.told[-1][1]
    assert decode.told[0][1] == pytest.approx(0.35 * 0.2)
    np.testing.assert_allclose([noise for _, noise in decode.told], [e.std() for e, _ in decode.told], rtol=0.03)


def test_error_feedback_with_maps_that_share_memory() -> None:
    """The whole update and the adjoint return their argument; the update must survive the subtraction."""
    rule, operator = ErrorFeedback(rate=1.0, momentum=0.0), WholeOperator(3)
    gathered = rule.gather(rule.init(operator), np.ones(3, np.float32), operator, decode_with(operator), 0.0)
    assert gathered.decoded.update.tolist() == [1.0, 1.0, 1.0]
    assert not gathered.state["error"].any()


RULES: list[Gather] = [GATHERS[name]() for name in GATHERS]


@pytest.mark.parametrize("rule", RULES)
def test_gathering_does_not_change_its_arguments(rule: Gather) -> None:
    operator = ChunkedOperator(60, 0.5, 3, PublicStream(0, "x"))
    state = {name: array + 1 for name, array in rule.init(operator).items()}
    before = {name: array.copy() for name, array in state.items()}
    mean = normal(0, operator.num_measurements)
    given = mean.copy()
    gathered = rule.gather(state, mean, operator, decode_with(operator, LassoDecoder()), 0.1)
    np.testing.assert_array_equal(mean, given)
    for name, array in state.items():
        np.testing.assert_array_equal(array, before[name])
    assert gathered.state.keys() == before.keys()
    assert all(array.dtype == np.float32 for array in gathered.state.values())


def test_state_is_of_compressed_size() -> None:
    operator = ChunkedOperator(10_000, 0.05, 10, PublicStream(0, "x"))
    sizes = {name: array.size for name, array in ErrorFeedback().init(operator).items()}
    assert sizes == {"momentum": operator.num_measurements, "error": operator.num_measurements, "noise": 3}
    assert DecodeMean().init(operator) == {}


def test_who_adds_up_rounds_says_so() -> None:
    assert (DecodeMean.adds_rounds, ErrorFeedback.adds_rounds) == (False, True)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"rate": 0.0}, r"gather\.rate"),
        ({"rate": -1.0}, r"gather\.rate"),
        ({"rate": float("nan")}, r"gather\.rate"),
        ({"rate": float("inf")}, r"gather\.rate"),
        ({"rate": "1"}, r"gather\.rate"),
        ({"momentum": 1.0}, r"gather\.momentum"),
        ({"momentum": -0.1}, r"gather\.momentum"),
        ({"momentum": float("nan")}, r"gather\.momentum"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, float], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        ErrorFeedback(**settings)


def test_rules_are_named_with_the_nearest() -> None:
    assert {name: GATHERS[name] for name in GATHERS} == {"decode": DecodeMean, "error-feedback": ErrorFeedback}
    with pytest.raises(
        InvalidInput, match=r"gather\.kind is 'feedback'; .* decode, error-feedback; did you mean 'error-"
    ):
        GATHERS["feedback"]
