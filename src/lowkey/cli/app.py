"""Assembling the commands, and the one place where errors become exit codes."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

import lowkey
from lowkey.cli import audit, data, demo, encoder, flower, plan, presets, privacy, report, run, stats, status
from lowkey.cli.output import extra_needed
from lowkey.errors import LowkeyError

app = typer.Typer(
    name="lowkey",
    help="Federated learning whose updates are small (compressed) and discreet (differentially private).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("run")(run.run)
app.command("plan")(plan.plan)
app.command("demo")(demo.demo)
app.command("stats")(stats.stats)
app.command("evaluate")(stats.evaluate)
app.command("report")(report.report)
app.command("status")(status.status)
app.command("audit")(audit.audit)
app.add_typer(data.app, name="data")
app.add_typer(encoder.app, name="encoder")
app.add_typer(presets.app, name="presets")
app.add_typer(privacy.app, name="privacy")
app.add_typer(flower.app, name="flower")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lowkey {lowkey.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that come before a command."""


def main() -> None:
    """Entry point: 0 done, 1 an audit refuted a claim, 2 an error that the user can correct, 130 interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stopping a service cleans up just as Ctrl-C does
    try:
        with extra_needed():
            app()  # typer reports wrong arguments itself; its error classes differ between releases
    except LowkeyError as error:
        typer.echo(f"lowkey: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
