"""Model and data of the task; imports PyTorch."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from lowkey.features import features_of
from lowkey.learning import CentredHead, ClientDatasets, Examples, keras_initialise
from lowkey.rng import generator
from lowkey.tasks.fashion_mnist.cnn import FashionCNN
from lowkey.tasks.fashion_mnist.images import ImageClients, ImageData, RowClients, load_fashion_mnist
from lowkey.tasks.fashion_mnist.maps import feature_map
from lowkey.tasks.partition import dirichlet_shards, iid_shards
from lowkey.tasks.task import NodeSettings, Study, client_of
from lowkey.types import FloatArray


def model(study: Study) -> Any:
    """The network or the head, with its first weights."""
    if study.model.kind == "head":
        return CentredHead(study.model.features, 10)
    return keras_initialise(
        FashionCNN(study.model.filters, study.model.hidden), generator(study.seed, "initial weights")
    )


def clients(study: Study) -> ClientDatasets:
    """The images of all clients, or their features."""
    images = _clients(study)
    if study.model.kind == "cnn":
        return images
    return RowClients(_features(study, test=False), images.labels, images.partition)


def local_data(study: Study, node: NodeSettings) -> Any:
    """The examples of the client at a node. It computes features of its own images only."""
    if study.model.kind == "cnn":
        return clients(study)[client_of(node)]
    images, labels = _clients(study)[client_of(node)]
    return features_of(images[:, 0], feature_map(study.model.features)), labels


def test(study: Study) -> Examples:
    """The test images, or their features."""
    images, labels = _loaded(study.data.source).test()
    return (images if study.model.kind == "cnn" else _features(study, test=True)), labels


def _clients(study: Study) -> ImageClients:
    data, rng = _loaded(study.data.source), generator(study.seed, "partition")
    if study.data.division == "dirichlet":
        partition = dirichlet_shards(data.train_labels, study.clients, study.data.alpha, rng)
    else:
        partition = iid_shards(len(data.train_labels), study.clients, rng)
    return ImageClients(data.train_images, data.train_labels, partition)


def _features(study: Study, *, test: bool) -> FloatArray:
    return _mapped(study.data.source, study.model.features, test)


@lru_cache(maxsize=2)
def _mapped(source: str, size: int, test: bool) -> FloatArray:
    data = _loaded(source)
    images = data.test_images if test else data.train_images
    rows: FloatArray = features_of(images.astype(np.float32) / np.float32(255), feature_map(size))
    return rows


@lru_cache(maxsize=1)
def _loaded(source: str) -> ImageData:
    return load_fashion_mnist(source)
