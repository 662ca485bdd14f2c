"""Shares of noise: whole numbers, always to the private side."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lowkey.errors import InvalidInput
from lowkey.privacy import noise_shares


@pytest.mark.parametrize(
    ("roster", "dropouts", "colluders", "expected"),
    [
        (100, 0.1, 0.1, (90, 80)),
        (160, 0.1, 0.1, (144, 128)),
        (100, 0.0, 0.0, (100, 100)),
        (1, 0.0, 0.0, (1, 1)),
        (100, 0.07, 0.0, (93, 93)),  # 0.93 · 100 in floating point is below 93
        (100, 0.0, 0.07, (100, 93)),
        (7, 0.1, 0.1, (6, 5)),
        (3, 0.1, 0.0, (3, 3)),  # more than two thirds must stay
        (100, 0.33, 0.1, (67, 57)),
    ],
)
def test_examples(roster: int, dropouts: float, colluders: float, expected: tuple[int, int]) -> None:
    assert noise_shares(roster, dropouts=dropouts, colluders=colluders)[:2] == expected


def test_a_tenth_leaves_and_a_tenth_tells_unless_said_otherwise() -> None:
    assert noise_shares(160)[:2] == (144, 128)


@given(st.integers(1, 10_000), st.floats(0, 0.33), st.floats(0, 0.5))
def test_never_more_is_asked_than_there_is_nor_less_than_promised(
    roster: int, dropouts: float, colluders: float
) -> None:
    try:
        min_survivors, honest, *_ = noise_shares(roster, dropouts=dropouts, colluders=colluders)
    except InvalidInput:
        assume(False)
    assert 1 <= honest <= min_survivors <= roster
    assert 3 * min_survivors > 2 * roster
    assert min_survivors - honest >= colluders * roster * (1 - 1e-12)


@pytest.mark.parametrize(
    ("roster", "dropouts", "colluders", "named"),
    [
        (1, 0.1, 0.1, "no honest share"),
        (100, 0.3, 0.8, "no honest share"),
        (100, 0.34, 0.1, "below 1/3"),
        (100, 1 / 3, 0.1, "below 1/3"),
        (100, -0.1, 0.1, "dropouts"),
        (100, 0.1, 1.1, "colluders"),
        (100, math.nan, 0.1, "dropouts"),
        (0, 0.1, 0.1, "roster"),
    ],
)
def test_impossible_shares_are_refused(roster: int, dropouts: float, colluders: float, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        noise_shares(roster, dropouts=dropouts, colluders=colluders)
