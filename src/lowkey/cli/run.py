"""``lowkey run``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lowkey.cli.output import JsonOption, emit, human_bytes, human_epsilon, torch_needed

if TYPE_CHECKING:  # imported when a command needs it, so that --help answers at once
    from lowkey.experiments import Config


_STOPPED = {"rounds": "all that were asked for", "privacy target": "the next would pass privacy.target_epsilon"}


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
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train by a preset or TOML file, simulated on this machine.

    Everything goes into the run directory: settings, metrics of every round, checkpoints and, for private schemes, the
    ledger of spent privacy. Stop with Ctrl-C whenever you like and go on with --resume.
    """
    from lowkey.errors import ConfigError, RunError
    from lowkey.experiments import RunDirectory

    changes = list(assignments or [])
    if rounds is not None:
        changes.append(f"federation.rounds={rounds}")
    if seed is not None:
        changes.append(f"seed={seed}")
    if preset is not None:
        config = load_config(preset, changes)
    elif resume and out is not None:
        config = load_config(RunDirectory.open(out).config, changes)
    else:
        raise ConfigError("name a preset ('lowkey presets list' shows them) or a TOML file")
    directory = out or Path("runs") / f"{config.name.replace('/', '_')}-seed{config.seed}"
    if resume and not directory.exists():
        raise RunError(f"{directory} does not exist, so there is nothing to resume; leave out --resume to start it")
    result = play(config, directory, resume=resume, quiet=quiet, tracker=track)
    if as_json:
        emit(result)
    else:
        _print(result, directory, config.paper.model_dump() if config.paper else None)


def load_config(source: str | Config, changes: Sequence[str] = ()) -> Config:
    """A resolved configuration from a preset, a TOML file or an earlier run."""
    from lowkey.experiments import find, override, parse

    table = find(source) if isinstance(source, str) else source.model_dump(mode="json", exclude_none=True)
    return parse(override(table, changes)).resolve()


def play(
    config: Config, directory: Path, *, resume: bool = False, quiet: bool = False, tracker: str | None = None
) -> dict[str, Any]:
    """Run an experiment with progress on standard error."""
    from lowkey.cli.progress import RunProgress
    from lowkey.experiments.trackers import open_tracker

    with torch_needed():
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
    accuracy = result["final_accuracy"]
    lines = {
        "run": directory,
        "rounds": f"{result['rounds']}, {_STOPPED[result['stopped']]}",
        "accuracy": f"{accuracy:.4f} final, {result['best_accuracy']:.4f} best (round {result['best_round']})",
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
        lines["paper"] = f"{paper['accuracy']:.2f} best (round {paper['round']}{spent})"
    for name, value in lines.items():
        typer.echo(f"{name:>9}  {value}")
    typer.echo(f"{'report':>9}  lowkey report {directory}")
