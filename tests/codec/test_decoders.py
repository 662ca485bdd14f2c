"""Decoders: exact maps, the LASSO against an independent solver, its certificate, its rules for λ."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft
from sklearn.linear_model import Lasso

from lowkey.codec import AdjointDecoder, ChunkedDCT, LassoDecoder, LowPassDCT, RelativeToMax, RelativeToRms
from lowkey.codec.lasso import certificate
from lowkey.errors import InvalidInput
from lowkey.rng import PublicStream


def sparse_problem(seed: int = 0) -> tuple[ChunkedDCT, np.ndarray]:
    rng = np.random.default_rng(seed)
    operator = ChunkedDCT(240, 0.5, 4, PublicStream(seed, "x"))
    x = np.zeros(240, np.float32)
    x[rng.choice(240, 12, replace=False)] = rng.normal(size=12) * 5
    return operator, x


def test_adjoint_decoder_applies_the_adjoint() -> None:
    operator, x = sparse_problem()
    y = operator.forward(x)
    decoded = AdjointDecoder().decode(operator, y)
    np.testing.assert_array_equal(decoded.update, operator.adjoint(y))
    assert decoded.stopped == "exact"


@pytest.mark.parametrize("factor", [0.05, 0.3, 0.8])
def test_lasso_agrees_with_scikit_learn(factor: float) -> None:
    operator, x = sparse_problem()
    assert operator.block_length * operator.num_blocks == 240  # no padding, so blocks and model correspond
    y = operator.forward(x) + np.random.default_rng(1).normal(size=operator.num_measurements).astype(np.float32) * 0.05
    decoder = LassoDecoder(rule=RelativeToMax(factor), tolerance=1e-7, max_iterations=20_000)
    decoded = decoder.decode(operator, y)
    theta = scipy.fft.dct(np.eye(operator.block_length), axis=0, norm="ortho")[: operator.block_measurements]
    blocks = []
    for block in y.reshape(4, -1).astype(np.float64):
        # scikit-learn minimises 1/(2 rows) ‖y − Θs‖² + alpha ‖s‖₁
        model = Lasso(alpha=decoded.regularisation / len(block), fit_intercept=False, tol=1e-12, max_iter=100_000)
        blocks.append(model.fit(theta, block).coef_)
    reference = operator.from_blocks(np.array(blocks, np.float32))
    np.testing.assert_allclose(decoded.update, reference, rtol=1e-4, atol=1e-4)
    assert decoded.nonzeros == pytest.approx(np.count_nonzero(reference), abs=2)


def test_lasso_recovers_a_sparse_update_that_the_adjoint_cannot() -> None:
    operator, x = sparse_problem()
    y = operator.forward(x)
    lasso = LassoDecoder(rule=RelativeToMax(0.01), tolerance=1e-4, max_iterations=2000).decode(operator, y)
    linear = AdjointDecoder().decode(operator, y)
    error = np.linalg.norm(lasso.update - x) / np.linalg.norm(x)
    assert error < 0.1
    assert error < 0.2 * np.linalg.norm(linear.update - x) / np.linalg.norm(x)


def test_certificate_bounds_the_distance_to_the_optimum() -> None:
    operator, x = sparse_problem()
    y = operator.forward(x)
    rough = LassoDecoder(rule=RelativeToMax(0.1), tolerance=0.2).decode(operator, y)
    fine = LassoDecoder(rule=RelativeToMax(0.1), tolerance=1e-5, max_iterations=5000).decode(operator, y)
    assert rough.stopped == fine.stopped == "converged"
    assert rough.relative_gap <= 0.2
    assert fine.relative_gap <= 1e-5
    assert fine.iterations > rough.iterations
    assert -1e-6 <= rough.objective - fine.objective <= rough.relative_gap * rough.objective


def test_certificate_by_hand() -> None:
    """One block, Θ = I: the solution is soft thresholding, where gap is 0; at zero it is known in closed form."""
    y = np.array([[3.0, 0.5]], np.float32)
    spectrum = scipy.fft.idct(y, norm="ortho").astype(np.float32)  # Θs for s = idct(y) is y
    objective, gap = certificate(spectrum * 0, y, 1.0)
    assert objective == pytest.approx(0.5 * (9 + 0.25))
    steepest = float(np.abs(spectrum).max())
    dual = y[0] / steepest
    assert gap == pytest.approx(objective - (0.5 * 9.25 - 0.5 * float(((y[0] - dual) ** 2).sum())), rel=1e-5)


def test_iteration_limit_is_said() -> None:
    operator, x = sparse_problem()
    decoded = LassoDecoder(rule=RelativeToMax(0.001), tolerance=1e-9, max_iterations=3).decode(
        operator, operator.forward(x)
    )
    assert decoded.stopped == "iteration limit"
    assert decoded.iterations == 3


def test_no_penalty_is_the_adjoint_and_zero_stays_zero() -> None:
    operator, x = sparse_problem()
    y = operator.forward(x)
    for rule in (RelativeToRms(0.0), RelativeToMax(0.0)):
        np.testing.assert_array_equal(LassoDecoder(rule=rule).decode(operator, y).update, operator.adjoint(y))
    assert not LassoDecoder().decode(operator, y * 0).update.any()


def test_full_penalty_gives_zero() -> None:
    operator, x = sparse_problem()
    assert LassoDecoder(rule=RelativeToMax(1.0)).decode(operator, operator.forward(x)).nonzeros == 0


def test_lambda_follows_the_scale_of_the_measurements() -> None:
    operator, x = sparse_problem()
    y = operator.forward(x)
    for rule in (RelativeToRms(0.7), RelativeToMax(0.1)):
        decoder = LassoDecoder(rule=rule, tolerance=1e-6, max_iterations=5000)
        small, large = decoder.decode(operator, y), decoder.decode(operator, 1000 * y)
        assert large.regularisation == pytest.approx(1000 * small.regularisation, rel=1e-4)
        np.testing.assert_allclose(large.update, 1000 * small.update, rtol=1e-2, atol=0.5)


def test_relative_to_rms_by_hand() -> None:
    blocks = np.array([[3.0, 4.0]], np.float32)
    assert RelativeToRms(2.0)(blocks, 8) == pytest.approx(2.0 * np.sqrt(2 / 8) * np.sqrt(12.5))


def test_lasso_needs_chunks() -> None:
    with pytest.raises(InvalidInput, match=r"decoder\.kind = 'adjoint'"):
        LassoDecoder().decode(LowPassDCT(10, 0.5), np.zeros(5, np.float32))
