"""The model of a finished run, evaluated by all its clients on their own test rows; paid for in the run's ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lowkey.errors import ConfigError, InvalidInput, RunError
from lowkey.experiments import Config, RunDirectory, build, override, parse
from lowkey.federation import RunState, released_model
from lowkey.privacy import Ledger, calibrate_noise, make_sampling
from lowkey.protocols import Observer
from lowkey.rng import Secrets
from lowkey.simulation.experiment import run


def evaluation_config(
    path: Path | str, *, epsilon: float | None = None, changes: Sequence[str] = ()
) -> tuple[Config, Path]:
    """The settings of an evaluation of the model in a run directory, and the directory for it, inside that one.

    Parameters
    ----------
    path : Path
        The run directory.
    epsilon : float or None
        What the run and all its evaluations may cost together. Needed where the run is private.
    changes : sequence of str
        Settings to change, such as ``"evaluation.question.prevalence=0.02"``.

    Raises
    ------
    ConfigError
        When the ledger leaves no room for an evaluation within ``epsilon``.
    """
    path = Path(path)
    before = RunDirectory.open(path).config
    table = before.to_table()
    table["schedule"] |= {"rounds": 0, "calibration": 0, "patience": 0}
    table["evaluation"] = {"where": "clients", "question": table["evaluation"]["question"]}
    table.pop("questions", None)
    if before.privacy is not None:
        if epsilon is None:
            raise ConfigError(
                "the run is private; say what it and its evaluations may cost together: --epsilon, above "
                "what the run has spent ('lowkey status' shows that)"
            )
        file = Path(before.federation.ledger or path / "ledger.jsonl").resolve()
        with Ledger.read(file) as ledger:
            spent = list(ledger.events)
        everybody = make_sampling("all", population=before.federation.clients, cohort=before.federation.clients)
        try:
            noise = calibrate_noise(everybody, epsilon=epsilon, delta=before.privacy.delta, rounds=2, beside=spent)
        except InvalidInput as error:
            raise ConfigError(f"no evaluation fits into epsilon = {epsilon:g}: {error}") from error
        table["federation"]["ledger"] = str(file)
        chosen = ("noise_multiplier", "max_contributions", "spare_attempts", "rounds", "sampling", "roster", "spent")
        for name in chosen:
            table["privacy"].pop(name, None)
        table["privacy"] |= {"epsilon": epsilon, "asking_noise": noise}
    config = parse(override(table, changes)).resolve()
    number = 1 + sum(1 for _ in path.glob("evaluation-*"))
    return config, path / f"evaluation-{number}"


def evaluate_run(
    path: Path | str,
    config: Config,
    out: Path,
    *,
    observers: Sequence[Observer] = (),
    started: Callable[[RunState], None] = lambda _state: None,
    secrets: Secrets | None = None,
) -> dict[str, Any]:
    """Ask the clients of a run about the scores of its model.

    Parameters
    ----------
    path : Path
        The run directory.
    config, out : Config, Path
        From :func:`evaluation_config`.
    observers, started, secrets :
        As in :func:`lowkey.simulation.run`.

    Returns
    -------
    dict
        The summary; estimates are its ``final_…``, and all answers are in answers.json.
    """
    directory = RunDirectory.open(Path(path))
    with Ledger(None, run="") if config.privacy is None else Ledger.read(Path(str(config.federation.ledger))) as ledger:
        state = directory.load_checkpoint(ledger)
    if state is None:
        raise RunError(f"{path} has no model yet; run it first")
    model = released_model(directory.config.scheme(), state)
    experiment = replace(build(config), initial_weights=model)
    return run(config, out, experiment=experiment, observers=observers, started=started, secrets=secrets)
