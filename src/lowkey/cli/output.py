"""What commands share: the JSON line for scripts, byte counts for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from lowkey.errors import LowkeyError
from lowkey.rounding import round_up

JsonOption = Annotated[bool, typer.Option("--json", help="End standard output with one line of JSON, for scripts.")]


@contextmanager
def torch_needed() -> Iterator[None]:
    """Imports of what needs PyTorch: says how to get it where it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise LowkeyError("simulation needs PyTorch; install it with: pip install 'lowkey[torch]'") from None


@contextmanager
def flower_needed() -> Iterator[None]:
    """Imports of what needs Flower: says how to get it where it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "flwr":
            raise
        raise LowkeyError("deployment needs Flower; install it with: pip install 'lowkey[flower]'") from None


@contextmanager
def hospital_needed() -> Iterator[None]:
    """Imports of what reads hospital data: says how to get it where it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("polars", "sklearn"):
            raise
        raise LowkeyError("hospital data needs polars and scikit-learn: pip install 'lowkey[hospital]'") from None


def emit(value: Any) -> None:
    """The JSON line."""
    typer.echo(json.dumps(value))


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
