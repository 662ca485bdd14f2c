"""Evaluation at the clients: known answers, the right noise, honest intervals, groups, and rows that cannot be used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import chi2

from lowkey.analytics import QUESTIONS, Answer, ScoreQuestion, Total, digest_of, error_of, well_binned
from lowkey.errors import CannotContribute, InvalidInput
from lowkey.learning.metrics import auroc, fit_line

Rows = dict[str, NDArray[Any]]


def drawn(count: int, seed: int = 0, prevalence: float = 0.06) -> Rows:
    """Logits of calibrated risks, the labels that they make, and a group."""
    rng = np.random.default_rng(seed)
    score = rng.normal(logit(prevalence) - 0.7, 1.4, count)
    label = (rng.random(count) < expit(score)).astype(float)
    return {"score": score, "label": label, "sex": rng.choice(np.array(["f", "m"], object), count)}


def each(rows: Rows) -> NDArray[np.intp]:
    return np.arange(len(rows["score"]) + 1)


def total_of(question: ScoreQuestion, rows: Rows, starts: NDArray[np.intp], noise: float = 0.0, seed: int = 0) -> Total:
    summed = question.vectors(rows, starts).sum(0)
    value = summed + noise * np.random.default_rng(seed).standard_normal(len(summed))
    return Total(value=value, noise=noise, units=len(starts) - 1, unit="person")


def answer(question: ScoreQuestion, rows: Rows, noise: float = 0.0, seed: int = 0) -> Answer:
    return question.read(total_of(question, rows, each(rows), noise, seed))


@pytest.mark.parametrize("bins", [6, 10, 40])
def test_without_noise_the_answers_are_those_of_the_rows(bins: int) -> None:
    """What bins hide is small: 0.004 in the AUROC, 0.06 in the slope; what happens at an edge is exact."""
    rows = drawn(20_000)
    scores, positive = rows["score"], rows["label"] > 0
    question = ScoreQuestion(bins=bins)
    found = answer(question, rows).estimates
    alarm = scores > question.centre
    exact = {
        "rows": 20_000,
        "positives": positive.sum(),
        "prevalence": positive.mean(),
        "sensitivity": alarm[positive].mean(),
        "specificity": 1 - alarm[~positive].mean(),
        "accuracy": (alarm == positive).mean(),
        "balanced_accuracy": (alarm[positive].mean() + 1 - alarm[~positive].mean()) / 2,
    }
    for name, truth in exact.items():
        assert found[name].value == pytest.approx(float(truth), rel=1e-9), name
    slope, intercept = fit_line(scores, positive)
    near = {
        "auroc": (auroc(scores, positive), 0.004),
        "calibration_slope": (slope, 0.06),
        "calibration_intercept": (intercept, 0.15),
        "brier": (float(np.mean((expit(scores) - positive) ** 2)), 0.001),
    }
    for name, (truth, error) in near.items():
        assert found[name].value == pytest.approx(truth, abs=error), name
        assert found[name].low < truth < found[name].high, name


def test_tables_count_exactly() -> None:
    rows = drawn(5_000)
    scores, positive = rows["score"], rows["label"] > 0
    tables = answer(ScoreQuestion(bins=8), rows).tables
    for score, sensitivity, specificity in zip(
        *(tables["thresholds"][name] for name in ("score", "sensitivity", "specificity")), strict=True
    ):
        assert sensitivity == pytest.approx((scores[positive] >= score).mean())
        assert specificity == pytest.approx((scores[~positive] < score).mean())
    assert sum(tables["calibration"]["rows"]) == pytest.approx(5_000)
    assert tables["calibration"]["predicted"] == sorted(tables["calibration"]["predicted"])
    for predicted, low, high in zip(
        *(tables["calibration"][name] for name in ("predicted", "observed_low", "observed_high")), strict=True
    ):
        assert low - 0.03 < predicted < high + 0.03  # the risks are true ones


def test_clients_with_many_rows_give_the_pooled_value() -> None:
    """800 clients of 50 rows are hardly cut; the answer is that of all rows together."""
    rows, starts = drawn(40_000), np.arange(0, 40_001, 50)
    question = ScoreQuestion(rows=50, bins=10)
    found = question.read(total_of(question, rows, starts)).estimates
    truth = auroc(rows["score"], rows["label"] > 0)
    assert found["auroc"].value == pytest.approx(truth, abs=0.004)
    assert found["prevalence"].low < rows["label"].mean() < found["prevalence"].high


def test_what_was_cut_is_told() -> None:
    """One client has most rows."""
    rows, starts = drawn(4_000), np.concatenate([[0], np.arange(3_000, 4_001, 20)])
    question = ScoreQuestion(rows=20, bins=8)
    found = question.read(total_of(question, rows, starts))
    assert "was cut" in found.notes[-1]
    assert found.estimates["rows"].value < 2_000
    plain = answer(question, rows)
    assert len(plain.notes) == 1
    widths = [a.estimates["auroc"].high - a.estimates["auroc"].low for a in (found, plain)]
    assert widths[0] > widths[1]


def spread(claimed: float, actual: float) -> tuple[float, int]:
    """Squared noise in the bins of 400 answers, over the variance that is claimed, and how many there are.

    Each has a positive's and a negative's noise.
    """
    rows, question = drawn(300), ScoreQuestion(bins=8)
    clean = answer(question, rows).tables["calibration"]["rows"]
    noisy = []
    for seed in range(400):
        total = total_of(question, rows, each(rows), actual, seed)
        noisy.append(question.read(replace(total, noise=claimed)).tables["calibration"]["rows"])
    variance = sum((claimed / scale) ** 2 for scale in question.scales)
    return float(np.sum((np.array(noisy) - clean) ** 2 / variance)), 400 * len(clean)


def test_the_scale_of_noise_is_what_the_total_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """χ² with 3,200 degrees: the true scale passes, 0.9 of it does not; one seed in a million is a false alarm."""
    monkeypatch.setattr("lowkey.analytics.scores._REPLICATES", 2)
    found, count = spread(claimed=4.0, actual=4.0)
    assert chi2.ppf(5e-7, count) < found < chi2.ppf(1 - 5e-7, count)
    found, count = spread(claimed=4.0, actual=3.6)
    assert found < chi2.ppf(5e-7, count)


def test_intervals_of_counts_are_as_wide_as_noise_and_sampling() -> None:
    """The deviation that 400 draws show is right to 3.5 %; a false alarm is 4.5 of these away."""
    rows, question = drawn(6_000), ScoreQuestion(bins=8)
    positives = rows["label"].sum()
    found = answer(question, rows, noise=6.0).estimates["positives"]
    deviation = np.sqrt(8 * (6.0 / question.scales[1]) ** 2 + positives)
    assert (found.high - found.low) / (2 * 1.96) == pytest.approx(deviation, rel=0.16)


def errors(noise: float, actual: float, count: int) -> float:
    """Mean absolute error of the AUROC of persons, of whom 6 % are positive."""
    rows = drawn(6_000)
    question = ScoreQuestion(bins=8)
    clean = answer(question, rows).estimates["auroc"].value
    found = []
    for seed in range(count):
        total = total_of(question, rows, each(rows), actual, seed)
        found.append(question.read(Total(value=total.value, noise=noise, units=6_000)).estimates["auroc"].value - clean)
    return float(np.mean(np.abs(found)))


def test_the_expected_error_is_the_measured_one() -> None:
    positives = float(drawn(6_000)["label"].sum())
    expected = error_of(ScoreQuestion(bins=8), units=6_000, positives=positives, noise=4.0)
    assert errors(4.0, 4.0, 100) == pytest.approx(expected, rel=0.3)  # its deviation is 8 %, and shapes differ


@pytest.mark.parametrize(("noise", "clients"), [(4.0, None), (12.0, 200)])
def test_intervals_cover_the_truth(noise: float, clients: int | None) -> None:
    """At least 90 of 100: the value on the same rows, and the value in the population, with new rows each time."""
    population = drawn(400_000, seed=999)
    world = auroc(population["score"], population["label"] > 0)
    on_rows = in_population = 0
    for seed in range(100):
        rows = drawn(6_000, seed)
        starts = each(rows) if clients is None else np.linspace(0, 6_000, clients + 1).astype(np.intp)
        question = ScoreQuestion(rows=1 if clients is None else 30)
        question = well_binned(question, units=len(starts) - 1, positives=300, noise=noise)
        found = question.read(total_of(question, rows, starts, noise, seed)).estimates["auroc"]
        on_rows += found.low <= auroc(rows["score"], rows["label"] > 0) <= found.high
        in_population += found.low <= world <= found.high
    assert on_rows >= 90
    assert in_population >= 90


def test_groups_are_compared_and_small_ones_hidden() -> None:
    rows = drawn(12_000)
    rows["sex"][:40] = "x"
    better = np.where(rows["sex"] == "f", rows["score"] + 2 * rows["label"], rows["score"])
    rows["score"] = better
    question = ScoreQuestion(bins=8, groups=("sex=f", "sex=m", "sex=x"))
    table = answer(question, rows).tables["groups"]
    assert table["group"] == ["sex=f", "sex=m", "sex=x"]
    for place, value in enumerate("fm"):
        inside = rows["sex"] == value
        truth = auroc(better[inside], rows["label"][inside] > 0)
        assert table["auroc"][place] == pytest.approx(truth, abs=0.01)
        assert table["auroc_low"][place] < truth < table["auroc_high"][place]
        assert table["rows"][place] == pytest.approx(inside.sum())
    assert {table[name][2] for name in table if name != "group"} == {None}
    noisy = answer(question, rows, noise=1_000.0).tables["groups"]
    assert noisy["auroc"] == [None] * 3  # 6,000 rows, but the noise may be as much
    texts = dict(rows, sex=np.ones(12_000))
    with pytest.raises(CannotContribute, match="not of texts"):
        question.vectors(texts, each(rows))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.booleans(), st.sampled_from("fmx")), min_size=1, max_size=60),
    st.sampled_from([1.0, 1.5, 2.0, 40.0]),
    st.integers(2, 12),
    st.booleans(),
)
def test_no_vector_is_longer_than_one(
    cases: list[tuple[float, bool, str]], typical: float, bins: int, grouped: bool
) -> None:
    scores, labels, sexes = zip(*cases, strict=True)
    rows = {"score": np.array(scores), "label": np.array(labels, float), "sex": np.array(sexes, object)}
    question = ScoreQuestion(rows=typical, bins=bins, groups=("sex=f", "sex=m") if grouped else ())
    for starts in (each(rows), np.array([0, len(cases)]), np.array([0, 0, len(cases) // 2, len(cases)])):
        vectors = question.vectors(rows, starts)
        assert vectors.shape == (len(starts) - 1, question.length)
        assert np.linalg.norm(vectors, axis=1).max() <= 1 + 1e-12
    assert not question.vectors(rows, np.array([0, 0, len(cases)]))[0].any()


def test_rows_that_cannot_be_used() -> None:
    question = ScoreQuestion()
    good = drawn(3)
    for change, words in (
        ({"score": np.array([0.0, np.nan, 1.0])}, "scores hold NaN"),
        ({"score": np.array([0.0, np.inf, 1.0])}, "scores hold NaN"),
        ({"score": np.array(["a", "b", "c"], object)}, "not of numbers"),
        ({"label": np.array([0.0, 1.0, 2.0])}, "labels must be 0 or 1"),
        ({"label": np.array([0.0, 1.0, np.nan])}, "labels must be 0 or 1"),
        ({"label": np.array(["yes", "no", "no"], object)}, "not of numbers"),
    ):
        with pytest.raises(CannotContribute, match=words):
            question.vectors({**good, **change}, each(good))
    with pytest.raises(CannotContribute, match="no column 'label'"):
        question.vectors({"score": good["score"]}, each(good))


@pytest.mark.parametrize("count", [0, 1, 50])
def test_nothing_to_judge_by(count: int) -> None:
    """No rows, one row, one class: a defined answer that says so, with noise and without."""
    rows = {"score": np.zeros(count), "label": np.zeros(count)}
    for noise in (0.0, 3.0):
        found = answer(ScoreQuestion(), rows, noise)
        assert "too few positives or negatives" in found.notes[1]
        assert found.estimates["auroc"] == type(found.estimates["auroc"])(0.5, 0.0, 1.0)
        assert "calibration_slope" not in found.estimates
        assert np.isfinite([[e.value, e.low, e.high] for e in found.estimates.values()]).all()


def test_what_was_cut_is_measured_by_those_who_answered() -> None:
    """A fifth of 3,000 persons have test rows; of each a third is cut."""
    rows, starts = drawn(1_800), np.arange(0, 1_801, 3)
    total = replace(total_of(ScoreQuestion(rows=1), rows, starts), units=3_000)
    shares = {}
    for share in (0.2, 1.0):
        (note,) = [note for note in ScoreQuestion(rows=1, share=share).read(total).notes if "had to send" in note]
        shares[share] = int(note.partition("%")[0])
    assert shares[0.2] == pytest.approx(5 * shares[1.0], abs=3)
    assert shares[0.2] > 20


def test_where_noise_leaves_no_possible_auroc_nothing_is_known() -> None:
    question = ScoreQuestion(bins=4)
    value = np.array([200.0, 0, 0, -100.0, 0, 0, 0, 100.0, 0]) * question.scales[0]
    found = question.read(Total(value=value, noise=0.5, units=1_000, unit="person"))
    auroc = found.estimates["auroc"]
    assert (auroc.value, auroc.low, auroc.high) == (0.5, 0.0, 1.0)
    assert any("hardly known" in note for note in found.notes)


def test_a_group_of_which_nothing_is_known_has_no_figures() -> None:
    """All scores in one bin: an interval from 0 to 1 is no figure to compare groups by."""
    rows = drawn(4_000) | {"score": np.full(4_000, 0.05)}
    table = answer(ScoreQuestion(bins=8, groups=("sex=f",)), rows, noise=2.0).tables["groups"]
    assert table["auroc"] == table["rows"] == [None]


def test_more_noise_takes_fewer_bins() -> None:
    question = ScoreQuestion()
    found = [well_binned(question, units=5_000, positives=400, noise=noise) for noise in (0.0, 1.0, 4.0, 40.0)]
    assert [one.bins for one in found] == sorted((one.bins for one in found), reverse=True)
    assert (found[0].bins, found[-1].bins) == (40, 4)
    errors = [error_of(one, units=5_000, positives=400, noise=4.0) for one in (found[2], found[0])]
    assert errors[0] < errors[1]


def test_settings_that_make_no_sense() -> None:
    for change, words in (
        ({"bins": 1}, "bins is 1"),
        ({"rows": 0.5}, "rows is 0.5"),
        ({"prevalence": 0.0}, "prevalence is 0"),
        ({"middle": float("nan")}, "middle is nan"),
        ({"groups": ("sex",)}, "column=value"),
        ({"groups": ("label=1",)}, "column=value"),
        ({"groups": ("sex=f", "sex=f")}, "each once"),
        ({"least": 0}, "least is 0"),
        ({"share": 0.0}, "share is 0"),
    ):
        with pytest.raises(InvalidInput, match=words):
            ScoreQuestion(**change)
    with pytest.raises(InvalidInput, match="has 21 numbers"):
        ScoreQuestion().read(Total(value=np.zeros(3), noise=0.0, units=1))
    assert QUESTIONS["scores"] is ScoreQuestion
    assert digest_of("scores", ScoreQuestion()) != digest_of("scores", ScoreQuestion(bins=8))
    assert ScoreQuestion(groups=("sex=f", "age=old")).columns == ("score", "label", "sex", "age")


@pytest.mark.parametrize(
    ("deviation", "apart", "aside", "noise"),
    [
        (0.15, 0.12, 0.0, 1.0),
        (0.15, 0.12, 0.0, 0.0),
        (0.15, 0.3, 0.0, 1.0),
        (0.05, 0.04, 0.25, 1.0),
        (0.3, 0.25, 0.3, 3.0),
    ],
    ids=["two bins", "no noise", "a good model", "one bin", "beside the middle"],
)
def test_intervals_cover_where_scores_are_narrow(deviation: float, apart: float, aside: float, noise: float) -> None:
    """A model after few rounds: at least 90 of 100 evaluations must cover AUROC and slope of the same rows."""
    rng, question = np.random.default_rng(0), ScoreQuestion(bins=8, prevalence=0.15)
    covered = {"auroc": 0, "calibration_slope": 0}
    for _ in range(100):
        died = rng.random(770) < 0.15
        scores = logit(0.15) + aside + rng.normal(0, deviation, 770) + apart * died
        vectors = question.vectors({"score": scores, "label": died.astype(np.float64)}, np.arange(771))
        noisy = vectors.sum(axis=0) + rng.normal(0, noise, question.length)
        found = question.read(Total(value=noisy, noise=noise, units=770, unit="person"))
        for name, truth in (("auroc", auroc(scores, died)), ("calibration_slope", fit_line(scores, died)[0])):
            covered[name] += found.estimates[name].low <= truth <= found.estimates[name].high
        wide = found.estimates["auroc"].high - found.estimates["auroc"].low > 0.4
        assert wide == any("hardly known" in note for note in found.notes)
    assert min(covered.values()) >= 90
