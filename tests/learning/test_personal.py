"""Corrections of the common model at a client: none for few rows, the client's own for many, never a harmful one."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import expit

import lowkey
from lowkey.errors import InvalidInput
from lowkey.learning import Personal, fit_line


def hospital(rows: int, shift: float, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Logits of a common model for a hospital whose log-odds are higher by ``shift``, and what happened."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-2.5, 1.3, rows)
    return logits, (rng.random(rows) < expit(logits + shift)).astype(float)


def loss(logits: NDArray[np.float64], labels: NDArray[np.float64]) -> float:
    return float(np.mean(np.logaddexp(0, logits) - labels * logits))


def test_many_rows_give_the_line_that_fits_them() -> None:
    logits, labels = hospital(40_000, 0.7)
    found = Personal(intercept=5.0, slope=5.0).fit(logits, labels, centre=-3.0)
    slope, intercept = fit_line(logits, labels > 0)
    assert 1 + found.slope == pytest.approx(slope, abs=1e-3)
    assert found.intercept - found.centre * found.slope == pytest.approx(intercept, abs=5e-3)
    np.testing.assert_allclose(found.apply(logits), slope * logits + intercept, atol=5e-3)


def test_few_rows_change_little_and_none_nothing() -> None:
    """One death in one row: at a common risk of 8 %, the step is at most σ²·0.92 of a logit."""
    one = Personal(intercept=0.5, slope=0.0).fit(np.array([-2.5]), np.array([1.0]))
    assert 0.15 < one.intercept < 0.25 * 0.93
    nobody = Personal().fit(np.zeros(0), np.zeros(0))
    assert (nobody.intercept, nobody.slope) == (0.0, 0.0)
    same = Personal(intercept=0.0, slope=0.0).fit(*hospital(500, 2.0))
    np.testing.assert_array_equal(same.apply(np.arange(3.0)), np.arange(3.0))


@pytest.mark.parametrize("rows", [20, 100, 1_000])
def test_it_helps_hospitals_that_differ_as_assumed_whatever_their_size(rows: int) -> None:
    """The mean over 300 hospitals; with no difference between them, the harm is a tenth of the gain at most."""
    rng, gains = np.random.default_rng(1), {0.0: 0.0, 0.5: 0.0}
    for deviation in gains:
        for seed in range(300):
            shift = deviation * rng.standard_normal()
            correction = Personal().fit(*hospital(rows, shift, seed), centre=-3.0)
            logits, labels = hospital(1_000, shift, 1_000 + seed)
            gains[deviation] += (loss(logits, labels) - loss(correction.apply(logits), labels)) / 300
    assert gains[0.5] > 0
    assert gains[0.0] > -0.004


def test_weights_follow_what_only_this_hospital_has() -> None:
    rng = np.random.default_rng(0)
    inputs = scipy.sparse.csr_array((rng.random((4_000, 30)) < 0.1).astype(np.float32))
    own = np.zeros(30)
    own[3] = 2.0
    logits = np.full(4_000, -2.0)
    labels = (rng.random(4_000) < expit(logits + inputs @ own)).astype(float)
    way = Personal(weights=0.5)
    found = way.fit(logits[:2_000], labels[:2_000], inputs[:2_000], centre=-2.0)
    assert found.weights is not None
    assert int(np.argmax(found.weights)) == 3
    assert found.weights[3] == pytest.approx(1.8, abs=0.6)
    plain = Personal().fit(logits[:2_000], labels[:2_000], centre=-2.0)
    after = loss(found.apply(logits[2_000:], inputs[2_000:]), labels[2_000:])
    assert after < loss(plain.apply(logits[2_000:]), labels[2_000:]) - 0.01
    with pytest.raises(InvalidInput, match="give the features"):
        found.apply(logits)


def test_bad_input() -> None:
    with pytest.raises(InvalidInput, match="slope is -1"):
        Personal(slope=-1.0)
    with pytest.raises(InvalidInput, match="2 logits but 1 labels"):
        Personal().fit(np.zeros(2), np.zeros(1))
    with pytest.raises(InvalidInput, match="finite numbers and labels 0 or 1"):
        Personal().fit(np.array([np.nan]), np.array([1.0]))
    with pytest.raises(InvalidInput, match="finite numbers and labels 0 or 1"):
        Personal().fit(np.array([0.0]), np.array([2.0]))
    with pytest.raises(InvalidInput, match="needs inputs"):
        Personal(weights=1.0).fit(np.zeros(2), np.zeros(2))
    assert lowkey.Personal is Personal
