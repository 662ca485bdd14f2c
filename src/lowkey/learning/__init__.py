"""Local learning with PyTorch: models, SGD at the clients, evaluation. The only room that knows torch."""

from lowkey.learning.datasets import ClientDatasets, Examples, SparseBatch
from lowkey.learning.evaluate import TorchEvaluator
from lowkey.learning.flat import FlatModel, layer_sizes, load_vector, model_vector
from lowkey.learning.local_sgd import LocalSGD, TorchTrainer
from lowkey.learning.metrics import Metrics, accuracy, auroc, calibration, logistic_loss, mortality
from lowkey.learning.models import FashionCNN, MortalityMLP, SparseLinear, keras_initialise
from lowkey.learning.objective import CLASSIFICATION, MORTALITY, Choice, Loss, Objective, balanced_rows

__all__ = [
    "CLASSIFICATION",
    "MORTALITY",
    "Choice",
    "ClientDatasets",
    "Examples",
    "FashionCNN",
    "FlatModel",
    "LocalSGD",
    "Loss",
    "Metrics",
    "MortalityMLP",
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
    "mortality",
]
