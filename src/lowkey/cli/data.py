"""``lowkey data check | describe``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lowkey.cli.output import JsonOption, echo_lines, emit

app = typer.Typer(help="Public data sets that Lowkey can learn from.")


@app.callback()
def _data() -> None:
    """Public data sets that Lowkey can learn from."""


@app.command("check")
def check(
    source: Annotated[str, typer.Argument(help="diabetes130 or sih-sus.")],
    path: Annotated[Path, typer.Argument(help="The CSV file, plain, .gz or .zip, or a directory that holds it.")],
    *,
    any_version: Annotated[
        bool, typer.Option("--any-version", help="Tell what a file holds that is not the reference file.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check a copy of a public data set: checksum, rows, deaths, and the cohort that is learned from."""
    from lowkey.data.hospital import check_source

    found = check_source(source, path, any_version=any_version)
    if as_json:
        emit(found.to_json())
        return
    counts = found.counts
    hospitals = "" if counts.hospitals is None else f", {counts.hospitals:,} hospitals"
    lines = {
        "file": found.path,
        "sha256": found.sha256,
        "all": _share(counts.rows, counts.deaths),
        "cohort": _share(counts.cohort_rows, counts.cohort_deaths) + hospitals,
        "verdict": "the reference file" if found.reference else "another version: results will not be comparable",
    }
    for name, value in lines.items():
        typer.echo(f"{name:>7}  {value}")


@app.command("describe")
def describe(
    preset: Annotated[str, typer.Argument(help="A preset hospital/... ('lowkey presets list') or a TOML file.")],
    *,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting, as in --set data.clients=100; may be repeated.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell who would learn from what: clients, features, training and test rows, deaths, and who is left out."""
    from lowkey.cli.run import load_config
    from lowkey.experiments.tasks import hospital_data_of

    found = hospital_data_of(load_config(preset, assignments or [])).summary()
    if as_json:
        emit(found)
    else:
        echo_lines({name.replace("_", " "): f"{value:,}" for name, value in found.items()})


def _share(rows: int, deaths: int) -> str:
    return f"{rows:,} admissions, {deaths:,} deaths ({deaths / max(rows, 1):.2%})"
