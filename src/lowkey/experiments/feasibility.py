"""Before a private run starts: whether its signal can be seen in the noise."""

from __future__ import annotations

from lowkey.experiments.config import Config
from lowkey.privacy import feasibility, signal_to_noise


def prospects(config: Config, num_coordinates: int) -> str | None:
    """One line about a resolved configuration and a model of this size; None without privacy."""
    scheme = config.scheme()
    promise = scheme.privacy.promise()
    if promise is None:
        return None
    measurements = scheme.operator(num_coordinates, 1).num_measurements
    contributors = scheme.privacy.sampling.expected_size
    return feasibility(signal_to_noise(contributors, promise.noise_multiplier, measurements))
