"""Run a configured experiment in a run directory, with all clients simulated on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lowkey.experiments import Config, RunDirectory
from lowkey.experiments.build import build
from lowkey.experiments.play import Runtime, play
from lowkey.federation import RunState
from lowkey.protocols import Observer
from lowkey.rng import OSSecrets, Secrets
from lowkey.simulation.keys import SimulatedKeys
from lowkey.simulation.memory import Memory
from lowkey.simulation.runtime import open_runtime
from lowkey.timing import StageClock


def run_experiment(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    observers: Sequence[Observer] = (),
    started: Callable[[RunState], None] = lambda _state: None,
    secrets: Secrets | None = None,
) -> dict[str, Any]:
    """Play all rounds of ``config``; see :func:`lowkey.experiments.play.play`."""
    secrets = secrets or OSSecrets()
    experiment = build(config)

    @contextmanager
    def simulated(directory: RunDirectory, clock: StageClock) -> Iterator[Runtime]:
        keys = SimulatedKeys(config.data.clients, secrets)
        with open_runtime(
            scheme=experiment.scheme,
            trainer=experiment.trainer,
            secrets=secrets,
            clock=clock,
            workers=config.runtime.workers,
            device=config.runtime.device,
            memory=Memory(directory.path / "clients.json" if experiment.scheme.private else None),
            keys=keys,
        ) as ask:
            yield Runtime(ask=ask, directory=keys.directory)

    return play(
        config,
        out,
        experiment,
        simulated,
        resume=resume,
        observers=observers,
        started=started,
        secrets=secrets,
    )
