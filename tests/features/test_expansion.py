"""Splines and bins, by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkey.errors import InvalidInput
from lowkey.features import Bins, Splines

NAN = float("nan")


def column(*values: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.array(values, np.float32)[:, None]


def test_a_number_between_two_knots_has_two_weights() -> None:
    mapped = Splines(knots=3, low=0, high=4)(column(0, 0.5, 2, 3, 4, -7, 9))
    expected = [[1, 0, 0], [0.75, 0.25, 0], [0, 1, 0], [0, 0.5, 0.5], [0, 0, 1], [1, 0, 0], [0, 0, 1]]
    np.testing.assert_allclose(mapped, np.array(expected), atol=1e-6)


def test_knots_at_given_places() -> None:
    mapped = Splines(knots=(0, 1, 10))(column(0.5, 5.5, 10))
    np.testing.assert_allclose(mapped, np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]]), atol=1e-6)


def test_each_column_may_have_its_own_limits() -> None:
    mapped = Splines(knots=2, low=0, high=(1, 100))(np.array([[0.25, 25.0]]))
    np.testing.assert_allclose(mapped, [[0.75, 0.25, 0.75, 0.25]], atol=1e-6)


def test_a_missing_number_has_a_column_of_its_own() -> None:
    rows = np.array([[NAN, 1.0], [0.0, NAN]])
    np.testing.assert_array_equal(
        Splines(knots=2, low=0, high=1, missing=True)(rows), [[0, 0, 1, 0, 1, 0], [1, 0, 0, 0, 0, 1]]
    )
    np.testing.assert_array_equal(Bins(edges=(0.5,), missing=True)(rows), [[0, 0, 1, 0, 1, 0], [1, 0, 0, 0, 0, 1]])


@pytest.mark.parametrize("one", [Splines(knots=2, low=0, high=1), Bins(edges=(0.5,))], ids=["splines", "bins"])
def test_a_missing_number_is_refused_unless_it_is_expected(one: Splines | Bins) -> None:
    with pytest.raises(InvalidInput, match=r"row 1 of the input of the map '.*' holds nan; .*missing=True"):
        one(column(0, NAN))


def test_infinity_is_no_missing_number() -> None:
    with pytest.raises(InvalidInput, match="row 0 of the input of the map 'bins' holds inf"):
        Bins(edges=(0.5,), missing=True)(column(float("inf"), NAN))


def test_an_edge_belongs_to_the_bin_above_it() -> None:
    mapped = Bins(edges=(0.1, 0.7))(column(-5, 0.1, 0.5, 0.7, 99))  # 0.7 in float32 lies below 0.7 in float64
    np.testing.assert_array_equal(mapped.argmax(1), [0, 1, 1, 2, 2])
    np.testing.assert_array_equal(mapped.sum(1), np.ones(5))


@given(st.lists(st.floats(-2, 3, width=32), min_size=1), st.integers(2, 9))
def test_hats_add_up_to_1_and_give_the_number_back(values: list[float], knots: int) -> None:
    mapped = Splines(knots=knots, low=-1, high=2)(column(*values))
    np.testing.assert_allclose(mapped.sum(1), 1, atol=1e-5)
    assert mapped.min() >= 0
    np.testing.assert_allclose(mapped @ np.linspace(-1, 2, knots), np.clip(values, -1, 2), atol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Splines(knots=1, low=0, high=1), "knots is 1; it must be at least 2"),
        (lambda: Splines(knots=3, low=0), "high is missing; give it with a number of knots"),
        (lambda: Splines(knots=3, low=1, high=1), "low lie below high"),
        (lambda: Splines(knots=3, low=0, high=NAN), "high holds nan"),
        (lambda: Splines(knots=3, low=(0, 0), high=(1, 1, 1)), "different lengths"),
        (lambda: Splines(knots=(1.0, 0.0)), "must ascend"),
        (lambda: Splines(knots=(1.0,)), "at least 2"),
        (lambda: Splines(knots=(1.0, 2.0), low=0), "leave low and high out"),
        (lambda: Splines(knots=2, low=0, high=(1, 1)).width(3), "limits of 2 columns, and a row has 3 numbers"),
        (lambda: Bins(edges=()), "at least one number"),
        (lambda: Bins(edges=(1, 1)), "must ascend"),
        (lambda: Bins(edges=(0, NAN)), "holds nan"),
    ],
)
def test_what_is_out_of_range_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()
