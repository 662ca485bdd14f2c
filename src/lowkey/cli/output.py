"""What all commands use: common options, a line of JSON for scripts, aligned lines for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from lowkey.errors import LowkeyError
from lowkey.extras import how_to_install

JsonOption = Annotated[bool, typer.Option("--json", help="End standard output with one line of JSON, for scripts.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting, as in --set codec.ratio=0.1; may be given several times."),
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]


@contextmanager
def extra_needed() -> Iterator[None]:
    """Turn a missing optional library into an error that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        advice = how_to_install(error)
        if advice is None:
            raise
        raise LowkeyError(advice) from None


def emit(value: Any) -> None:
    """Print one line of JSON."""
    typer.echo(json.dumps(value))


def echo_lines(lines: Mapping[str, object]) -> None:
    """Print names and values, aligned at one column."""
    width = max(9, *map(len, lines))
    for name, value in lines.items():
        typer.echo(f"{name:>{width}}  {value}")
