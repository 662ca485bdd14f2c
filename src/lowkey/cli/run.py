"""``lowkey run``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lowkey.cli.output import JsonOption, QuietOption, SetOption, echo_lines, emit
from lowkey.errors import ConfigError, RunError
from lowkey.figures import human_bytes, human_epsilon

if TYPE_CHECKING:  # imported when a command needs it, so that --help answers at once
    from lowkey.cli.progress import RunProgress
    from lowkey.experiments import Config
    from lowkey.protocols import Observer
    from lowkey.tasks import Score


_STOPPED = {
    "rounds": "all that were asked for",
    "privacy target": "the next one would exceed privacy.epsilon",
    "evaluation": "clients found nothing better any more",
}


class Runtime(StrEnum):
    """What carries requests to clients."""

    SIMULATION = "simulation"
    FLOWER = "flower"


def run(
    preset: Annotated[
        str | None, typer.Argument(help="A preset ('lowkey presets list') or a TOML file; optional with --resume.")
    ] = None,
    *,
    assignments: SetOption = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds; short for --set schedule.rounds=...")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all reproducible choices; short for --set seed=...")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; runs/PRESET-seedSEED by default.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out where it stopped.")] = False,
    track: Annotated[
        str | None, typer.Option(help="Also send metrics to a tracker: 'tensorboard' writes into the run directory.")
    ] = None,
    runtime: Annotated[
        Runtime, typer.Option(help="'flower' starts real servers and nodes on this machine instead of simulating them.")
    ] = Runtime.SIMULATION,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="With --runtime flower: how many nodes to start; each is one client.")
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a model as a preset or TOML file says: simulated, or on a Flower federation on this machine.

    Everything goes into the run directory: settings, metrics of every round, checkpoints and, for private schemes, the
    ledger of spent privacy. You can stop at any time with Ctrl-C and continue with --resume.
    """
    from lowkey.experiments import RunDirectory, load_config
    from lowkey.tasks import look_in

    changes = list(assignments or [])
    if rounds is not None:
        changes.append(f"schedule.rounds={rounds}")
    if seed is not None:
        changes.append(f"seed={seed}")
    if (nodes is not None) != (runtime is Runtime.FLOWER) and not (resume and nodes is None):
        raise ConfigError("--nodes and --runtime flower belong together; give both or neither")
    if preset is not None:
        config = load_config(preset, changes, nodes=nodes)
    elif resume and out is not None:
        look_in(Path())  # a task of your own, if you are where it is; a run directory does not say where code is
        config = load_config(RunDirectory.open(out).config, changes, nodes=nodes)
    else:
        raise ConfigError("no preset is given; name one ('lowkey presets list' shows them) or a TOML file")
    directory = out or Path("runs") / f"{config.name.replace('/', '_')}-seed{config.seed}"
    if resume and not directory.exists():
        raise RunError(f"{directory} does not exist, so there is nothing to resume; leave out --resume to start it")
    if runtime is Runtime.FLOWER:
        result = deploy(config, directory, resume=resume, quiet=quiet, tracker=track)
    else:
        result = simulate(config, directory, resume=resume, quiet=quiet, tracker=track)
    if as_json:
        emit(result)
    else:
        _print(result, directory, config)


def simulate(
    config: Config, directory: Path, *, resume: bool = False, quiet: bool = False, tracker: str | None = None
) -> dict[str, Any]:
    """Run with simulated clients, and show progress on standard error."""
    from lowkey import simulation
    from lowkey.experiments import prospects

    with observed(config, directory, quiet=quiet, tracker=tracker) as (progress, observers):
        return simulation.run(
            config,
            directory,
            resume=resume,
            observers=observers,
            started=lambda state: progress.begin(state.round, prospects(config, state.weights.size)),
        )


def deploy(
    config: Config, directory: Path, *, resume: bool = False, quiet: bool = False, tracker: str | None = None
) -> dict[str, Any]:
    """Run on a Flower federation on this machine, and show progress on standard error."""
    from lowkey.deployment import run_locally

    more = f" --runtime flower --nodes {config.federation.clients}"
    with observed(config, directory, quiet=quiet, tracker=tracker, more=more) as (progress, observers):
        return run_locally(config, directory, resume=resume, observers=observers, say=progress.say)


@contextmanager
def observed(
    config: Config, directory: Path, *, quiet: bool, tracker: str | None, more: str = ""
) -> Iterator[tuple[RunProgress, list[Observer]]]:
    """Progress and tracker of a run, and a hint how to continue when it is stopped."""
    from lowkey.cli.progress import RunProgress
    from lowkey.experiments import open_tracker

    scores = config.find_task().scores
    with (
        RunProgress(config.total_rounds, scores, quiet=quiet) as progress,
        open_tracker(tracker, directory) as extra,
    ):
        try:
            yield progress, [progress, *([] if extra is None else [extra])]
        except KeyboardInterrupt:
            typer.echo(f"\nstopped; continue with: lowkey run --resume --out {directory}{more}", err=True)
            raise


def _print(result: dict[str, Any], directory: Path, config: Config) -> None:
    from lowkey.experiments import values

    scores, paper = config.find_task().scores, config.paper
    lines = {
        "run": directory,
        "rounds": f"{result['rounds']}, {_STOPPED[result['stopped']]}",
        **_scores(result, scores),
        "upload": f"{human_bytes(result['bytes_up_per_client'])} per client and round",
    }
    if result["epsilon_pld"] is not None:
        lines["ε"] = (
            f"{human_epsilon(result['epsilon_pld'])} (PLD); {human_epsilon(result['epsilon_rdp'])} by RDP, "
            f"{human_epsilon(result['epsilon_paper'])} as the paper counts; for people who see the models"
        )
        at_limit = result["epsilon_server_limit"]  # what clients enforce, also where fewer attempts were made
        spent, whom = (
            (result["epsilon_server"], "was always asked") if at_limit is None else (at_limit, "is at its limit")
        )
        unit = (
            f"one {config.privacy.protected} at a client"
            if config.privacy and config.privacy.unit == "person"
            else "a client"
        )
        lines["server"] = f"ε {human_epsilon(spent)} for the server, under secure aggregation, about {unit} that {whom}"
    if paper is not None:
        spent = f", ε {paper.epsilon:g}" if paper.epsilon is not None else ""
        other = f", on other data ({paper.data})" if paper.data is not None else ""
        lines["paper"] = f"{values(paper.scores, scores, 2)} best (round {paper.round}{spent}){other}"
    lines["report"] = f"lowkey report {directory}"
    echo_lines(lines)


def _scores(result: dict[str, Any], scores: Sequence[Score]) -> dict[str, str]:
    """Final and best values; all best values are from the round in which the first score was best."""
    first, *others = scores
    if result[f"final_{first.name}"] is None:
        return {first.label: "not measured: there is no test data"}
    best = f"{result[f'best_{first.name}']:.4f} best (round {result['best_round']})"
    if f"final_{first.name}_interval" in result:
        return {score.label: _by_clients(result, score.name) for score in scores}
    lines = {first.label: f"{result[f'final_{first.name}']:.4f} final, {best}"}
    for score in others:
        final, in_best = result[f"final_{score.name}"], result[f"best_{score.name}"]
        lines[score.label] = f"{final:.4f} final, {in_best:.4f} in the best round"
    return lines


def _by_clients(result: dict[str, Any], name: str) -> str:
    """The final value that clients have found together, with its interval."""
    low, high = result[f"final_{name}_interval"]
    server = result.get(f"final_{name}_server")
    beside = "" if server is None else f"; {server:.4f} on the server's test data"
    return f"{result[f'final_{name}']:.4f} final, by clients; 95 % interval {low:.4f} to {high:.4f}{beside}"
