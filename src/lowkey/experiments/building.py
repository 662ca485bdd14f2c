"""From a configuration to the parts of a run; imports PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from lowkey.errors import InvalidInput
from lowkey.experiments.config import NO_MODEL, Config
from lowkey.experiments.running import ServerParts
from lowkey.federation import no_evaluation
from lowkey.learning import ClientDatasets, DataRespondent, TorchEvaluator, make_trainer, model_shape, model_vector
from lowkey.protocols import Evaluator, LocalUpdate, Respondent, Trainer
from lowkey.types import ClientId, FloatArray


@dataclass(frozen=True, kw_only=True)
class Experiment(ServerParts):
    """Everything that a simulation needs to start: the server's parts, and what trains and answers at all clients."""

    trainer: Trainer
    respondent: Respondent | None = None


def build(config: Config) -> Experiment:
    """Load data and model and compose the scheme; the configuration must be resolved."""
    task, study = config.find_task(), config.study
    module = None if config.only_asks else task.model(study)
    respondent = None
    if config.asks:
        held_out = task.held_out(study) if task.held_out and config.score_question else None
        tables = task.tables(study) if task.tables and config.questions else None
        respondent = respondent_of(config, module, held_out, tables)
    if module is None:
        trainer: Trainer = Untrained(config.federation.clients)
    else:
        trainer = trainer_of(config, module, task.all_clients(study))
    return Experiment(**vars(server_parts(config, module)), trainer=trainer, respondent=respondent)


def server_parts(config: Config, module: Any = None) -> ServerParts:
    """The server's parts; without test data the model is not evaluated. Pass ``module`` if the model exists already."""
    task, study = config.find_task(), config.study
    if config.only_asks:
        return ServerParts(
            scheme=config.scheme(NO_MODEL),
            schedule=config.schedule,
            evaluator=no_evaluation,
            initial_weights=np.zeros(NO_MODEL.size, np.float32),
        )
    module = task.model(study) if module is None else module
    evaluator: Evaluator = no_evaluation
    test = task.test(study)
    if test is not None:
        evaluator = TorchEvaluator(module, test, objective=task.objective(study), device=config.runtime.device)
    return ServerParts(
        scheme=config.scheme(model_shape(module), features=config.features()),
        schedule=config.schedule,
        evaluator=evaluator,
        initial_weights=model_vector(module),
    )


def respondent_of(config: Config, module: Any, held_out: ClientDatasets | None, tables: Any) -> Respondent:
    """What answers questions at the clients, from their data."""
    if config.privacy is None:
        units: Literal["client", "ids", "rows"] = "rows"  # nobody is protected, so that nothing need be bounded
    else:
        units = config.privacy.persons_by or "client"
    return DataRespondent(module, held_out, tables, units=units)


@dataclass(frozen=True)
class Untrained:
    """Stands for a trainer where nothing is learned."""

    num_clients: int
    num_coordinates: ClassVar[int] = NO_MODEL.size

    def limit_threads(self, threads: int) -> None:
        del threads

    def train(self, weights: FloatArray, client: ClientId, rng: np.random.Generator) -> LocalUpdate:
        raise InvalidInput("nothing is learned in this run, which only asks questions")


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
