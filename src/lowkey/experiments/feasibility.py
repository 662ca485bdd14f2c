"""Before a private run starts: what its attempts cost, and whether its signal can be seen in the noise."""

from __future__ import annotations

import lowkey.privacy as of_privacy  # its analysis is imported where a private run needs it
from lowkey.experiments.config import Config
from lowkey.federation import Scheme, events_at_limit, planned_events
from lowkey.figures import human_epsilon
from lowkey.privacy import ClientMechanism, spare_attempts


def prospects(config: Config, num_coordinates: int) -> str | None:
    """Two lines about a resolved configuration and a model of this size: price, signal; None without privacy."""
    settings, rounds = config.privacy, config.schedule.last_round
    if settings is None:
        return None
    scheme = config.priced_scheme(num_coordinates)
    price = _price(config, scheme, rounds, spare_attempts(rounds, settings.spare_attempts))
    if not scheme.learns:
        return price
    return f"{price}\n{of_privacy.feasibility(signal_of(config.scheme(), num_coordinates))}"


def signal_of(scheme: Scheme, num_coordinates: int) -> float:
    """Signal to noise of one number in the sum of a round of a private scheme, for a model of this size."""
    privacy = scheme.privacy
    promise = privacy.promise()
    assert promise is not None  # the scheme is private
    measurements = scheme.operator(num_coordinates, 1).num_measurements
    contributors = privacy.settings.persons if isinstance(privacy, ClientMechanism) else None
    return of_privacy.signal_to_noise(
        contributors or privacy.sampling.expected_size, promise.noise_multiplier, measurements
    )


def _price(config: Config, scheme: Scheme, rounds: int, spare: int) -> str:
    """What the rounds cost, what spare attempts add, and what the server may learn at the clients' limit."""
    privacy = scheme.privacy
    event, limit, delta = privacy.event(), privacy.max_contributions, privacy.delta
    assert event is not None  # a scheme has noise
    before, at_most = (config.events_before(reserved=reserved) for reserved in (False, True))
    alone, reserved = (
        human_epsilon(of_privacy.claimed_epsilon(events, delta))
        for events in (
            [*before, *planned_events(scheme, rounds, failed_openings=0)],
            [*at_most, *planned_events(scheme, rounds + spare)],
        )
    )
    spare += sum(event.count for event in at_most) - sum(event.count for event in before)
    asked = len(scheme.asked) + len(config.asked_before)
    what = f"{rounds} rounds" + (f" and {asked} {'answer' if asked == 1 else 'answers'}" if asked else "")
    if not scheme.learns:
        what, spare = what.removeprefix("0 rounds and "), scheme.privacy.max_contributions or 0
        spare -= asked
    line = f"noise {event.noise_multiplier:.4f}: ε {alone} after {what}"
    if spare:
        line += f", {reserved} if {spare} spare {'attempt is' if spare == 1 else 'attempts are'} needed"
    if limit is None:
        return f"{line}; clients have no limit, so ε for the server grows with every attempt"
    server = human_epsilon(of_privacy.server_view([*at_most, *events_at_limit(scheme)], delta))
    early = ", as all do before the last round" if privacy.sampling.probability == 1 and limit < rounds else ""
    whom = "a client" if event.unit == "client" else f"one {event.unit} at a client"
    return f"{line}; {server} for the server, about {whom} that reaches its limit of {limit}{early}"
