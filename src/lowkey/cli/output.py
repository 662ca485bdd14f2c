"""What commands share: the JSON line for scripts, byte counts for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from lowkey.errors import LowkeyError
from lowkey.extras import how_to_install
from lowkey.rounding import round_up

JsonOption = Annotated[bool, typer.Option("--json", help="End standard output with one line of JSON, for scripts.")]


@contextmanager
def extra_needed() -> Iterator[None]:
    """Says how to get an optional library where one is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        advice = how_to_install(error)
        if advice is None:
            raise
        raise LowkeyError(advice) from None


def emit(value: Any) -> None:
    """The JSON line."""
    typer.echo(json.dumps(value))


def echo_lines(lines: Mapping[str, object]) -> None:
    """Names to the right, values to the left of one column."""
    width = max(9, *map(len, lines))
    for name, value in lines.items():
        typer.echo(f"{name:>{width}}  {value}")


def human_bytes(count: float) -> str:
    """A byte count with a unit, three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def human_epsilon(value: float | None, decimals: int = 4) -> str:
    """An ε, rounded up, or a dash where there is none."""
    return "–" if value is None else f"{round_up(value, decimals):.{decimals}f}"
