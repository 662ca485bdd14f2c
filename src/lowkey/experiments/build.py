"""From a configuration to the parts of a run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lowkey.data import ImageClients, ImageData, dirichlet_shards, iid_shards, load_fashion_mnist
from lowkey.errors import ConfigError
from lowkey.experiments.config import Config
from lowkey.experiments.play import ServerParts
from lowkey.experiments.schemes import schedule_of, scheme_of
from lowkey.learning import (
    ClientDatasets,
    Examples,
    FashionCNN,
    LocalSGD,
    TorchEvaluator,
    TorchTrainer,
    keras_initialise,
    layer_sizes,
    model_vector,
)
from lowkey.protocols import Evaluator
from lowkey.rng import generator


@dataclass(frozen=True, kw_only=True)
class Experiment(ServerParts):
    """Everything a simulation needs to start: the server's parts, and what stands for all clients."""

    trainer: TorchTrainer


def build(config: Config) -> Experiment:
    """Load data and model and compose the scheme; the configuration must be resolved (no "auto" left)."""
    module = model_of(config)
    server = server_parts(config, module, test_examples_of(config))
    return Experiment(**vars(server), trainer=trainer_of(config, module, client_datasets_of(config)))


def server_parts(config: Config, module: Any, test: Examples | None, *, loss: Any = None) -> ServerParts:
    """The server's side; without test data it learns blindly."""
    options = {} if loss is None else {"loss": loss}
    evaluator: Evaluator = _no_evaluation
    if test is not None:
        evaluator = TorchEvaluator(module, test, device=config.runtime.device, **options)
    return ServerParts(
        scheme=scheme_of(config).for_layers(layer_sizes(module)),
        schedule=schedule_of(config),
        evaluator=evaluator,
        initial_weights=model_vector(module),
    )


def trainer_of(config: Config, module: Any, clients: ClientDatasets, *, loss: Any = None) -> TorchTrainer:
    """The clients' side: local training on their data."""
    sgd = LocalSGD(
        steps=config.training.local_steps,
        batch_size=config.training.batch_size,
        learning_rate=config.training.learning_rate,
        batches=config.training.batches,
    )
    options = {} if loss is None else {"loss": loss}
    return TorchTrainer(module, clients, sgd, device=config.runtime.device, **options)


def model_of(config: Config) -> Any:
    """The network of a preset, with its first weights."""
    return keras_initialise(
        FashionCNN(config.model.filters, config.model.hidden), generator(config.seed, "initial weights")
    )


def client_datasets_of(config: Config) -> ImageClients:
    """The data of all clients of a preset."""
    data, rng = _data_of(config), generator(config.seed, "partition")
    if config.data.partition == "dirichlet":
        partition = dirichlet_shards(data.train_labels, config.data.clients, config.data.alpha, rng)
    else:
        partition = iid_shards(len(data.train_labels), config.data.clients, rng)
    return ImageClients(data.train_images, data.train_labels, partition)


def test_examples_of(config: Config) -> Examples:
    """The held-out data of a preset."""
    return _data_of(config).test()


def _data_of(config: Config) -> ImageData:
    if config.data.name != "fashion-mnist":
        raise ConfigError(
            f"data.name is {config.data.name!r}: the data is brought by an app of its own; run it with Flower "
            "(docs/deployment.md), or simulate it with lowkey.simulate"
        )
    return _loaded(config.data.source)


@lru_cache(maxsize=1)
def _loaded(source: str) -> ImageData:
    return load_fashion_mnist(source)


def _no_evaluation(weights: object) -> dict[str, float]:
    del weights
    return {}
