"""Projection and hashing: known answers, norms on average, sparse rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from lowkey.errors import InvalidInput
from lowkey.features import Hashing, Projection
from lowkey.types import FloatArray

KNOWN_PROJECTION = [0.41048077, 5.7735028, 1.7874545]
KNOWN_HASHES = [[0, 1, 0, 0], [-1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, -1], [1, 0, 0, 0], [0, 0, -1, 0]]


def rows_of(count: int, numbers: int, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).standard_normal((count, numbers)).astype(np.float32)


def test_projections_have_orthogonal_rows_of_one_length() -> None:
    matrix = Projection(size=24, seed=5)(np.eye(63, dtype=np.float32)).T.astype(np.float64)
    np.testing.assert_allclose(matrix @ matrix.T, 63 / 24 * np.eye(24), atol=1e-5)


def test_a_projection_is_the_same_on_every_machine() -> None:
    """Recorded once: signs and places must never change, or features of two releases would not fit."""
    mapped = Projection(size=3, seed=7)(np.arange(1, 9, dtype=np.float32)[None])
    np.testing.assert_allclose(mapped, [KNOWN_PROJECTION], rtol=1e-5)


def test_hashing_is_the_same_on_every_machine() -> None:
    """Recorded once, like the projection."""
    np.testing.assert_array_equal(Hashing(size=4, seed=7)(np.eye(6, dtype=np.float32)), KNOWN_HASHES)


@pytest.mark.parametrize("make", [Projection, Hashing])
def test_inner_products_are_kept_on_average(make: type[Projection] | type[Hashing]) -> None:
    """The mean over 600 seeds is within 5 standard errors; with other seeds this would fail about once in 10⁶ times.

    A map whose lengths are wrong by a tenth is found.
    """
    for number in range(3):
        x, y = rows_of(2, 60, seed=number)
        x, y = x / np.linalg.norm(x), (x + y) / np.linalg.norm(x + y)
        pairs = [make(size=12, seed=seed)(np.stack([x, y])) for seed in range(600)]
        for products, true in (([a @ a for a, _ in pairs], 1.0), ([a @ b for a, b in pairs], float(x @ y))):
            mean, error = np.mean(products), np.std(products) / np.sqrt(len(products))
            assert abs(mean - true) < 5 * error
            assert abs(1.21 * mean - true) > 5 * error


def test_a_projection_must_make_rows_shorter() -> None:
    with pytest.raises(InvalidInput, match="size is 8, and a row has only 8 numbers"):
        Projection(size=8).width(8)
    assert Projection(size=8).width(9) == 8


@pytest.mark.parametrize("one", [Projection(size=16), Hashing(size=16)], ids=str)
def test_sparse_rows_give_what_dense_rows_give(one: Projection | Hashing) -> None:
    dense = rows_of(50, 90)
    dense[np.abs(dense) < 1] = 0
    mapped = one(scipy.sparse.csr_array(dense))
    stays_sparse = isinstance(one, Hashing)
    assert bool(scipy.sparse.issparse(mapped)) == stays_sparse
    whole = mapped.toarray() if stays_sparse else mapped
    np.testing.assert_allclose(whole, one(dense), atol=1e-5)
    assert whole.dtype == np.float32


def test_hashing_adds_signed_columns() -> None:
    """Each column goes to one place with one sign, whatever the number of columns."""
    alone = Hashing(size=5)(np.eye(40, dtype=np.float32))
    assert (np.abs(alone).sum(1) == 1).all()
    assert set(np.unique(alone)) == {-1.0, 0.0, 1.0}
    assert (np.abs(alone).sum(0) > 0).all()
    np.testing.assert_array_equal(Hashing(size=5)(np.eye(7, dtype=np.float32)), alone[:7])
    rows = rows_of(3, 40)
    np.testing.assert_allclose(Hashing(size=5)(rows), rows @ alone, atol=1e-5)


def test_sparse_features_that_overflow_are_refused() -> None:
    rows = np.zeros((3, 40), np.float32)
    rows[2] = 3e38 * Hashing(size=1)(np.eye(40, dtype=np.float32))[:, 0]  # so that all have the same sign in their sum
    with pytest.raises(InvalidInput, match="row 2 of the output of the map 'hashing' holds inf"):
        Hashing(size=1)(scipy.sparse.csr_array(rows))


def test_another_seed_is_another_map() -> None:
    rows = rows_of(2, 30)
    assert not np.allclose(Projection(size=9, seed=1)(rows), Projection(size=9, seed=2)(rows))
    assert not np.allclose(Hashing(size=9, seed=1)(rows), Hashing(size=9, seed=2)(rows))


@pytest.mark.parametrize("make", [Projection, Hashing])
def test_settings_out_of_range_are_refused(make: type[Projection] | type[Hashing]) -> None:
    with pytest.raises(InvalidInput, match="size is 0; it must be at least 1"):
        make(size=0)
    with pytest.raises(InvalidInput, match="seed is -1; it must be at least 0"):
        make(size=1, seed=-1)
