"""Run a configured experiment in a run directory, with all clients simulated on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lowkey.experiments import ENCODER, Config, Connection, Experiment, RunDirectory, build, run_in_directory
from lowkey.federation import RunState
from lowkey.protocols import Observer
from lowkey.rng import OSSecrets, Secrets
from lowkey.simulation.keys import SimulatedKeys
from lowkey.simulation.memory import Memory
from lowkey.simulation.runtime import open_runtime
from lowkey.tabular import read_answers
from lowkey.timing import StageClock


def run(
    config: Config,
    out: Path | str,
    *,
    resume: bool = False,
    observers: Sequence[Observer] = (),
    started: Callable[[RunState], None] = lambda _state: None,
    secrets: Secrets | None = None,
    experiment: Experiment | None = None,
) -> dict[str, Any]:
    """Run all rounds of a configuration, with all clients simulated on this machine.

    Parameters
    ----------
    config : Config
        From :func:`lowkey.load_config`.
    out : Path
        Run directory for all files; new, or with ``resume`` an existing one, whose settings must agree. What must be
        asked before features can be made is asked first, in its directory "encoder", and once.
    observers : sequence of Observer
        Called with the metrics of every round.
    started : function
        Called once, when the first round is about to begin.
    secrets : Secrets or None
        For tests only.
    experiment : Experiment or None
        What was built from ``config`` already.

    Returns
    -------
    dict
        The summary of the run, also kept as result.json.
    """
    out, secrets = Path(out), secrets or OSSecrets()
    if experiment is None and config.asked_before:
        if not resume:
            RunDirectory.require_new(out)
        config, resume = _answered(config, out, secrets), resume and (out / "config.toml").exists()
    experiment = experiment or build(config)

    @contextmanager
    def simulated(directory: RunDirectory, clock: StageClock) -> Iterator[Connection]:
        keys = SimulatedKeys(config.federation.clients, secrets)
        with open_runtime(
            scheme=experiment.scheme,
            trainer=experiment.trainer,
            respondent=experiment.respondent,
            secrets=secrets,
            clock=clock,
            workers=config.runtime.workers,
            device=config.runtime.device,
            memory=Memory(
                directory.path / "clients.jsonl" if experiment.scheme.private else None, config.federation.clients
            ),
            keys=keys,
        ) as ask:
            yield Connection(ask=ask, verify_keys=keys.verify_keys, take_figures=ask.take_figures)

    return run_in_directory(
        config,
        out,
        experiment,
        simulated,
        resume=resume,
        observers=observers,
        started=started,
        secrets=secrets,
    )


def _answered(config: Config, out: Path, secrets: Secrets) -> Config:
    """The same with what clients answer beforehand; answers that are there already cost nothing again."""
    place = out / ENCODER
    run(config.asking(out / "ledger.jsonl"), place, resume=place.exists(), secrets=secrets)
    answered = config.find_task().answered
    assert answered is not None
    return replace(config, data=answered(config.study, read_answers(place / "answers.json")))
