"""Local learning with PyTorch: models, SGD at the clients, evaluation. The only room that knows torch."""

from lowkey.learning.datasets import ClientDatasets, Examples
from lowkey.learning.evaluate import TorchEvaluator
from lowkey.learning.flat import FlatModel, layer_sizes, load_vector, model_vector
from lowkey.learning.local_sgd import LocalSGD, Loss, TorchTrainer
from lowkey.learning.models import FashionCNN, keras_initialise

__all__ = [
    "ClientDatasets",
    "Examples",
    "FashionCNN",
    "FlatModel",
    "LocalSGD",
    "Loss",
    "TorchEvaluator",
    "TorchTrainer",
    "keras_initialise",
    "layer_sizes",
    "load_vector",
    "model_vector",
]
