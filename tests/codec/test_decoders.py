"""Decoders: exact maps, the LASSO with its certificate and its λ, the layered prior, bad input."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.fft
from hypothesis import given, settings
from hypothesis import strategies as st

from lowkey.codec import (
    DECODERS,
    AdjointDecoder,
    ChunkedOperator,
    LassoDecoder,
    LayeredDecoder,
    LowPassOperator,
    chunked_dct,
)
from lowkey.errors import InvalidInput, NotConverged
from lowkey.protocols import Decoder
from lowkey.rng import PublicStream


def sparse_problem(seed: int = 0, signs: bool = False) -> tuple[ChunkedOperator, np.ndarray]:
    rng = np.random.default_rng(seed)
    operator = ChunkedOperator(240, 0.5, 4, PublicStream(seed, "x"), PublicStream(seed, "signs") if signs else None)
    x = np.zeros(240, np.float32)
    x[rng.choice(240, 12, replace=False)] = rng.normal(size=12) * 5
    return operator, x


def correlations(operator: ChunkedOperator, y: np.ndarray) -> np.ndarray:
    """Θᵀy of every block."""
    blocks = y.reshape(operator.num_blocks, operator.block_measurements)
    return scipy.fft.idct(blocks, n=operator.block_length, norm="ortho")


def lasso(operator: ChunkedOperator, y: np.ndarray, lam: float, **settings: Any) -> LassoDecoder:
    """The decoder whose λ for these measurements is ``lam``."""
    ratio = operator.block_measurements / operator.block_length
    typical = np.sqrt(ratio) * np.sqrt(np.mean(np.square(y, dtype=np.float64)))
    return LassoDecoder(lambda_factor=float(lam / typical), **settings)


def lasso_below_largest(operator: ChunkedOperator, y: np.ndarray, share: float, **settings: Any) -> LassoDecoder:
    """λ relative to the smallest at which nothing is recovered."""
    return lasso(operator, y, share * np.abs(correlations(operator, y)).max(), **settings)


LAYERS = (40, 960, 9000)


def layered_problem(seed: int = 0, signs: bool = False) -> tuple[ChunkedOperator, np.ndarray]:
    """Three layers whose coordinates differ in size by a factor of ten each."""
    rng = np.random.default_rng(seed)
    flips = PublicStream(seed, "signs") if signs else None
    operator = ChunkedOperator(sum(LAYERS), 0.2, 5, PublicStream(seed, "x"), flips)
    scales = np.repeat([1.0, 0.1, 0.01], LAYERS)
    return operator, (rng.normal(size=sum(LAYERS)) * scales).astype(np.float32)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def test_adjoint_decoder_applies_the_adjoint() -> None:
    operator, x = sparse_problem()
    y = operator.forward(x)
    decoded = AdjointDecoder().decode(operator, y)
    np.testing.assert_array_equal(decoded.update, operator.adjoint(y))
    assert decoded.stopped == "exact"


@pytest.mark.parametrize("signs", [False, True])
def test_lasso_recovers_a_sparse_update_that_the_adjoint_cannot(signs: bool) -> None:
    operator, x = sparse_problem(signs=signs)
    y = operator.forward(x)
    lasso = lasso_below_largest(operator, y, 0.01, tolerance=1e-4).decode(operator, y)
    linear = AdjointDecoder().decode(operator, y)
    error = np.linalg.norm(lasso.update - x) / np.linalg.norm(x)
    assert error < 0.1
    assert error < 0.2 * np.linalg.norm(linear.update - x) / np.linalg.norm(x)


def test_certificate_bounds_the_distance_to_the_optimum() -> None:
    operator, x = sparse_problem()
    y = operator.forward(x)
    rough, fine = (lasso_below_largest(operator, y, 0.1, tolerance=t).decode(operator, y) for t in (0.2, 1e-5))
    assert rough.stopped == fine.stopped == "converged"
    assert rough.relative_gap <= 0.2
    assert fine.relative_gap <= 1e-5
    assert -1e-5 * fine.objective <= rough.objective - fine.objective <= rough.relative_gap * rough.objective


@pytest.mark.parametrize("decoder", [LassoDecoder(), LayeredDecoder()])
def test_decoding_in_groups_of_blocks_changes_nothing(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, x = layered_problem()
    monkeypatch.setattr(chunked_dct, "_GROUP", 1)
    one_by_one, _ = layered_problem()
    assert len(whole.groups) == 1
    assert len(one_by_one.groups) == one_by_one.num_blocks == 5
    y = whole.forward(x)
    np.testing.assert_allclose(one_by_one.forward(x), y, atol=1e-6)
    np.testing.assert_allclose(one_by_one.adjoint(y), whole.adjoint(y), atol=1e-6)
    at_once, streamed = (decoder.decode(operator, y, layers=LAYERS) for operator in (whole, one_by_one))
    assert streamed.objective == pytest.approx(at_once.objective, rel=3e-3)
    assert cosine(streamed.update, at_once.update) > 0.999


@pytest.mark.parametrize(
    "decoder",
    [
        LassoDecoder(lambda_factor=0.003, tolerance=1e-12, max_iterations=2),
        LayeredDecoder(tolerance=1e-12, max_iterations=2),
    ],
)
def test_a_decoder_that_does_not_converge_says_so_and_warns_once(decoder: Decoder) -> None:
    operator, x = sparse_problem()
    y = operator.forward(x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        results = [decoder.decode(operator, (1 + k) * y + k, layers=(100, 140)) for k in range(3)]
    assert all(decoded.stopped == "iteration limit" for decoded in results)
    assert results[0].iterations == 2
    assert results[0].relative_gap > 1e-12
    assert np.isfinite(results[0].update).all()
    assert [w.category for w in caught] == [NotConverged]
    assert "decoder.max_iterations" in str(caught[0].message)


def test_no_penalty_is_the_adjoint() -> None:
    operator, x = sparse_problem()
    y = operator.forward(x)
    decoded = LassoDecoder(lambda_factor=0.0).decode(operator, y)
    np.testing.assert_array_equal(decoded.update, operator.adjoint(y))
    assert (decoded.stopped, decoded.regularisation) == ("exact", 0.0)


def test_full_penalty_gives_zero() -> None:
    operator, x = sparse_problem()
    y = operator.forward(x)
    decoded = lasso_below_largest(operator, y, 1.0001).decode(operator, y)
    assert decoded.nonzeros == 0
    assert decoded.stopped == "converged"
    assert lasso_below_largest(operator, y, 0.9).decode(operator, y).nonzeros > 0


def test_lambda_follows_the_scale_of_the_measurements() -> None:
    operator, x = sparse_problem()
    y = operator.forward(x)
    for factor in (0.1, 0.7):
        decoder = LassoDecoder(lambda_factor=factor, tolerance=1e-5)
        small, large = decoder.decode(operator, y), decoder.decode(operator, 1000 * y)
        assert large.regularisation == pytest.approx(1000 * small.regularisation, rel=1e-4)
        np.testing.assert_allclose(large.update, 1000 * small.update, rtol=1e-2, atol=0.5)


def test_lambda_by_hand() -> None:
    """λ = factor · √r · rms(y), with r = 2/8 and rms(3, 4) = √12.5."""
    operator = ChunkedOperator(8, 0.25, 1, PublicStream(0, "x"))
    decoded = LassoDecoder(lambda_factor=2.0).decode(operator, np.array([3.0, 4.0], np.float32), noise=5.0)
    assert decoded.regularisation == pytest.approx(2.0 * 0.5 * np.sqrt(12.5))
    two = ChunkedOperator(16, 0.25, 2, PublicStream(0, "x"))  # one λ for all blocks
    y = np.array([3.0, 4.0, 0.0, 0.0], np.float32)
    assert LassoDecoder().decode(two, y).regularisation == pytest.approx(0.5 * 2.5)


def test_lambda_at_factor_one_is_the_typical_correlation() -> None:
    operator, x = sparse_problem()
    y = operator.forward(x)
    typical = np.sqrt(np.mean(correlations(operator, y) ** 2))
    assert LassoDecoder().decode(operator, y).regularisation == pytest.approx(typical, rel=1e-5)


@pytest.mark.parametrize("factor", [-1.0, float("nan"), float("inf"), "1", True])
def test_factors_out_of_range_are_refused(factor: Any) -> None:
    with pytest.raises(InvalidInput, match=r"decoder\.lambda_factor"):
        LassoDecoder(lambda_factor=factor)


@pytest.mark.parametrize("signs", [False, True])
def test_layered_beats_adjoint_and_lasso_where_layers_differ(signs: bool) -> None:
    operator, x = layered_problem(signs=signs)
    y = operator.forward(x)
    layered = LayeredDecoder().decode(operator, y, layers=LAYERS)
    assert layered.stopped == "converged"
    assert layered.relative_gap <= 1e-3
    assert cosine(layered.update, x) > 0.95
    assert cosine(layered.update, x) > cosine(LassoDecoder().decode(operator, y).update, x)
    assert cosine(layered.update, x) > 2 * cosine(AdjointDecoder().decode(operator, y).update, x)


def test_layered_solves_its_normal_equations() -> None:
    """Against dense linear algebra, with the prior it estimated and a known noise."""
    operator, x = layered_problem()
    y = operator.forward(x) + np.random.default_rng(1).normal(size=operator.num_measurements).astype(np.float32) * 0.05
    decoder = LayeredDecoder(tolerance=1e-8)
    blocks = y.reshape(operator.num_blocks, -1)
    variances, noise = decoder.prior(operator, blocks, 0.05, LAYERS)
    assert noise == pytest.approx(0.05**2)
    theta = scipy.fft.dct(np.eye(operator.block_length), axis=0, norm="ortho")[: operator.block_measurements]
    prior = np.append(np.repeat(variances[:-1], LAYERS), 0.0)[operator.coordinates(slice(None))]
    expected = [v * (theta.T @ np.linalg.solve(theta * v @ theta.T + noise * np.eye(len(theta)), b))
                for v, b in zip(prior, blocks, strict=True)]  # fmt: skip
    found = decoder.decode(operator, y, noise=0.05, layers=LAYERS)
    np.testing.assert_allclose(found.update, operator.assemble([np.array(expected)]), atol=1e-3)


def test_layered_estimates_the_variances_of_layers() -> None:
    """Averaged over problems: within 15 % for the layers that hold the energy, which is three standard errors."""
    estimates = []
    for seed in range(40):
        operator, x = layered_problem(seed)
        y = operator.forward(x)
        estimates.append(LayeredDecoder().prior(operator, y.reshape(5, -1), 0.0, LAYERS)[0])
    mean = np.mean(estimates, axis=0)
    assert mean[0] == pytest.approx(1.0, rel=0.15)
    assert mean[1] == pytest.approx(0.01, rel=0.5)  # under the leakage of the first layer
    assert mean[3] == 0.0  # padding is known to be zero


def test_layered_shrinks_under_known_noise() -> None:
    operator, x = layered_problem()
    y = operator.forward(x)
    quiet, noisy = (LayeredDecoder().decode(operator, y, v, LAYERS).update for v in (0.0, 1.0))
    assert np.linalg.norm(noisy) < 0.5 * np.linalg.norm(quiet)


def test_layered_must_know_the_layers() -> None:
    operator, x = layered_problem()
    for layers in ((), (40, 960)):
        with pytest.raises(InvalidInput, match="for_layers"):
            LayeredDecoder().decode(operator, operator.forward(x), layers=layers)


EVERY = [DECODERS[name]() for name in DECODERS]
OF_BLOCKS = [decoder for decoder in EVERY if decoder.needs_blocks]


def test_decoders_are_named_with_the_nearest() -> None:
    assert {name: DECODERS[name] for name in DECODERS} == {
        "adjoint": AdjointDecoder,
        "lasso": LassoDecoder,
        "layered": LayeredDecoder,
    }
    assert [type(decoder) for decoder in OF_BLOCKS] == [LassoDecoder, LayeredDecoder]
    with pytest.raises(InvalidInput, match=r"decoder\.kind is 'laso'; .* adjoint, lasso, layered; did .* 'lasso'\?"):
        DECODERS["laso"]


@pytest.mark.parametrize("decoder", EVERY)
def test_decoders_change_neither_measurements_nor_their_own_earlier_answers(decoder: Decoder) -> None:
    operator, x = sparse_problem()
    y = operator.forward(x)
    before = y.copy()
    first = decoder.decode(operator, y, noise=0.1, layers=(100, 140))
    kept = first.update.copy()
    decoder.decode(operator, 2 * y, noise=0.2, layers=(100, 140))
    np.testing.assert_array_equal(y, before)
    np.testing.assert_array_equal(first.update, kept)
    assert first.update.dtype == np.float32
    assert first.nonzeros == np.count_nonzero(first.update) > 0


@pytest.mark.parametrize("decoder", EVERY)
def test_zero_stays_zero(decoder: Decoder) -> None:
    operator, x = sparse_problem()
    decoded = decoder.decode(operator, operator.forward(0 * x), layers=(240,))
    assert not decoded.update.any()
    assert decoded.relative_gap == 0.0
    assert decoded.stopped in ("exact", "converged")


@pytest.mark.parametrize("decoder", OF_BLOCKS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_are_refused(decoder: Decoder, bad: float) -> None:
    operator, x = sparse_problem()
    y = operator.forward(x)
    y[3] = bad
    with pytest.raises(InvalidInput, match="measurements hold"):
        decoder.decode(operator, y, layers=(240,))


@pytest.mark.parametrize("decoder", OF_BLOCKS)
def test_decoders_need_chunks(decoder: Decoder) -> None:
    with pytest.raises(InvalidInput, match=r"decoder\.kind = 'adjoint'"):
        decoder.decode(LowPassOperator(10, 0.5), np.zeros(5, np.float32), layers=(10,))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), n=st.integers(1, 200), chunks=st.integers(1, 5), share=st.floats(0.001, 1.0))
def test_any_shape_decodes(seed: int, n: int, chunks: int, share: float) -> None:
    """A single chunk, m = n, m = 1 and whatever lies between."""
    chunks = min(n, chunks)
    operator = ChunkedOperator(n, max(share, min(1.0, chunks / n)), chunks, PublicStream(seed, "x"))
    x = np.random.default_rng(seed).normal(size=n).astype(np.float32)
    y = operator.forward(x)
    for decoder in (LassoDecoder(), LayeredDecoder()):
        decoded = decoder.decode(operator, y, layers=(n // 2, n - n // 2) if n > 1 else (1,))
        assert decoded.update.shape == (n,)
        assert decoded.stopped in ("converged", "exact")


def test_all_measurements_are_soft_thresholded_by_the_lasso_and_returned_by_the_layered_decoder() -> None:
    """m = n: the problem is separable. Prime factors are small, so there is no padding."""
    operator = ChunkedOperator(240, 1.0, 1, PublicStream(0, "x"))
    assert operator.num_measurements == 240
    x = np.random.default_rng(0).normal(size=240).astype(np.float32)
    y = operator.forward(x)
    sparse = lasso(operator, y, 0.5, tolerance=1e-6).decode(operator, y).update
    np.testing.assert_allclose(sparse, x - np.clip(x, -0.5, 0.5), atol=1e-4)
    np.testing.assert_allclose(LayeredDecoder().decode(operator, y, layers=(240,)).update, x, rtol=0.05)


def test_one_measurement_per_block_is_explained() -> None:
    operator = ChunkedOperator(240, 0.01, 4, PublicStream(0, "x"))
    assert operator.num_measurements == 4
    y = np.array([1.0, -2.0, 3.0, 0.0], np.float32)
    for decoder in (lasso_below_largest(operator, y, 0.01), LayeredDecoder()):
        explained = operator.forward(decoder.decode(operator, y, layers=(240,)).update)
        np.testing.assert_allclose(explained, y, atol=0.15)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"tolerance": 0.0}, r"decoder\.tolerance"),
        ({"tolerance": float("nan")}, r"decoder\.tolerance"),
        ({"max_iterations": 0}, r"decoder\.max_iterations"),
        ({"max_iterations": 2.5}, r"decoder\.max_iterations"),
    ],
)
@pytest.mark.parametrize("decoder", [LassoDecoder, LayeredDecoder])
def test_settings_out_of_range_are_refused(decoder: type, settings_: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        decoder(**settings_)
