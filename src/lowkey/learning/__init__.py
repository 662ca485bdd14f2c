"""Local learning with PyTorch: SGD at the clients, evaluation, objectives. PyTorch is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowkey.lazy import lazy_names
from lowkey.learning.settings import LocalSGD

if TYPE_CHECKING:
    from lowkey.learning.datasets import ClientDatasets, Examples, SparseBatch
    from lowkey.learning.evaluate import TorchEvaluator
    from lowkey.learning.flat import FlatModel, layer_sizes, load_vector, model_vector
    from lowkey.learning.local_sgd import TorchTrainer
    from lowkey.learning.metrics import Metrics, accuracy, auroc, calibration, logistic_loss, rare_event_metrics
    from lowkey.learning.models import SparseLinear, keras_initialise
    from lowkey.learning.objective import CLASSIFICATION, Choice, Loss, Objective, balanced_rows

_HOMES = {
    "datasets": ("ClientDatasets", "Examples", "SparseBatch"),
    "evaluate": ("TorchEvaluator",),
    "flat": ("FlatModel", "layer_sizes", "load_vector", "model_vector"),
    "local_sgd": ("TorchTrainer",),
    "metrics": ("Metrics", "accuracy", "auroc", "calibration", "logistic_loss", "rare_event_metrics"),
    "models": ("SparseLinear", "keras_initialise"),
    "objective": ("CLASSIFICATION", "Choice", "Loss", "Objective", "balanced_rows"),
}
__getattr__ = lazy_names(__name__, _HOMES)

__all__ = [
    "CLASSIFICATION",
    "Choice",
    "ClientDatasets",
    "Examples",
    "FlatModel",
    "LocalSGD",
    "Loss",
    "Metrics",
    "Objective",
    "SparseBatch",
    "SparseLinear",
    "TorchEvaluator",
    "TorchTrainer",
    "accuracy",
    "auroc",
    "balanced_rows",
    "calibration",
    "keras_initialise",
    "layer_sizes",
    "load_vector",
    "logistic_loss",
    "model_vector",
    "rare_event_metrics",
]
