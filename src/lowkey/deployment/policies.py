"""The policy of a node: where it is, and safe defaults for an app."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import cast

from lowkey.deployment.home import POLICY_FILE
from lowkey.durable import replace_file
from lowkey.errors import ConfigError
from lowkey.experiments import Config
from lowkey.federation import events_at_limit
from lowkey.figures import round_up
from lowkey.privacy import Event, Policy


def read_policy(home: Path) -> Policy:
    """The policy of a node; a node of a private scheme must have one."""
    path = home / POLICY_FILE
    if not path.exists():
        raise ConfigError(
            f"{path} is missing: without it nothing limits what this node gives over all apps and runs; run 'lowkey "
            f"flower approve APP --home {home}' with the directory of the app, which writes one, and review it"
        )
    return Policy.from_toml(path)


def default_policy(config: Config) -> Policy | None:
    """The strictest policy under which an app with these settings can run; None for schemes without privacy.

    Guarantees
    ----------
    It accepts no less noise, no fewer members and no fewer colluders than the app has, and no more participations or ε
    over all apps and runs than the app's own limit allows.
    """
    from lowkey.privacy import server_view

    scheme = config.priced_scheme()
    privacy, promise = scheme.privacy, scheme.privacy.promise()
    if promise is None or config.privacy is None:
        return None
    limit = privacy.max_contributions
    if limit is None:  # unlimited: what a client may expect to be asked for
        limited = replace(config, privacy=replace(config.privacy, max_contributions="auto")).resolve()
        scheme = limited.priced_scheme()
        limit = scheme.privacy.max_contributions or config.schedule.last_round
    events = events_at_limit(scheme) or [replace(cast(Event, privacy.event()), count=limit)]
    noise = min(cast(Event, phase.privacy.event()).noise_multiplier for phase in scheme.phases.values())
    return Policy(
        min_noise_multiplier=_round_down(noise),
        min_roster=privacy.sampling.roster_size,
        min_honest=promise.shares.honest,
        min_tolerated_colluders=promise.shares.colluders,
        max_participations=limit,
        max_epsilon=round_up(server_view(events, promise.delta), 2),
        delta=promise.delta,
        unit=promise.unit,
        max_failure=promise.shares.failure,
    )


def write_default_policy(path: Path, config: Config) -> Policy | None:
    """Write the default policy of an app to a file; for schemes without privacy there is none, and no file."""
    policy = default_policy(config)
    if policy is not None:
        head = (
            f"# What a node insists on, over all apps and runs: the limits of the app '{config.name}'. Review them.\n"
        )
        replace_file(path, (head + policy.to_toml()).encode())
    return policy


def _round_down(value: float) -> float:
    """To 6 digits: noise that was calibrated on another machine may differ in the last ones."""
    scale = 10.0 ** (5 - math.floor(math.log10(value)))
    return math.floor(value * scale) / scale
