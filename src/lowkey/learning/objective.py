"""Loss, metrics and choice of examples: what a model is trained for and evaluated by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from lowkey.errors import CannotContribute, InvalidInput
from lowkey.learning.metrics import Metrics, accuracy, logistic_loss

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Choice: TypeAlias = Callable[[NDArray[Any], np.random.Generator], NDArray[np.intp]]
"""Which of a client's examples a round uses, by their targets; drawn again in every round."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What a model is trained for; the same for all clients and the server.

    Parameters
    ----------
    loss : function
        Takes outputs and targets.
    metrics : function
        Takes outputs and targets of held-out data.
    choice : function or None
        Chooses the examples that a client uses in a round. None uses all.
    """

    loss: Loss = F.cross_entropy
    metrics: Metrics = accuracy
    choice: Choice | None = None

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Refuse labels that no class of the model has; a loss of your own must check its labels itself."""
        largest = self.largest_label(outputs)
        if largest is not None and (self.loss is logistic_loss or not targets.is_floating_point()):
            require_labels(targets.numpy(force=True), largest)

    def largest_label(self, outputs: Tensor) -> int | None:
        """The last class of a model with such outputs; None for a loss whose labels may be anything."""
        if self.loss is logistic_loss:
            return 1
        return outputs.shape[1] - 1 if self.loss is F.cross_entropy and outputs.ndim == 2 else None


def require_labels(targets: NDArray[Any], largest: int) -> None:
    """Refuse labels outside 0 … ``largest``."""
    low, high = float(targets.min()), float(targets.max())
    if not (low >= 0 and high <= largest):
        strange = high if low >= 0 else low
        raise InvalidInput(f"a label is {strange:g}; it must lie in 0 … {largest}, the classes of the model")


def balanced_rows(targets: NDArray[Any], rng: np.random.Generator) -> NDArray[np.intp]:
    """A client's rows for one round: every positive, and as many negatives, drawn again at each call.

    Where there are fewer negatives than positives, all are taken.
    """
    positive, negative = np.flatnonzero(targets), np.flatnonzero(np.logical_not(targets))  # targets of any type
    if len(positive) == 0 or len(negative) == 0:
        raise CannotContribute(
            f"{len(positive)} of its {len(targets)} examples are positive; balancing classes needs positives and "
            "negatives at every client"
        )
    return np.concatenate([positive, rng.choice(negative, min(len(positive), len(negative)), replace=False)])


CLASSIFICATION = Objective()
