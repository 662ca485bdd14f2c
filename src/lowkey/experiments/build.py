"""From a configuration to the parts of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lowkey.experiments.config import Config
from lowkey.experiments.play import ServerParts
from lowkey.experiments.schemes import schedule_of, scheme_of
from lowkey.experiments.tasks import client_datasets_of, held_out_examples_of, model_of, objective_of
from lowkey.learning import (
    ClientDatasets,
    Examples,
    LocalSGD,
    Objective,
    TorchEvaluator,
    TorchTrainer,
    layer_sizes,
    model_vector,
)
from lowkey.protocols import Evaluator


@dataclass(frozen=True, kw_only=True)
class Experiment(ServerParts):
    """Everything a simulation needs to start: the server's parts, and what stands for all clients."""

    trainer: TorchTrainer


def build(config: Config) -> Experiment:
    """Load data and model and compose the scheme; the configuration must be resolved (no "auto" left)."""
    module, objective = model_of(config), objective_of(config)
    server = server_parts(config, module, held_out_examples_of(config), objective)
    return Experiment(**vars(server), trainer=trainer_of(config, module, client_datasets_of(config), objective))


def server_parts(config: Config, module: Any, test: Examples | None, objective: Objective) -> ServerParts:
    """The server's side; without test data it learns blindly."""
    evaluator: Evaluator = _no_evaluation
    if test is not None:
        evaluator = TorchEvaluator(module, test, objective=objective, device=config.runtime.device)
    return ServerParts(
        scheme=scheme_of(config).for_layers(layer_sizes(module)),
        schedule=schedule_of(config),
        evaluator=evaluator,
        initial_weights=model_vector(module),
    )


def trainer_of(config: Config, module: Any, clients: ClientDatasets, objective: Objective) -> TorchTrainer:
    """The clients' side: local training on their data."""
    sgd = LocalSGD(
        steps=config.training.local_steps,
        batch_size=config.training.batch_size,
        learning_rate=config.training.learning_rate,
        batches=config.training.batches,
    )
    return TorchTrainer(module, clients, sgd, objective=objective, device=config.runtime.device)


def _no_evaluation(weights: object) -> dict[str, float]:
    del weights
    return {}
