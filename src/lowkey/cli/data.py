"""``lowkey data check | describe``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lowkey.cli.output import JsonOption, SetOption, echo_lines, emit
from lowkey.errors import ConfigError

app = typer.Typer(help="Public data sets that Lowkey can learn from.")


@app.command("check")
def check(
    source: Annotated[str, typer.Argument(help="Name of the data set, such as diabetes130 or sih-sus.")],
    path: Annotated[Path, typer.Argument(help="The CSV file, plain, .gz or .zip, or a directory that holds it.")],
    *,
    any_version: Annotated[
        bool, typer.Option("--any-version", help="Accept a file that is not the reference file, and describe it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check a copy of a public data set: its checksum, its rows, and the rows that a model learns from."""
    from lowkey.tasks import TASKS

    checks = [task.check_file for name in TASKS if (task := TASKS[name]).check_file is not None]
    found = next(
        (result for each in checks if (result := each(source, path, any_version=any_version)) is not None), None
    )
    if found is None:
        raise ConfigError(f"no data set is called {source!r}; docs/hospital.md lists the names")
    if as_json:
        emit(found.to_json())
    else:
        echo_lines(found.lines())


@app.command("describe")
def describe(
    preset: Annotated[str, typer.Argument(help="A preset ('lowkey presets list') or a TOML file.")],
    *,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a run would learn from: clients, features, training and test rows, and who is left out."""
    from lowkey.experiments import load_config

    config = load_config(preset, assignments or [])
    describe_data = config.find_task().describe
    if describe_data is None:
        raise ConfigError(f"the task {config.task!r} has no description of its data; choose a preset hospital/...")
    found = describe_data(config.study)
    if as_json:
        emit(dict(found))
    else:
        echo_lines({name.replace("_", " "): f"{value:,}" for name, value in found.items()})
