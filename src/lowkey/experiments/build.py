"""From a configuration to the parts of a run."""

from __future__ import annotations

from dataclasses import dataclass

from lowkey.data import ImageClients, dirichlet_shards, iid_shards, load_fashion_mnist
from lowkey.experiments.config import Config
from lowkey.federation import Schedule, Scheme, make_scheme
from lowkey.learning import (
    FashionCNN,
    LocalSGD,
    TorchEvaluator,
    TorchTrainer,
    keras_initialise,
    layer_sizes,
    model_vector,
)
from lowkey.rng import generator
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything a runtime needs to start."""

    scheme: Scheme
    schedule: Schedule
    trainer: TorchTrainer
    evaluator: TorchEvaluator
    initial_weights: FloatArray


def build(config: Config) -> Experiment:
    """Load data and model and compose the scheme; the configuration must be resolved (no "auto" left)."""
    data = load_fashion_mnist(config.data.source)
    rng = generator(config.seed, "partition")
    if config.data.partition == "dirichlet":
        partition = dirichlet_shards(data.train_labels, config.data.clients, config.data.alpha, rng)
    else:
        partition = iid_shards(len(data.train_labels), config.data.clients, rng)
    module = keras_initialise(
        FashionCNN(config.model.filters, config.model.hidden), generator(config.seed, "initial weights")
    )
    sgd = LocalSGD(
        steps=config.training.local_steps,
        batch_size=config.training.batch_size,
        learning_rate=config.training.learning_rate,
        batches=config.training.batches,
    )
    device = config.runtime.device
    return Experiment(
        scheme=scheme_of(config).for_layers(layer_sizes(module)),
        schedule=schedule_of(config),
        trainer=TorchTrainer(module, ImageClients(data.train_images, data.train_labels, partition), sgd, device=device),
        evaluator=TorchEvaluator(module, data.test(), device=device),
        initial_weights=model_vector(module),
    )


def scheme_of(config: Config) -> Scheme:
    """The scheme that a configuration describes."""
    privacy = config.privacy
    private = {} if privacy is None else {
        "clip_norm": privacy.clip_norm,
        "noise_multiplier": float(privacy.noise_multiplier),
        "delta": privacy.delta,
        "sampling": privacy.sampling,
        "roster": privacy.roster,
        "bits": privacy.bits,
        "dropouts": privacy.dropouts,
        "colluders": privacy.colluders,
        "adaptive_clip": privacy.clip == "adaptive",
        "max_contributions": privacy.max_contributions,
        "aggregation": privacy.secagg,
    }  # fmt: skip
    return make_scheme(
        config.federation.scheme,
        num_clients=config.data.clients,
        cohort=config.federation.cohort,
        ratio=config.codec.ratio,
        chunks=config.codec.chunks,
        signs=config.codec.signs,
        decoder=config.decoder.kind,
        lambda_rule=config.decoder.lambda_rule,
        lambda_factor=config.decoder.lambda_factor,
        solver=config.decoder.solver,
        tolerance=config.decoder.tolerance,
        max_iterations=config.decoder.max_iterations,
        server_rate=config.server.rate,
        momentum=config.server.momentum,
        seed=config.seed,
        **private,  # type: ignore[arg-type]
    )


def schedule_of(config: Config) -> Schedule:
    """The schedule that a configuration describes."""
    return Schedule(
        rounds=int(config.federation.rounds),
        target_epsilon=config.privacy.target_epsilon if config.privacy else None,
        evaluate_every=config.evaluation.every,
        attempts=config.federation.attempts,
    )
