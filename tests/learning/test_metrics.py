"""Metrics of rare events, against scikit-learn and by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from lowkey.learning import auroc, calibration, fit_line, rare_event_metrics


@pytest.mark.parametrize("seed", range(5))
def test_metrics_agree_with_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    died = rng.random(300) < 0.1
    logits = np.round(rng.normal(size=300) + died, 1)  # with ties
    found: Mapping[str, Any] = rare_event_metrics(
        torch.from_numpy(logits)[:, None], torch.from_numpy(died.astype(np.int64))
    )
    assert found["auroc"] == pytest.approx(roc_auc_score(died, logits))
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(died, logits > 0))
    assert found["true_positives"] + found["false_negatives"] == died.sum()
    counts = ("true_positives", "false_negatives", "false_positives", "true_negatives")
    assert sum(found[name] for name in counts) == 300


def test_without_deaths_auroc_says_nothing() -> None:
    assert auroc(np.arange(3.0), np.zeros(3, np.bool_)) == 0.5


def test_calibration_by_hand() -> None:
    """One of four died, odds 1/3: a probability of 3/4 has odds 3 and becomes 1/2, one of 1/2 becomes 1/4."""
    logits, died = torch.tensor([np.log(3.0), 0.0, 0.0, np.log(3.0)]), torch.tensor([1, 0, 0, 0])
    found = calibration(logits[:, None], died, bins=2)
    assert found == [pytest.approx([1 / 2, 1 / 4, 0, 2]), pytest.approx([3 / 4, 1 / 2, 1 / 2, 2])]
    whole: Any = rare_event_metrics(logits[:, None], died)["calibration"]
    assert [row[3] for row in whole] == [1, 1, 1, 1]  # fewer patients than bins
    assert json.loads(json.dumps(whole)) == whole


def test_odds_of_every_example_are_corrected_and_not_of_the_mean() -> None:
    logits = torch.tensor([-2.0, 4.0, 1.0, 0.0])
    ((_, corrected, _, _),) = calibration(logits, torch.tensor([1, 0, 0, 0]), bins=1)
    assert corrected == pytest.approx(float(torch.sigmoid(logits - np.log(3)).mean()))


@pytest.mark.parametrize(("bias", "holds"), [(0.0, True), (0.5, False)])
def test_a_forecast_learned_from_balanced_classes_is_right_once_corrected(bias: float, holds: bool) -> None:
    """Observed shares lie within 5 standard deviations of the corrected ones: false alarm below 1e-5."""
    rng = np.random.default_rng(0)
    logits = rng.normal(-4, 1.5, 200_000)
    died = rng.random(200_000) < 1 / (1 + np.exp(-logits))
    balanced = logits - np.log(died.mean() / (1 - died.mean())) + bias
    rows = calibration(torch.from_numpy(balanced), torch.from_numpy(died))
    assert [row[3] for row in rows] == [20_000] * 10
    near = [abs(seen - right) < 5 * (right * (1 - right) / count) ** 0.5 for _, right, seen, count in rows]
    assert all(near) is holds
    assert all(raw > 2 * seen for raw, _, seen, _ in rows)


@pytest.mark.parametrize("died", [np.zeros(3), np.ones(3)])
def test_no_calibration_where_all_are_alike(died: np.ndarray) -> None:
    assert calibration(torch.zeros(3), torch.from_numpy(died)) == []


@pytest.mark.parametrize(("mean", "deviation", "slope"), [(-3.0, 1.3, 0.8), (-1.7, 0.05, 6.0), (40.0, 10.0, -0.1)])
def test_the_line_is_the_best_one(mean: float, deviation: float, slope: float) -> None:
    """Against scikit-learn, also where scores hardly differ, and far from 0."""
    rng = np.random.default_rng(0)
    scores = rng.normal(mean, deviation, 4_000)
    positive = rng.random(4_000) < expit(slope * (scores - mean) - 1.5)
    best = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1_000).fit((scores[:, None] - mean) / deviation, positive)
    found = fit_line(scores, positive)
    assert found[0] * deviation == pytest.approx(best.coef_[0, 0], abs=1e-4)
    assert found[1] + found[0] * mean == pytest.approx(best.intercept_[0], abs=1e-4)


def test_one_score_has_no_slope() -> None:
    slope, intercept = fit_line(np.zeros(4), np.array([True, False, False, False]))
    assert slope == 0
    assert intercept == pytest.approx(-np.log(3))
