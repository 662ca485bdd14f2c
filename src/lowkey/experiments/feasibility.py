"""Before a private run starts: what its attempts cost, and whether its signal can be seen in the noise."""

from __future__ import annotations

from dataclasses import replace

import lowkey.privacy as of_privacy  # its analysis is imported where a private run needs it
from lowkey.experiments.config import Config
from lowkey.federation import Scheme
from lowkey.figures import human_epsilon
from lowkey.privacy import Privacy, spare_attempts


def prospects(config: Config, num_coordinates: int) -> str | None:
    """Two lines about a resolved configuration and a model of this size: price, signal; None without privacy."""
    scheme, settings, rounds = config.scheme(), config.privacy, config.schedule.last_round
    if settings is None:
        return None
    signal = signal_of(scheme, num_coordinates)
    price = _price(scheme.privacy, rounds, spare_attempts(rounds, settings.spare_attempts))
    return f"{price}\n{of_privacy.feasibility(signal)}"


def signal_of(scheme: Scheme, num_coordinates: int) -> float:
    """Signal to noise of one number in the sum of a round of a private scheme, for a model of this size."""
    promise = scheme.privacy.promise()
    assert promise is not None  # the scheme is private
    measurements = scheme.operator(num_coordinates, 1).num_measurements
    return of_privacy.signal_to_noise(scheme.privacy.sampling.expected_size, promise.noise_multiplier, measurements)


def _price(privacy: Privacy, rounds: int, spare: int) -> str:
    """What the rounds cost, what spare attempts add, and what the server may learn at the clients' limit."""
    event, limit, delta = privacy.event(), privacy.max_contributions, privacy.delta
    assert event is not None  # a scheme has noise
    alone, reserved = (
        human_epsilon(of_privacy.claimed_epsilon([replace(event, count=n)], delta)) for n in (rounds, rounds + spare)
    )
    line = f"noise {event.noise_multiplier:.4f}: ε {alone} after {rounds} rounds"
    if spare:
        line += f", {reserved} if {spare} spare {'attempt is' if spare == 1 else 'attempts are'} needed"
    if limit is None:
        return f"{line}; clients have no limit, so ε for the server grows with every attempt"
    server = human_epsilon(of_privacy.server_epsilon(event.noise_multiplier, limit, delta, coin=event.coin))
    early = ", as all do before the last round" if privacy.sampling.probability == 1 and limit < rounds else ""
    return f"{line}; {server} for the server, about a client that reaches its limit of {limit}{early}"
