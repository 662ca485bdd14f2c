"""``lowkey audit``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lowkey.cli.output import JsonOption, QuietOption, SetOption, emit
from lowkey.errors import ConfigError
from lowkey.figures import human_epsilon

if TYPE_CHECKING:  # imported when a command needs it, so that --help answers at once
    from lowkey.simulation import Audit


def audit(
    preset: Annotated[
        str, typer.Argument(help="A private preset ('lowkey presets list') or a TOML file.")
    ] = "fashion-mnist/fl-cs-dp-r0.05",
    *,
    assignments: SetOption = None,
    trials: Annotated[
        int, typer.Option(help="How often to guess whether one client is in the sum; more trials prove more.")
    ] = 100_000,
    canaries: Annotated[
        int, typer.Option(help="How many clients toss a coin whether to contribute; all coins are guessed together.")
    ] = 40_000,
    masked_rounds: Annotated[int, typer.Option(help="How many rounds to run under secure aggregation (slow).")] = 2,
    plant: Annotated[
        str | None,
        typer.Option(help="Plant a defect to check that the audit finds it: low-noise, missing-shares or no-clipping."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory for audit.json and audit.png.")] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Attack the privacy of one round and compare what the attack proves with what is claimed.

    Every trial runs the code of a real round: clip, encoding, noise, sum, server. The exit code is 1 if the claim is
    refuted.
    """
    from lowkey.experiments import load_config
    from lowkey.report import write_audit
    from lowkey.simulation import run_audit

    config = load_config(preset, assignments or [])
    if config.privacy is None:
        raise ConfigError(
            f"{config.federation.scheme} promises no privacy, so there is nothing to audit; choose a -dp scheme"
        )
    with _progress(quiet=quiet) as progress:
        found = run_audit(
            config.privacy,
            members=config.scheme().privacy.sampling.roster_size,
            trials=trials,
            canaries=canaries,
            guesses=max(1, canaries // 100),
            masked_rounds=masked_rounds,
            defect=plant,
            workers=os.cpu_count() or 1,
            progress=progress,
        )
    table = {"preset": config.name, **found.to_json()}
    files = write_audit(table, out) if out else []
    if as_json:
        emit(table | {"files": [str(file) for file in files]})
    else:
        _print(found, files)
    if not found.passed:
        raise typer.Exit(1)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("attacked rounds"), MofNCompleteColumn(), BarColumn(bar_width=24), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as bar:
        rounds = bar.add_task("rounds", total=None)
        yield lambda done, total: bar.update(rounds, completed=done, total=total)


def _print(found: Audit, files: list[Path]) -> None:
    two, one = found.two_world, found.one_run
    lines = {
        "claimed": f"ε = {human_epsilon(found.epsilon_claimed)}  one round, for a {found.unit} known to take part; "
        f"δ = {found.delta:g}, z = {found.noise_multiplier:g}",
        "two worlds": f"ε ≥ {two.epsilon:.4f}  {two.missed:,} of {two.present:,} present {found.unit}s missed, "
        f"{two.false_alarms:,} false alarms in {two.absent:,}",
        "one run": f"ε ≥ {one.epsilon:.4f}  {one.correct} of the {one.guesses} surest guesses right, "
        f"{one.canaries:,} canaries",
        "attacked": f"{found.rounds:,} rounds ({found.masked_rounds:,} under secure aggregation) of {found.members} "
        f"members and {found.coordinates:,} numbers, in {found.seconds:.0f} s",
    }
    if found.planted:
        lines["planted"] = found.planted
    lines["verdict"] = (
        "no bound is above the claim; this proves nothing about other attacks"
        if found.passed
        else "REFUTED: a lower bound is above the claim"
    )
    for name, value in lines.items():
        typer.echo(f"{name:>10}  {value}")
    if files:
        typer.echo(f"{'written':>10}  {', '.join(str(file) for file in files)}")
