"""What a classifier is judged by, from its outputs on held-out data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import scipy.stats
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Metrics: TypeAlias = Callable[[Tensor, Tensor], dict[str, float]]
"""Of outputs and targets; must include "accuracy"."""


def logistic_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy of logits; targets are 0 or 1 in any type."""
    return F.binary_cross_entropy_with_logits(outputs.reshape(-1), targets.reshape(-1).to(outputs.dtype))


def accuracy(outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """Of classes; a single column is taken as the logit of class 1."""
    wide = outputs.ndim == 2 and outputs.shape[1] > 1
    predicted = outputs.argmax(1) if wide else (outputs.reshape(-1) > 0).long()
    return {"accuracy": float((predicted == targets.reshape(len(outputs))).float().mean())}


def mortality(outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """For rare events: balanced accuracy, AUROC, and what they are made of, at a probability of one half.

    The four counts are those of the confusion matrix.
    """
    logits = outputs.reshape(-1).cpu().double().numpy()
    died = targets.reshape(-1).cpu().numpy() > 0.5
    alarm = logits > 0
    found, missed = float(np.sum(alarm & died)), float(np.sum(~alarm & died))
    false, right = float(np.sum(alarm & ~died)), float(np.sum(~alarm & ~died))
    sensitivity, specificity = _share(found, missed), _share(right, false)
    return {
        "accuracy": (found + right) / len(died),
        "balanced_accuracy": (sensitivity + specificity) / 2,
        "auroc": auroc(logits, died),
        "sensitivity": sensitivity,
        "specificity": specificity,
        "true_positives": found,
        "false_negatives": missed,
        "false_positives": false,
        "true_negatives": right,
    }


def auroc(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Chance that a positive scores above a negative, ties counted half (Mann and Whitney 1947); 0.5 without either."""
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if positives == 0 or negatives == 0:
        return 0.5
    ranks = scipy.stats.rankdata(scores)
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def calibration(outputs: Tensor, targets: Tensor, bins: int = 10) -> list[tuple[float, float, int]]:
    """Predicted and observed share of positives, and number of examples, in bins of equally many examples."""
    order = torch.argsort(outputs.reshape(-1))
    probability, died = torch.sigmoid(outputs.reshape(-1).double())[order], targets.reshape(-1).double()[order]
    parts = zip(torch.tensor_split(probability, bins), torch.tensor_split(died, bins), strict=True)
    return [(float(p.mean()), float(d.mean()), len(p)) for p, d in parts if len(p)]


def _share(part: float, rest: float) -> float:
    return part / (part + rest) if part + rest else 0.0
