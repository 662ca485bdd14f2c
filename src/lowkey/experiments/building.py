"""From a configuration to the parts of a run; imports PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lowkey.experiments.config import Config
from lowkey.experiments.running import ServerParts
from lowkey.federation import no_evaluation
from lowkey.learning import ClientDatasets, TorchEvaluator, make_trainer, model_shape, model_vector
from lowkey.protocols import Evaluator, Trainer


@dataclass(frozen=True, kw_only=True)
class Experiment(ServerParts):
    """Everything that a simulation needs to start: the server's parts, and the trainer of all clients."""

    trainer: Trainer


def build(config: Config) -> Experiment:
    """Load data and model and compose the scheme; the configuration must be resolved."""
    task, study = config.find_task(), config.study
    module, clients = task.model(study), task.all_clients(study)
    return Experiment(**vars(server_parts(config, module)), trainer=trainer_of(config, module, clients))


def server_parts(config: Config, module: Any = None) -> ServerParts:
    """The server's parts; without test data the model is not evaluated. Pass ``module`` if the model exists already."""
    task, study = config.find_task(), config.study
    module = task.model(study) if module is None else module
    evaluator: Evaluator = no_evaluation
    test = task.test(study)
    if test is not None:
        evaluator = TorchEvaluator(module, test, objective=task.objective(study), device=config.runtime.device)
    return ServerParts(
        scheme=config.scheme(model_shape(module)),
        schedule=config.schedule,
        evaluator=evaluator,
        initial_weights=model_vector(module),
    )


def trainer_of(config: Config, module: Any, clients: ClientDatasets) -> Trainer:
    """The trainer of the clients, on their data."""
    objective = config.find_task().objective(config.study)
    return make_trainer(
        module,
        clients,
        config.training,
        objective=objective,
        device=config.runtime.device,
        persons_by=config.privacy.persons_by if config.privacy else None,
    )
