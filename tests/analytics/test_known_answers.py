"""Answers without noise, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from lowkey.analytics import (
    QUESTIONS,
    Count,
    Frequencies,
    FrequentCodes,
    Histogram,
    Mean,
    Missingness,
    Moments,
    Quantiles,
    Sum,
    digest_of,
)
from tests.analytics.tables import SMALL, STARTS, exact, objects


def test_count() -> None:
    found = exact(Count(name="n", column="age", most_rows=5)).estimates
    assert (found["rows"].value, found["clients"].value) == pytest.approx((6, 3))
    assert (found["rows"].low, found["rows"].high) == pytest.approx((6, 6))


def test_count_allows_for_rows_beyond_the_most() -> None:
    """The unit of 3 rows counts as 2, so that 5 are counted; that there may be one more is known."""
    found = exact(Count(name="n", column="age", most_rows=2)).estimates["rows"]
    assert (found.value, found.low, found.high) == pytest.approx((5, 5, 6))


def test_count_by_class() -> None:
    found = exact(Count(name="n", column="age", most_rows=5, by="died", values=(0, 1))).estimates
    assert found["rows where died is 0"].value == pytest.approx(3)
    assert found["rows where died is 1"].value == pytest.approx(2)


def test_sum_and_sum_by_class() -> None:
    """Ages are cut to 100, and the missing one adds nothing."""
    assert exact(Sum(name="s", limits={"age": (0, 100)}, most_rows=4)).estimates["age"].value == pytest.approx(310)
    found = exact(Sum(name="s", limits={"age": (0, 100), "stay": (0, 9)}, most_rows=4, by="died", values=(1,)))
    assert found.estimates["age where died is 1"].value == pytest.approx(130)
    assert found.estimates["stay where died is 1"].value == pytest.approx(12)


def test_mean_counts_units_alike_or_rows() -> None:
    """Of units: ages 30, 60, and 90 and 100 of three rows; of rows: 310/5."""
    units = exact(Mean(name="m", limits={"age": (0, 100)})).estimates["age"]
    assert units.value == pytest.approx((30 + 60 + 190 / 3) / (1 + 1 + 2 / 3))
    rows = exact(Mean(name="m", limits={"age": (0, 100)}, weight="rows", most_rows=3)).estimates["age"]
    assert rows.value == pytest.approx(62)


def test_mean_of_rows_that_were_cut_off_may_be_anything_in_bounds() -> None:
    """One row of six is beyond the most: it may be anything between 0 and 10."""
    found = exact(Mean(name="m", limits={"stay": (0, 10)}, weight="rows", most_rows=2)).estimates["stay"]
    capped = (1 + 3 + 2 + (5 + 9 + 4) * 2 / 3) / 5
    assert found.value == pytest.approx(capped)
    assert found.low == pytest.approx(capped * 5 / 6)
    assert found.high == pytest.approx(capped * 5 / 6 + 10 / 6)
    assert found.low <= np.mean(SMALL["stay"]) <= found.high


def test_missingness() -> None:
    found = exact(Missingness(name="x", of=("age", "sex", "codes"))).tables["missing"]
    assert found["column"] == ["age", "sex", "codes"]
    assert found["missing"] == pytest.approx([1 / 9, 1 / 9, 1 / 3])


def test_histogram_with_outside_in_the_ends_and_in_bins_of_its_own() -> None:
    """The last edge is in the last bin, an inner edge in the bin above it."""
    ends = exact(Histogram(name="h", column="age", edges=(0, 40, 90)))
    present = 1 + 1 + 2 / 3
    assert ends.tables["histogram"]["share"] == pytest.approx([0.5 / present, (0.5 + 1 + 2 / 3) / present])
    assert ends.estimates["missing"].value == pytest.approx(1 / 9)
    own = exact(Histogram(name="h", column="age", edges=(40, 60, 90), outside="own")).tables["histogram"]
    assert own["from"] == [None, 40, 60, 90]
    assert own["share"] == pytest.approx(np.array([0.5, 0.5, 1 + 1 / 3, 1 / 3]) / present)


def test_quantiles() -> None:
    """Of 0, 1, …, 99 in bins of 1 the interval is the bin in which the quantile is."""
    rows, starts = {"x": np.arange(100.0)}, np.array([0, 100])
    question = Quantiles(name="q", column="x", low=0, high=100, bins=100, at=(0.05, 0.5, 0.95))
    found = exact(question, rows, starts).estimates
    for at, one in zip(question.at, found.values(), strict=True):
        assert one.value == pytest.approx(100 * at)
        assert 100 * at - 1 <= one.low <= one.value <= one.high <= 100 * at + 1


def test_frequencies_in_rows() -> None:
    found = exact(Frequencies(name="f", column="sex", vocabulary=("m", "f"))).tables["frequencies"]
    assert found["what"] == ["entry", "entry", "other", "missing"]
    assert found["share"] == pytest.approx(np.array([0.5 + 1 / 3, 0.5 + 1, 1 / 3, 1 / 3]) / 3)


def test_frequencies_of_codes_in_rows_and_among_units() -> None:
    vocabulary = ("A1", "B2", "C3")
    rows = exact(Frequencies(name="f", column="codes", vocabulary=vocabulary, most=4)).tables["frequencies"]
    assert rows["share"] == pytest.approx(np.array([1 + 1 / 3, 0.5 + 1 / 3, 2 / 3, 1 / 3, 1]) / 3)
    units = exact(Frequencies(name="f", column="codes", vocabulary=vocabulary, among="units")).tables["frequencies"]
    assert units["share"] == pytest.approx(np.array([2, 2, 1, 1, 1]) / 3)
    assert units["low"] == pytest.approx(units["high"])


def test_frequencies_among_units_by_class() -> None:
    """Three units have rows of those who lived, two of those who died."""
    question = Frequencies(name="f", column="codes", vocabulary=("A1", "C3"), among="units", by="died", values=(0, 1))
    found = exact(question).tables["frequencies"]
    assert found["died"] == [0] * 4 + [1] * 4
    assert found["share"] == pytest.approx([1 / 3, 1 / 3, 2 / 3, 1 / 3, 1, 0, 0, 0])


def test_a_unit_with_too_many_entries_is_scaled_and_the_interval_allows_for_it() -> None:
    question = Frequencies(name="f", column="codes", vocabulary=("A1", "B2", "C3"), among="units", most=2)
    found = exact(question).tables["frequencies"]
    true = np.array([2, 2, 1, 1, 1]) / 3
    assert (np.array(found["low"]) <= true + 1e-12).all()
    assert (np.array(found["high"]) >= true - 1e-12).all()
    assert np.array(found["high"]) - found["low"] == pytest.approx([(1 - 0.5**0.5) / 3] * 5)


def test_moments() -> None:
    found = exact(Moments(name="m", limits={"age": (0, 120), "stay": (0, 10)})).tables
    weights = np.array([1 / 2, 1 / 2, 1, 1 / 3, 1 / 3])
    age, stay = (SMALL[name][[0, 1, 2, 4, 5]] for name in ("age", "stay"))
    cov = np.cov(age, stay, aweights=weights, ddof=0)
    assert found["columns"]["mean"] == pytest.approx([np.average(one, weights=weights) for one in (age, stay)])
    assert found["columns"]["deviation"] == pytest.approx(np.sqrt(np.diag(cov)))
    assert found["pairs"]["correlation"] == pytest.approx([cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1])])


def test_codes_are_spelled_without_a_list() -> None:
    """Codes of different lengths, one of them the beginning of another; those of a single unit are not named."""
    common = ("A", "A1", "B2X", "ZZ9ZZ9")
    codes = objects([(*common, f"ONE{number}") for number in range(30)])
    question = FrequentCodes(name="codes", column="codes", characters=6)
    answer = exact(question, {"codes": codes}, np.arange(31))
    assert sorted(answer.tables["candidates"]["code"]) == sorted(common)
    confirmed = exact(question.confirm(answer), {"codes": codes}, np.arange(31)).tables["frequencies"]
    assert sorted(confirmed["entry"]) == sorted(common)
    assert confirmed["share"] == pytest.approx([1.0] * 4)


def test_codes_by_class() -> None:
    codes, sex = objects([("A1",), ("B2",)] * 10), objects(["m", "f"] * 10)
    question = FrequentCodes(name="codes", column="codes", characters=3, by="sex", values=("m", "f"))
    found = exact(question, {"codes": codes, "sex": sex}, np.arange(0, 21, 2)).tables["candidates"]
    assert list(zip(found["sex"], found["code"], strict=True)) == [("m", "A1"), ("f", "B2")]


def test_no_candidates_from_no_codes() -> None:
    question = FrequentCodes(name="codes", column="codes")
    assert exact(question, {"codes": objects([()])}, np.array([0, 1])).tables["candidates"] == {}


def test_every_kind_has_a_digest_that_its_settings_decide() -> None:
    assert set(QUESTIONS) >= {"count", "sum", "mean", "missingness", "histogram", "quantiles", "frequencies", "codes"}
    one, two = (Mean(name="m", limits={"age": [0, high]}) for high in (100, 110))  # type: ignore[dict-item]
    assert digest_of("mean", one) == digest_of("mean", Mean(name="m", limits={"age": (0, 100)}))
    assert digest_of("mean", one) != digest_of("mean", two)


def test_a_unit_without_rows_has_zeros_and_one_row_is_enough() -> None:
    found = Mean(name="m", limits={"stay": (0, 10)}).vectors(SMALL, STARTS)
    assert not found[1].any()
    assert np.linalg.norm(found[2]) > 0
