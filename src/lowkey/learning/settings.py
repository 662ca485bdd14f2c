"""What a client does with the common model in a round: the ``[training]`` table of a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.registry import Registry


@dataclass(frozen=True, kw_only=True)
class LocalSGD:
    """A few steps of plain SGD.

    Parameters
    ----------
    steps : int
        T_gd, SGD steps per round.
    batch_size : int
        Examples per step; a client with fewer uses all it has in every step.
    learning_rate : float
        η, the rate of the local steps.
    batches : {"epochs", "independent"}
        "epochs" goes through the data in random order before any example repeats; "independent" draws every batch
        anew, with replacement, which reproduces the norms that the paper clips to.
    """

    steps: int = 5
    batch_size: int = 10
    learning_rate: float = 0.1
    batches: Literal["epochs", "independent"] = "epochs"

    def __post_init__(self) -> None:
        checks.at_least("training.steps", self.steps, 1)
        checks.at_least("training.batch_size", self.batch_size, 1)
        checks.positive("training.learning_rate", self.learning_rate)
        checks.one_of("training.batches", self.batches, ("epochs", "independent"))

    def require_persons(self) -> None:
        """Refuse more than one step, where each person has an update of its own: the gradient over all its rows."""
        _require_one_step(self.steps)


@dataclass(frozen=True, kw_only=True)
class FullGradient:
    """A few steps of gradient descent on all of a client's examples at once, for a convex head in closed form.

    Parameters
    ----------
    steps : int
        Steps per round. With 1, the update is the client's gradient times minus the rate.
    learning_rate : float
        η, the rate of the local steps.
    l2 : float
        λ ≥ 0; λ/2 times the squared norm of the weights, biases left out, is added to the mean loss.
    balanced : bool
        Whether the classes that a client has count alike, however many examples each has. Where there is one output, a
        client needs both; it cannot contribute otherwise.
    positive_weight : float
        What a positive counts where there is one output; any other example counts 1. A public number: unlike
        ``balanced`` it does not look at the client's other examples.
    """

    steps: int = 1
    learning_rate: float = 1.0
    l2: float = 0.0
    balanced: bool = False
    positive_weight: float = 1.0

    def __post_init__(self) -> None:
        checks.at_least("training.steps", self.steps, 1)
        checks.positive("training.learning_rate", self.learning_rate)
        checks.not_negative("training.l2", self.l2)
        checks.one_of("training.balanced", self.balanced, (False, True))
        checks.positive("training.positive_weight", self.positive_weight)
        if self.balanced and self.positive_weight != 1.0:
            raise InvalidInput("training.balanced and training.positive_weight both give classes a weight; choose one")

    def require_persons(self) -> None:
        """Refuse what would make one person's update depend on others, or on more than its own gradient."""
        _require_one_step(self.steps)
        for name, refused, instead in (
            ("balanced", self.balanced, "it counts a client's classes; set training.positive_weight"),
            ("l2", self.l2 > 0, "it moves weights beside anybody's gradient; set it to 0"),
        ):
            if refused:
                raise InvalidInput(f"training.{name} is not for privacy.unit = 'person': {instead}")


def _require_one_step(steps: int) -> None:
    if steps != 1:
        raise InvalidInput(
            f"training.steps is {steps}; with privacy.unit = 'person' it must be 1: a person's update is one gradient"
        )


TRAININGS: Registry[type[LocalSGD] | type[FullGradient]] = Registry(
    "training.kind", {"sgd": LocalSGD, "full-gradient": FullGradient}
)
