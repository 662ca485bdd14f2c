"""Intervals are as wide as the noise is: the true scale is accepted, nine tenths of it are rejected."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats

from lowkey.analytics import (
    Answer,
    Count,
    Estimate,
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
from lowkey.analytics.intervals import SURE, SURER
from tests.analytics.tables import exact, hospitals, objects

ROWS, STARTS = hospitals()
SIZES = np.diff(STARTS)
SHARE = np.repeat(1 / SIZES, SIZES)
"""What a row counts where every unit counts alike."""
FALSE_ALARM = 1e-4
REPEATS, NOISE = 2000, 0.5


def cell(table: str, column: str, place: int) -> Callable[[Answer], Estimate]:
    """The estimate in a row of a table."""

    def read(answer: Answer) -> Estimate:
        found = answer.tables[table]
        low, high = ("low", "high") if "low" in found else (f"{column} low", f"{column} high")
        return Estimate(found[column][place], found[low][place], found[high][place])

    return read


def single(name: str) -> Callable[[Answer], Estimate]:
    return lambda answer: answer.estimates[name]


def weighted(values: Any, weights: Any = SHARE) -> float:
    kept = ~np.isnan(values)
    return float(np.average(values[kept], weights=np.asarray(weights)[kept]))


class Case(NamedTuple):
    question: Question
    read: Callable[[Answer], Estimate]
    truth: float
    z: float = SURE
    """Deviations from the estimate to the lower end."""


AGE, STAY, DIED = np.clip(ROWS["age"], 0, 110), np.clip(ROWS["stay"], 0, 20), ROWS["died"]
HOLDS = np.array([any("C2" in codes for codes in ROWS["codes"][a:b]) for a, b in pairwise(STARTS)])
BOTH = ~np.isnan(AGE)
COVARIANCE = np.cov(AGE[BOTH], STAY[BOTH], aweights=SHARE[BOTH], ddof=0)
LIMITS = {"age": (0.0, 110.0), "stay": (0.0, 20.0)}
ENTRIES = tuple(f"C{number}" for number in range(5))
CASES = {
    "count of rows": Case(Count(name="q", column="age", most_rows=12), single("rows"), len(AGE), SURER),
    "count of units": Case(Count(name="q", column="age", most_rows=12), single("clients"), len(SIZES)),
    "sum": Case(Sum(name="q", limits=LIMITS, most_rows=12), single("age"), float(np.nansum(AGE)), SURER),
    "mean": Case(Mean(name="q", limits=LIMITS), single("age"), weighted(AGE)),
    "mean by class": Case(
        Mean(name="q", limits=LIMITS, by="died", values=(0, 1)),
        single("stay where died is 1"),
        weighted(STAY, SHARE * DIED),
    ),
    "missingness": Case(
        Missingness(name="q", of=("age", "sex")), cell("missing", "missing", 0), weighted(1.0 * np.isnan(AGE))
    ),
    "histogram": Case(
        Histogram(name="q", column="stay", edges=(0, 4, 6, 20)),
        cell("histogram", "share", 1),
        weighted(1.0 * ((STAY >= 4) & (STAY < 6))),
    ),
    "frequencies in rows": Case(
        Frequencies(name="q", column="sex", vocabulary=("f", "m")),
        cell("frequencies", "share", 1),
        weighted(1.0 * (ROWS["sex"] == "m")),
    ),
    "frequencies among units": Case(
        Frequencies(name="q", column="codes", vocabulary=ENTRIES, among="units"),
        cell("frequencies", "share", 2),
        float(HOLDS.mean()),
    ),
    "deviation": Case(
        Moments(name="q", limits={"stay": (0.0, 20.0)}),
        cell("columns", "deviation", 0),
        float(np.sqrt(weighted(STAY**2) - weighted(STAY) ** 2)),
    ),
    "correlation": Case(
        Moments(name="q", limits=LIMITS),
        cell("pairs", "correlation", 0),
        float(COVARIANCE[0, 1] / np.sqrt(COVARIANCE[0, 0] * COVARIANCE[1, 1])),
    ),
}


def totals(question: Question, repeats: int, noise: float, claimed: float, seed: int = 1) -> list[Total]:
    """Noisy sums, in which the noise is said to be ``claimed``."""
    value = question.vectors(ROWS, STARTS).sum(axis=0)
    drawn = noise * np.random.default_rng(seed).standard_normal((repeats, question.length))
    return [Total(value=value + one, noise=claimed, units=len(SIZES)) for one in drawn]


def p_value(squares: Any) -> float:
    """Of the hypothesis that numbers are squares of standard normals, from both sides."""
    below = stats.chi2(len(squares)).cdf(float(np.sum(squares)))
    return float(2 * min(below, 1 - below))


@pytest.mark.parametrize("name", CASES)
def test_the_truth_is_found_without_noise(name: str) -> None:
    case = CASES[name]
    assert case.read(exact(case.question, ROWS, STARTS)).value == pytest.approx(case.truth, rel=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_standardised_errors(name: str) -> None:
    """Chi-square of 2,000 errors in units of the interval, false alarm 1e-4; a scale of 0.9 is rejected."""
    case = CASES[name]

    def squares(claimed: float) -> list[float]:
        found = (case.read(case.question.read(total)) for total in totals(case.question, REPEATS, NOISE, claimed))
        return [((one.value - case.truth) * case.z / (one.value - one.low)) ** 2 for one in found]

    assert p_value(squares(NOISE)) > FALSE_ALARM
    assert p_value(squares(0.9 * NOISE)) < FALSE_ALARM


def test_standardised_errors_of_the_quantiles() -> None:
    """As above, of the rows below an edge against their true share, by which intervals of quantiles are made."""
    question = Quantiles(name="q", column="stay", low=0, high=20, bins=20)
    share = weighted(1.0 * (STAY < 6))

    def squares(claimed: float) -> list[float]:
        blocks = [next(question.blocks(total)) for total in totals(question, REPEATS, 5.0, claimed)]
        return [question._deviations(block, *question.whole(block), share)[6] ** 2 for block in blocks]

    assert p_value(squares(5.0)) > FALSE_ALARM
    assert p_value(squares(4.5)) < FALSE_ALARM


def test_a_code_of_one_unit_is_shown_with_the_probability_that_was_allowed() -> None:
    """10,000 noisy sums at δ = 0.2, binomial, false alarm 1e-4; a threshold for 0.9 of the noise is rejected."""
    question = Frequencies(name="q", column="codes", vocabulary=("A",), among="units", most=1, delta=0.2)
    alone = question.vectors({"codes": objects([("A",), ("B",)])}, np.arange(3)).sum(axis=0)
    noise = 5.0 * np.random.default_rng(2).standard_normal((10_000, question.length))

    def shown(claimed: float) -> float:
        seen = sum(
            bool(question.read(Total(value=alone + one, noise=claimed, units=2)).tables["frequencies"]) for one in noise
        )
        return float(stats.binomtest(seen, len(noise), 0.2, alternative="greater").pvalue)

    assert shown(5.0) > FALSE_ALARM
    assert shown(4.5) < FALSE_ALARM


def test_codes_by_chance_are_as_many_as_allowed() -> None:
    """Sums of noise alone: about 100 candidates that nobody holds, within 5 deviations; none is confirmed."""
    question = FrequentCodes(name="q", column="codes", characters=7)
    rng = np.random.default_rng(3)
    answer = question.read(Total(value=20 * rng.standard_normal(question.length), noise=20.0, units=5000))
    count = len(answer.tables["candidates"]["code"])
    assert 40 < count < 160
    confirm = question.confirm(answer)
    noise = Total(value=20 * rng.standard_normal(confirm.length), noise=20.0, units=5000)
    assert confirm.read(noise).tables["frequencies"] == {}


CUT = {
    "count": Case(Count(name="q", column="age", most_rows=7), single("rows"), len(AGE)),
    "count by class": Case(
        Count(name="q", column="age", most_rows=7, by="died", values=(0, 1)), single("rows where died is 1"), DIED.sum()
    ),
    "sum": Case(Sum(name="q", limits=LIMITS, most_rows=7), single("age"), float(np.nansum(AGE))),
    "mean of rows": Case(
        Mean(name="q", limits=LIMITS, weight="rows", most_rows=7), single("age"), weighted(AGE, np.ones(len(AGE)))
    ),
    "histogram of rows": Case(
        Histogram(name="q", column="stay", edges=(0, 4, 6, 20), weight="rows", most_rows=7),
        cell("histogram", "share", 2),
        float(np.mean(STAY >= 6)),
    ),
    "frequencies of codes": Case(
        Frequencies(name="q", column="codes", vocabulary=ENTRIES, most=2),
        cell("frequencies", "share", 0),
        weighted(np.array([1.0 * ("C0" in codes) for codes in ROWS["codes"]])),
    ),
    "frequencies among units": Case(
        Frequencies(name="q", column="codes", vocabulary=ENTRIES, among="units", most=3),
        cell("frequencies", "share", 2),
        float(HOLDS.mean()),
    ),
    "median": Case(Quantiles(name="q", column="stay", low=0, high=20, bins=40, at=(0.5,)), single("quantile 0.5"), 0.0),
    "99th percentile": Case(
        Quantiles(name="q", column="stay", low=0, high=20, bins=40, at=(0.99,)), single("quantile 0.99"), 0.0
    ),
    "median of rows": Case(
        Quantiles(name="q", column="stay", low=0, high=20, bins=40, at=(0.5,), weight="rows", most_rows=7),
        single("quantile 0.5"),
        float(np.median(STAY)),
    ),
}
ORDER = np.argsort(STAY)
BELOW = np.cumsum(SHARE[ORDER]) / SHARE.sum()
for _name, _at in (("median", 0.5), ("99th percentile", 0.99)):
    CUT[_name] = CUT[_name]._replace(truth=float(STAY[ORDER][np.searchsorted(BELOW, _at)]))


@pytest.mark.parametrize("noise", [2.0, 20.0])
@pytest.mark.parametrize("name", [*CASES, *(f"cut: {name}" for name in CUT)])
def test_intervals_hold_the_truth(name: str, noise: float) -> None:
    """At least 90 of 100; an interval that holds 95 fails with a probability below 1e-4 in 400 trials."""
    case = CUT[name.removeprefix("cut: ")] if name.startswith("cut: ") else CASES[name]
    found = [case.read(case.question.read(total)) for total in totals(case.question, 400, noise, noise)]
    assert np.mean([one.low <= case.truth <= one.high for one in found]) >= 0.9
    assert all(one.low <= one.value <= one.high for one in found)
