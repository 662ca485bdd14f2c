"""The scheme and the schedule that a configuration describes; no data and no PyTorch are needed for them."""

from __future__ import annotations

from lowkey.experiments.config import Config
from lowkey.federation import Schedule, Scheme, make_scheme


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
        min_clients=config.federation.min_clients,
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
