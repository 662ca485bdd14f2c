"""Local learning with PyTorch: SGD at the clients, evaluation, objectives. PyTorch is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowkey.lazy import lazy_names
from lowkey.learning.settings import TRAININGS, FullGradient, LocalSGD

if TYPE_CHECKING:
    from lowkey.learning.datasets import ClientDatasets, Examples, SparseBatch
    from lowkey.learning.evaluate import TorchEvaluator
    from lowkey.learning.flat import FlatModel, layer_sizes, load_vector, model_vector
    from lowkey.learning.heads import CentredHead, HeadTrainer, LinearHead, RiskHead, model_shape
    from lowkey.learning.local_sgd import TorchTrainer
    from lowkey.learning.metrics import (
        Metrics,
        accuracy,
        auroc,
        calibration,
        fit_line,
        line_moments,
        line_of_moments,
        logistic_loss,
        rare_event_metrics,
        risk_metrics,
    )
    from lowkey.learning.models import SparseLinear, keras_initialise
    from lowkey.learning.objective import CLASSIFICATION, Choice, Loss, Objective, balanced_rows
    from lowkey.learning.personal import Correction, Personal
    from lowkey.learning.respondent import DataRespondent
    from lowkey.learning.trainers import make_trainer, usual_objective, usual_training

_HOMES = {
    "datasets": ("ClientDatasets", "Examples", "SparseBatch"),
    "evaluate": ("TorchEvaluator",),
    "flat": ("FlatModel", "layer_sizes", "load_vector", "model_vector"),
    "heads": ("CentredHead", "HeadTrainer", "LinearHead", "RiskHead", "model_shape"),
    "local_sgd": ("TorchTrainer",),
    "metrics": (
        "Metrics",
        "accuracy",
        "auroc",
        "calibration",
        "fit_line",
        "line_moments",
        "line_of_moments",
        "logistic_loss",
        "rare_event_metrics",
        "risk_metrics",
    ),
    "models": ("SparseLinear", "keras_initialise"),
    "objective": ("CLASSIFICATION", "Choice", "Loss", "Objective", "balanced_rows"),
    "personal": ("Correction", "Personal"),
    "respondent": ("DataRespondent",),
    "trainers": ("make_trainer", "usual_objective", "usual_training"),
}
__getattr__ = lazy_names(__name__, _HOMES)

__all__ = [
    "CLASSIFICATION",
    "TRAININGS",
    "CentredHead",
    "Choice",
    "ClientDatasets",
    "Correction",
    "DataRespondent",
    "Examples",
    "FlatModel",
    "FullGradient",
    "HeadTrainer",
    "LinearHead",
    "LocalSGD",
    "Loss",
    "Metrics",
    "Objective",
    "Personal",
    "RiskHead",
    "SparseBatch",
    "SparseLinear",
    "TorchEvaluator",
    "TorchTrainer",
    "accuracy",
    "auroc",
    "balanced_rows",
    "calibration",
    "fit_line",
    "keras_initialise",
    "layer_sizes",
    "line_moments",
    "line_of_moments",
    "load_vector",
    "logistic_loss",
    "make_trainer",
    "model_shape",
    "model_vector",
    "rare_event_metrics",
    "risk_metrics",
    "usual_objective",
    "usual_training",
]
