"""``lowkey report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lowkey.cli.output import JsonOption, emit


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, finished or still going.")],
    *,
    out: Annotated[Path, typer.Option(help="Where to write the report.")] = Path("report"),
    title: Annotated[str, typer.Option(help="Title of the report.")] = "Lowkey report",
    as_json: JsonOption = False,
) -> None:
    """Compare runs in a Markdown table, PNG curves and one HTML page that needs no other file."""
    from lowkey.report import write_report

    summaries, files = write_report(runs, out, title=title)
    if as_json:
        emit({"files": [str(file) for file in files], "runs": summaries})
        return
    typer.echo((out / "report.md").read_text(encoding="utf-8"))
    typer.echo(f"written: {', '.join(str(file) for file in files)}")
