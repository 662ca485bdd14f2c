"""Which trainer fits a model and its settings."""

from __future__ import annotations

from typing import Literal

from torch import nn

from lowkey.errors import InvalidInput
from lowkey.learning.datasets import ClientDatasets
from lowkey.learning.heads import CentredHead, HeadTrainer, LinearHead, RiskHead
from lowkey.learning.local_sgd import TorchTrainer
from lowkey.learning.metrics import logistic_loss
from lowkey.learning.objective import CLASSIFICATION, Objective
from lowkey.learning.settings import FullGradient, LocalSGD
from lowkey.protocols import Trainer


def usual_training(module: nn.Module) -> LocalSGD | FullGradient:
    """How a model is trained unless it is said: a convex head by full gradients, any other by SGD."""
    return FullGradient() if isinstance(module, LinearHead) else LocalSGD()


def usual_objective(module: nn.Module) -> Objective:
    """What a model is trained for unless it is said: classes by cross-entropy, a head's single output by its logit."""
    single = isinstance(module, LinearHead) and module.out_features == 1
    return Objective(loss=logistic_loss) if single else CLASSIFICATION


def make_trainer(
    module: nn.Module,
    clients: ClientDatasets,
    training: LocalSGD | FullGradient,
    *,
    objective: Objective = CLASSIFICATION,
    device: str = "cpu",
    persons_by: Literal["ids", "rows"] | None = None,
) -> Trainer:
    """The trainer that does what the settings say.

    Parameters
    ----------
    module : torch.nn.Module
        The model; :class:`FullGradient` needs a :class:`LinearHead`, and a model with a centre needs that training.
    clients : ClientDatasets
        One dataset per client.
    training : LocalSGD or FullGradient
        What a client does in a round.
    objective : Objective
        Loss, and which examples a round uses.
    device : str
        Where to compute; heads are trained on the CPU.
    persons_by : {"ids", "rows"} or None
        For privacy of persons: by what they are told apart. None where clients are protected.
    """
    if persons_by is not None:
        training.require_persons()
        if objective.choice is not None:
            raise InvalidInput(
                "the objective chooses among a client's examples, so that one person's part depends on others; with "
                "privacy.unit = 'person', give one without a choice (the hospital task has one for model.kind = 'head')"
            )
    if isinstance(training, LocalSGD):
        if isinstance(module, CentredHead | RiskHead):
            raise InvalidInput(
                f"a {type(module).__name__} has parts that SGD does not learn; train it by 'full-gradient'"
            )
        return TorchTrainer(module, clients, training, objective=objective, device=device, by_row=persons_by == "rows")
    if not isinstance(module, LinearHead):
        raise InvalidInput(
            f"the model is a {type(module).__name__}, and training by 'full-gradient' is for a LinearHead; "
            "train it by 'sgd', with a batch size as large as the largest client"
        )
    return HeadTrainer(module, clients, training, objective=objective, by_row=persons_by == "rows")
