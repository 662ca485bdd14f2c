"""Model and data of the task; imports PyTorch."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from lowkey.learning import ClientDatasets, Examples, keras_initialise
from lowkey.rng import generator
from lowkey.tasks.fashion_mnist.cnn import FashionCNN
from lowkey.tasks.fashion_mnist.images import ImageClients, ImageData, load_fashion_mnist
from lowkey.tasks.partition import dirichlet_shards, iid_shards
from lowkey.tasks.task import Study


def model(study: Study) -> Any:
    """The network, with its first weights."""
    return keras_initialise(
        FashionCNN(study.model.filters, study.model.hidden), generator(study.seed, "initial weights")
    )


def clients(study: Study) -> ClientDatasets:
    """The images of all clients."""
    data, rng = _loaded(study.data.source), generator(study.seed, "partition")
    if study.data.division == "dirichlet":
        partition = dirichlet_shards(data.train_labels, study.clients, study.data.alpha, rng)
    else:
        partition = iid_shards(len(data.train_labels), study.clients, rng)
    return ImageClients(data.train_images, data.train_labels, partition)


def test(study: Study) -> Examples:
    """The test images."""
    return _loaded(study.data.source).test()


@lru_cache(maxsize=1)
def _loaded(source: str) -> ImageData:
    return load_fashion_mnist(source)
