"""Metrics of a classifier, from its outputs on held-out data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import scipy.special
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from lowkey.types import Evaluation

Metrics: TypeAlias = Callable[[Tensor, Tensor], Evaluation]
"""A function of outputs and targets; its result must include "accuracy"."""


def logistic_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy of logits; targets are 0 or 1 in any type."""
    return F.binary_cross_entropy_with_logits(outputs.reshape(-1), targets.reshape(-1).to(outputs.dtype))


def accuracy(outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """Accuracy and loss of classes; a single column is taken as the logit of class 1."""
    wide = outputs.ndim == 2 and outputs.shape[1] > 1
    predicted = outputs.argmax(1) if wide else (outputs.reshape(-1) > 0).long()
    return {"accuracy": float((predicted == targets.reshape(len(outputs))).float().mean())}


def rare_event_metrics(outputs: Tensor, targets: Tensor) -> Evaluation:
    """Metrics for rare events: balanced accuracy, AUROC, and the counts behind them, at a probability of one half.

    The four counts are those of the confusion matrix; calibration has the rows of :func:`calibration`.
    """
    logits, positive = _logits(outputs, targets)
    alarm = logits > 0
    found, missed = float(np.sum(alarm & positive)), float(np.sum(~alarm & positive))
    false, right = float(np.sum(alarm & ~positive)), float(np.sum(~alarm & ~positive))
    sensitivity, specificity = _fraction(found, missed), _fraction(right, false)
    return {
        "accuracy": (found + right) / len(positive),
        "balanced_accuracy": (sensitivity + specificity) / 2,
        "auroc": auroc(logits, positive),
        "sensitivity": sensitivity,
        "specificity": specificity,
        "true_positives": found,
        "false_negatives": missed,
        "false_positives": false,
        "true_negatives": right,
        "calibration": calibration(outputs, targets),
    }


def auroc(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Chance that a positive scores above a negative, ties counted half (Mann and Whitney 1947); 0.5 without either."""
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if positives == 0 or negatives == 0:
        return 0.5
    from scipy.stats import mannwhitneyu  # a third of a second that accuracy does without

    above = mannwhitneyu(scores[positive], scores[~positive], method="asymptotic").statistic
    return float(above) / (positives * negatives)


def calibration(outputs: Tensor, targets: Tensor, bins: int = 10, risks: Tensor | None = None) -> list[list[float]]:
    """Rows [predicted, corrected, observed, count] of bins of equally many examples, by rising prediction.

    Predicted is the mean probability of a model that learned from as many positives as negatives. Corrected is the mean
    of the model's own ``risks`` (as logits); without them, of the same probabilities with the odds of every one
    multiplied by the odds of a positive among ``targets``, what they would be had the model learned from classes of
    that fraction: Elkan (2001), Section 3; Saerens et al. (2002). Observed is the fraction of positives. There are no
    rows if all targets are equal.
    """
    logits, positive = _logits(outputs, targets)
    fraction = float(positive.mean())
    if fraction in (0.0, 1.0):
        return []
    order = np.argsort(logits, kind="stable")
    raw = scipy.special.expit(logits)
    corrected = logits + scipy.special.logit(fraction) if risks is None else _logits(risks, targets)[0]
    shifted = scipy.special.expit(corrected)
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return [[*(float(column[part].mean()) for column in (raw, shifted, positive)), len(part)] for part in parts]


def risk_metrics(outputs: Tensor, risks: Tensor, targets: Tensor) -> Evaluation:
    """How far the risks of a calibrated model can be believed.

    The Brier score, and slope and intercept of a logistic regression of the outcome on the logits of the risks: 1 and 0
    are perfect; a slope below 1 means that risks are too extreme.

    Parameters
    ----------
    outputs, risks : Tensor
        The model's scores, and the logits of its risks.
    targets : Tensor
        What happened.
    """
    logits, positive = _logits(risks, targets)
    slope, intercept = fit_line(logits, positive)
    return {
        "brier": float(np.mean((scipy.special.expit(logits) - positive) ** 2)),
        "calibration_slope": float(slope),
        "calibration_intercept": float(intercept),
        "calibration": calibration(outputs, targets, risks=risks),
    }


def line_moments(
    scores: NDArray[np.float64], positive: NDArray[np.bool_], line: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What one step of Newton's method needs to improve slope and intercept of a logistic regression on scores.

    The two numbers of the gradient and three of the second derivatives, at ``line``, as a vector of norm 1. Moments of
    several clients may be added: each then counts alike.

    Parameters
    ----------
    scores, positive : arrays
        One number for each example, and whether the event happened.
    line : array of two
        Slope and intercept from which the step is taken.
    """
    moments: NDArray[np.float64] = row_moments(scores, positive, line).sum(axis=0)
    norm = float(np.linalg.norm(moments))
    if norm > 0:
        moments /= norm
    return moments


def row_moments(
    scores: NDArray[np.float64], positive: NDArray[np.bool_], line: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What each example adds to :func:`line_moments`, before these are scaled: one row of five for each."""
    risk = scipy.special.expit(line[0] * scores + line[1])
    wrong, weight = risk - positive, risk * (1 - risk)
    moments: NDArray[np.float64] = np.stack([wrong * scores, wrong, weight * scores**2, weight * scores, weight], 1)
    return moments


def line_of_moments(moments: NDArray[np.float64], line: NDArray[np.float64]) -> NDArray[np.float64]:
    """Slope and intercept after one step of Newton's method from ``line``, no longer than 2.

    Noise may have left moments that no data has; curvature is then taken to be at least a tenth of the largest.
    """
    gradient, (steep, mixed, flat) = moments[:2], moments[2:]
    values, vectors = np.linalg.eigh(np.array([[steep, mixed], [mixed, flat]]))
    least = max(0.1 * float(values[-1]), 1e-9)
    step: NDArray[np.float64] = vectors @ ((vectors.T @ gradient) / np.maximum(values, least))
    return line - step * min(1.0, 2.0 / max(float(np.linalg.norm(step)), 1e-12))


def fit_line(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Slope and intercept of a logistic regression on scores, by Newton's method on scores of mean 0 and deviation 1.

    Where scores tell both classes apart there is no best slope; then it is a large one.
    """
    mean, deviation = float(np.mean(scores)), float(np.std(scores)) or 1.0
    places = (scores - mean) / deviation
    line = np.zeros(2)
    for _ in range(50):
        gradient, (steep, mixed, flat) = np.split(row_moments(places, positive, line).sum(axis=0), [2])
        step = np.linalg.solve(np.array([[steep, mixed], [mixed, flat]]) + 1e-9 * np.eye(2), gradient)
        line -= step * min(1.0, 2.0 / max(float(np.linalg.norm(step)), 1e-12))
    return np.array([line[0] / deviation, line[1] - line[0] * mean / deviation])


def _logits(outputs: Tensor, targets: Tensor) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    return outputs.reshape(-1).cpu().double().numpy(), targets.reshape(-1).cpu().numpy() > 0.5


def _fraction(part: float, rest: float) -> float:
    return part / (part + rest) if part + rest else 0.0
