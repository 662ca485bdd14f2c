"""Maps of norms and columns, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from lowkey.errors import InvalidInput
from lowkey.features import Centred, Constant, GroupNorm, UnitNorm


def test_groups_get_mean_0_and_variance_1() -> None:
    rows = np.array([[1, 3, 10, 10], [-4, 4, 0, 2]], np.float32)
    np.testing.assert_allclose(GroupNorm(groups=2)(rows), [[-1, 1, 0, 0], [-1, 1, -1, 1]], atol=1e-4)
    np.testing.assert_allclose(GroupNorm(groups=1, epsilon=3.0)(rows[:1, :2]), [[-0.5, 0.5]], rtol=1e-6)


def test_groups_of_an_image_are_its_neighbouring_channels() -> None:
    rng = np.random.default_rng(0)
    images = rng.random((2, 6, 3, 3), np.float32)
    mapped = GroupNorm(groups=3)(images).reshape(2, 3, 18)
    pairs = images.reshape(2, 3, 18).astype(np.float64)
    expected = (pairs - pairs.mean(2, keepdims=True)) / np.sqrt(pairs.var(2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(mapped, expected, atol=1e-5)


def test_groups_must_have_equal_length() -> None:
    with pytest.raises(InvalidInput, match="3969 numbers cannot be divided into 26 groups of equal length; 27 groups"):
        GroupNorm(groups=26).width(3969)


def test_rows_get_one_norm_and_zeros_stay_zeros() -> None:
    rows = np.array([[3, 4], [0, 0], [0.6, 0.8]], np.float32)
    np.testing.assert_allclose(UnitNorm(norm=10)(rows), [[6, 8], [0, 0], [6, 8]], rtol=1e-6)
    np.testing.assert_allclose(UnitNorm(norm=2.5, at_most=True)(rows), [[1.5, 2.0], [0.0, 0.0], [0.6, 0.8]], rtol=1e-6)


def test_rows_of_large_numbers_get_their_norm_too() -> None:
    np.testing.assert_allclose(UnitNorm()(np.array([[3e30, 4e30]], np.float32)), [[0.6, 0.8]], rtol=1e-6)


@pytest.mark.parametrize("one", [UnitNorm(), UnitNorm(norm=0.7, at_most=True), Constant(value=2.0)], ids=str)
def test_sparse_rows_give_the_same_and_stay_sparse(one: UnitNorm | Constant) -> None:
    dense = np.random.default_rng(1).standard_normal((9, 30)).astype(np.float32)
    dense[np.abs(dense) < 1] = 0
    dense[4] = 0
    mapped = one(scipy.sparse.csr_matrix(dense))
    assert mapped.dtype == np.float32
    assert mapped.nnz < mapped.shape[0] * mapped.shape[1]  # which only a sparse array has
    np.testing.assert_allclose(mapped.toarray(), one(dense), rtol=1e-6)


def test_an_entry_that_is_there_twice_counts_once_in_a_norm() -> None:
    twice = scipy.sparse.coo_array((np.array([1.0, 2.0, 4.0]), ([0, 0, 0], [1, 1, 2])), shape=(1, 3))
    np.testing.assert_allclose(UnitNorm()(twice).toarray(), [[0, 0.6, 0.8]], rtol=1e-6)


def test_a_constant_is_the_last_column() -> None:
    np.testing.assert_array_equal(Constant(value=7)(np.array([[1.0], [2.0]])), [[1, 7], [2, 7]])


def test_centred_and_scaled() -> None:
    rows = np.array([[1.0, 10.0], [3.0, 30.0]])
    np.testing.assert_array_equal(Centred(mean=[1, 20])(rows), [[0, -10], [2, 10]])  # type: ignore[arg-type]
    np.testing.assert_array_equal(Centred(mean=(1, 20), scales=(2, 10))(rows), [[0, -1], [1, 1]])


def test_an_array_is_a_list_of_means() -> None:
    mean = np.array([0.25, 2.0], np.float32)
    assert Centred(mean=mean) == Centred(mean=(0.25, 2.0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GroupNorm(groups=0), "groups is 0"),
        (lambda: GroupNorm(epsilon=0.0), "epsilon is 0"),
        (lambda: UnitNorm(norm=-1), "norm is -1"),
        (lambda: Constant(value=float("nan")), "value holds nan; it must be finite"),
        (lambda: Centred(mean=()), "at least one number"),
        (lambda: Centred(mean=3.0), "list of numbers"),  # type: ignore[arg-type]
        (lambda: Centred(mean=(1.0,), scales=(0.0,)), "a scale is 0"),
        (lambda: Centred(mean=(1.0,), scales=(1.0, 2.0)), "1 means and 2 scales"),
        (lambda: Centred(mean=(1.0, 2.0)).width(3), "2 means, and a row has 3 numbers"),
    ],
)
def test_what_is_out_of_range_is_refused(make: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()  # type: ignore[operator]
