"""What a model is trained for and judged by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from lowkey.errors import InvalidInput
from lowkey.learning.metrics import Metrics, accuracy, logistic_loss, mortality

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Choice: TypeAlias = Callable[[NDArray[Any], np.random.Generator], NDArray[np.intp]]
"""Which of a client's examples a round uses, by their targets; drawn anew in every round."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The same for all clients and the server.

    Parameters
    ----------
    loss : of outputs and targets.
    metrics : of outputs and targets of held-out data.
    choice : of the examples that a client uses in a round; unset: all.
    """

    loss: Loss = F.cross_entropy
    metrics: Metrics = accuracy
    choice: Choice | None = None


def balanced_rows(targets: NDArray[Any], rng: np.random.Generator) -> NDArray[np.intp]:
    """A client's rows for one round: every positive, and as many negatives, drawn anew at each call.

    Where there are fewer negatives than positives, all are taken.
    """
    positive, negative = np.flatnonzero(targets), np.flatnonzero(np.logical_not(targets))  # targets of any type
    if len(positive) == 0 or len(negative) == 0:
        raise InvalidInput(
            f"{len(positive)} of the client's {len(targets)} examples are positive; balancing classes needs positives "
            "and negatives at every client"
        )
    return np.concatenate([positive, rng.choice(negative, min(len(positive), len(negative)), replace=False)])


CLASSIFICATION = Objective()
MORTALITY = Objective(loss=logistic_loss, metrics=mortality, choice=balanced_rows)
