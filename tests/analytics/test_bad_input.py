"""What cannot be asked is refused with words; what a table may hold has a defined treatment."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lowkey.analytics import (
    Count,
    Frequencies,
    FrequentCodes,
    Histogram,
    Mean,
    Missingness,
    Moments,
    Quantiles,
    Question,
    Sum,
    Total,
)
from lowkey.errors import CannotContribute, InvalidInput
from tests.analytics.tables import SMALL, STARTS, objects


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Mean(name="m", limits={"age": None}), "without bounds"),  # type: ignore[dict-item]
        (lambda: Mean(name="m", limits={"age": (0, math.inf)}), "high of 'age' is inf"),
        (lambda: Sum(name="m", limits={"age": (math.nan, 1)}, most_rows=3), "low of 'age' is nan"),
        (lambda: Mean(name="m", limits={"age": (5, 5)}), "low must be below high"),
        (lambda: Mean(name="m", limits={}), "limits of m are empty"),
        (lambda: Mean(name="", limits={"age": (0, 1)}), "give the question a name"),
        (lambda: Sum(name="m", limits={"age": (0, 1)}), "set most_rows"),
        (lambda: Sum(name="m", limits={"age": (0, 1)}, weight="share"), "needs 'rows'"),
        (lambda: Count(name="m", column="age"), "set most_rows"),
        (lambda: Mean(name="m", limits={"age": (0, 1)}, most_rows=3), "weight is 'share'"),
        (lambda: Mean(name="m", limits={"age": (0, 1)}, by="sex"), "by and values go together"),
        (lambda: Mean(name="m", limits={"age": (0, 1)}, by="sex", values=("m", "m")), "name each label once"),
        (lambda: Mean(name="m", limits={"age": (0, 1)}, weight="heavy"), "weight is 'heavy'"),  # type: ignore[arg-type]
        (lambda: Missingness(name="m", of=()), "at least one column"),
        (lambda: Histogram(name="h", column="age"), "without bounds"),
        (lambda: Histogram(name="h", column="age", edges=(0, 1, math.inf)), "high of 'age' is inf"),
        (lambda: Histogram(name="h", column="age", edges=(0, math.nan, 2)), "finite and rise"),
        (lambda: Histogram(name="h", column="age", edges=(0, 1, 1)), "finite and rise"),
        (lambda: Histogram(name="h", column="age", edges=(0, 1), low=0), "one or the other"),
        (lambda: Histogram(name="h", column="age", low=0, high=1, bins=0), "bins is 0"),
        (lambda: Quantiles(name="q", column="age", low=0, high=1, at=(1.5,)), "at is 1.5"),
        (lambda: Quantiles(name="q", column="age", low=0, high=1, at=()), "at of q is empty"),
        (lambda: Frequencies(name="f", column="sex", vocabulary=()), "vocabulary of f is empty"),
        (lambda: Frequencies(name="f", column="sex", vocabulary=("m", "f", "m")), "'m' more than once"),
        (lambda: Frequencies(name="f", column="sex", vocabulary=(1,)), "not texts"),  # type: ignore[arg-type]
        (lambda: Frequencies(name="f", column="sex", vocabulary=("m",), delta=0.1), "among = 'units'"),
        (
            lambda: Frequencies(name="f", column="sex", vocabulary=("m",), among="units", weight="rows", most_rows=2),
            "every unit counts alike",
        ),
        (lambda: FrequentCodes(name="c", column="codes", alphabet="AA"), "each character once"),
        (lambda: FrequentCodes(name="c", column="codes", characters=20), "too many codes"),
        (lambda: FrequentCodes(name="c", column="codes", cells=100), "power of 2"),
        (lambda: Moments(name="m", limits={f"x{n}": (0, 1) for n in range(21)}), "at most 20"),
        (lambda: Moments(name="m", limits={"x": (0, 1)}, weight="rows", most_rows=2), "weight = 'share'"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()


MEAN = Mean(name="m", limits={"age": (0, 100)})


@pytest.mark.parametrize(
    ("question", "change", "words"),
    [
        (MEAN, {"age": objects(["20", "old", None, "1", "2", "3"])}, "not of numbers"),
        (MEAN, {"age": np.array(list("123456"))}, "not of numbers"),
        (Mean(name="m", limits={"weight": (0, 1)}), {}, "no column 'weight'"),
        (Count(name="c", column="nothing", most_rows=1), {}, "no column 'nothing'"),
        (Frequencies(name="f", column="age", vocabulary=("m",)), {}, "is of numbers"),
        (
            Frequencies(name="f", column="sex", vocabulary=("m",)),
            {"sex": objects([1] * 6)},
            "other than texts",
        ),
        (FrequentCodes(name="c", column="stay"), {}, "is of numbers"),
        (Mean(name="m", limits={"age": (0, 1)}, by="died", values=("yes",)), {}, "both be texts, or numbers"),
        (Mean(name="m", limits={"age": (0, 1)}, by="sex", values=(1,)), {}, "both be texts, or numbers"),
        (Moments(name="m", limits={"age": (0, 1), "stay": (0, 1)}), {"stay": np.ones(5)}, "differ in length"),
    ],
)
def test_a_table_that_cannot_answer_says_why(question: Question, change: dict[str, Any], words: str) -> None:
    with pytest.raises(CannotContribute, match=words):
        question.vectors({**SMALL, **change}, STARTS)


def test_words_about_a_table_quote_no_data() -> None:
    with pytest.raises(CannotContribute) as caught:
        MEAN.vectors({"age": objects(["secret"])}, np.array([0, 1]))
    assert "secret" not in str(caught.value)


def test_nan_is_missing_and_infinity_is_cut_to_the_bounds() -> None:
    rows = {"age": np.array([np.nan, np.inf, -np.inf, 50.0])}
    found = MEAN.vectors(rows, np.arange(5))
    assert not found[0].any()
    np.testing.assert_allclose(found[1:, 0] / found[1, 0], [1, -1, 0], atol=1e-12)


@pytest.mark.parametrize(
    "question",
    [
        Frequencies(name="f", column="codes", vocabulary=tuple(f"C{n}" for n in range(10_000)), among="units"),
        Frequencies(name="f", column="codes", vocabulary=("C1",), among="units"),
        FrequentCodes(name="f", column="codes"),
    ],
)
def test_ten_thousand_codes_of_one_unit(question: Question) -> None:
    codes = objects([tuple(f"C{n}" for n in range(10_000))])
    assert 0.8 < np.linalg.norm(question.vectors({"codes": codes}, np.array([0, 1]))) <= 1 + 1e-9


@pytest.mark.parametrize("starts", [[0, 3], [1, 6], [0, 4, 2, 6]])
def test_starts_that_do_not_fit_are_refused(starts: list[int]) -> None:
    with pytest.raises(InvalidInput, match="starts must begin with 0"):
        MEAN.vectors(SMALL, np.array(starts))


def test_a_sum_of_another_length_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the sum has 5 numbers"):
        MEAN.read(Total(value=np.zeros(5), noise=1.0, units=3))


def test_confirming_nothing_is_refused() -> None:
    question = FrequentCodes(name="c", column="codes")
    empty = question.read(Total(value=np.zeros(question.length), noise=0.0, units=3))
    with pytest.raises(InvalidInput, match="has no candidates"):
        question.confirm(empty)
