"""``lowkey run``."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lowkey.cli.output import JsonOption, echo_lines, emit, human_bytes, human_epsilon
from lowkey.errors import ConfigError, RunError

if TYPE_CHECKING:  # imported when a command needs it, so that --help answers at once
    from lowkey.experiments import Config


_STOPPED = {"rounds": "all that were asked for", "privacy target": "the next would pass privacy.target_epsilon"}


class Runtime(StrEnum):
    """What carries the messages."""

    SIMULATION = "simulation"
    FLOWER = "flower"


def run(
    preset: Annotated[
        str | None, typer.Argument(help="A preset ('lowkey presets list') or a TOML file; optional with --resume.")
    ] = None,
    *,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting, as in --set codec.ratio=0.1; may be repeated.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds; short for --set federation.rounds=...")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all reproducible choices; short for --set seed=...")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; by default runs/PRESET-seedSEED.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run in --out stopped.")] = False,
    track: Annotated[
        str | None, typer.Option(help="Also send metrics to a tracker: 'tensorboard' writes into the run directory.")
    ] = None,
    runtime: Annotated[
        Runtime, typer.Option(help="'flower' starts real servers and nodes on this machine instead of simulating them.")
    ] = Runtime.SIMULATION,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="With --runtime flower: so many nodes, each with a share of the data.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train by a preset or TOML file, simulated on this machine or on a Flower federation on it.

    Everything goes into the run directory: settings, metrics of every round, checkpoints and, for private schemes, the
    ledger of spent privacy. Stop with Ctrl-C whenever you like and go on with --resume.
    """
    from lowkey.experiments import RunDirectory

    changes = list(assignments or [])
    if rounds is not None:
        changes.append(f"federation.rounds={rounds}")
    if seed is not None:
        changes.append(f"seed={seed}")
    if (nodes is not None) != (runtime is Runtime.FLOWER) and not (resume and nodes is None):
        raise ConfigError("--nodes and --runtime flower belong together; add the other one")
    if preset is not None:
        config = load_config(preset, changes, nodes=nodes)
    elif resume and out is not None:
        config = load_config(RunDirectory.open(out).config, changes, nodes=nodes)
    else:
        raise ConfigError("name a preset ('lowkey presets list' shows them) or a TOML file")
    directory = out or Path("runs") / f"{config.name.replace('/', '_')}-seed{config.seed}"
    if resume and not directory.exists():
        raise RunError(f"{directory} does not exist, so there is nothing to resume; leave out --resume to start it")
    if runtime is Runtime.FLOWER:
        result = deploy(config, directory, resume=resume, quiet=quiet, tracker=track)
    else:
        result = play(config, directory, resume=resume, quiet=quiet, tracker=track)
    if as_json:
        emit(result)
    else:
        _print(result, directory, config.paper.model_dump() if config.paper else None)


def load_config(source: str | Config, changes: Sequence[str] = (), *, nodes: int | None = None) -> Config:
    """A resolved configuration from a preset, a TOML file or an earlier run; with ``nodes``, for so many real ones."""
    from lowkey.experiments import find, override, parse

    table = find(source) if isinstance(source, str) else source.model_dump(mode="json", exclude_none=True)
    config = parse(override(table, changes))
    if nodes is not None:
        from lowkey.deployment import for_nodes

        config = for_nodes(config, nodes)
    return config.resolve()


def play(
    config: Config, directory: Path, *, resume: bool = False, quiet: bool = False, tracker: str | None = None
) -> dict[str, Any]:
    """Run an experiment with progress on standard error."""
    from lowkey.cli.progress import RunProgress
    from lowkey.experiments.trackers import open_tracker
    from lowkey.simulation import run_experiment

    with RunProgress(int(config.federation.rounds), quiet=quiet) as progress, open_tracker(tracker, directory) as extra:
        try:
            return run_experiment(
                config,
                directory,
                resume=resume,
                observers=[progress, *extra],
                started=lambda state: progress.begin(state.round, _prospects(config, state.weights.size)),
            )
        except KeyboardInterrupt:
            typer.echo(f"\nstopped; go on with: lowkey run --resume --out {directory}", err=True)
            raise


def deploy(
    config: Config, directory: Path, *, resume: bool = False, quiet: bool = False, tracker: str | None = None
) -> dict[str, Any]:
    """Run on a Flower federation on this machine, with progress on standard error."""
    from lowkey.cli.progress import RunProgress

    if tracker is not None:
        raise ConfigError("--track works with simulations; a deployed run writes metrics.jsonl and the report reads it")
    from lowkey.deployment import run_locally

    with RunProgress(int(config.federation.rounds), quiet=quiet) as progress:
        try:
            return run_locally(config, directory, resume=resume, observe=progress.show, say=progress.say)
        except KeyboardInterrupt:
            typer.echo(
                f"\nstopped; go on with: lowkey run --resume --out {directory} --runtime flower "
                f"--nodes {config.data.clients}",
                err=True,
            )
            raise


def _prospects(config: Config, num_coordinates: int) -> str | None:
    """Whether learning can be seen through the noise of a private run, in one line."""
    from lowkey.experiments.schemes import scheme_of
    from lowkey.privacy import feasibility, signal_to_noise

    if config.privacy is None:
        return None
    measurements = scheme_of(config).codec.operator(num_coordinates, 1).num_measurements
    contributors = config.sampling().expected_size
    return feasibility(signal_to_noise(contributors, float(config.privacy.noise_multiplier), measurements))


def _print(result: dict[str, Any], directory: Path, paper: dict[str, Any] | None) -> None:
    from lowkey.experiments.scores import values

    lines = {
        "run": directory,
        "rounds": f"{result['rounds']}, {_STOPPED[result['stopped']]}",
        **_scores(result),
        "upload": f"{human_bytes(result['bytes_up_per_client'])} per client and round",
    }
    if result["epsilon_pld"] is not None:
        lines["ε"] = (
            f"{human_epsilon(result['epsilon_pld'])} (PLD); {human_epsilon(result['epsilon_rdp'])} by RDP, "
            f"{human_epsilon(result['epsilon_paper'])} as the paper counts; for people who see the models"
        )
        lines["server"] = (
            f"ε {human_epsilon(result['epsilon_server'])} for the server, under secure aggregation, of a client that "
            "contributed as often as its limit allows"
        )
    if paper is not None:
        spent = f", ε {paper['epsilon']:g}" if paper["epsilon"] is not None else ""
        other = f", on other data ({paper['data']})" if paper["data"] is not None else ""
        lines["paper"] = f"{values(paper, 2)} best (round {paper['round']}{spent}){other}"
    lines["report"] = f"lowkey report {directory}"
    echo_lines(lines)


def _scores(result: dict[str, Any]) -> dict[str, str]:
    """Final and best values; where there are several scores, all are of the round in which the first was best."""
    from lowkey.experiments.scores import LABELS, headline

    first, *others = headline(result, "final_")
    if result[f"final_{first}"] is None:
        return {LABELS[first]: "not measured: there is no test data"}
    best = f"{result[f'best_{first}']:.4f} best (round {result['best_round']})"
    lines = {LABELS[first]: f"{result[f'final_{first}']:.4f} final, {best}"}
    for name in others:
        lines[LABELS[name]] = f"{result[f'final_{name}']:.4f} final, {result[f'best_{name}']:.4f} in the best round"
    return lines
