"""Numbers as text for people, rounded so that they never promise more than is true."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def round_up(value: float, decimals: int) -> float:
    """``value`` rounded up to this many decimals; used for every ε that is shown."""
    scale = 10.0**decimals
    return math.ceil(value * scale) / scale


def human_bytes(count: float) -> str:
    """A byte count with a unit, to three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def human_megabits(count: float) -> str:
    """A byte count in 10⁶ bits, to three digits or whole."""
    megabits = 8 * count / 1e6
    return f"{megabits:,.0f} Mbit" if megabits >= 100 else f"{megabits:.3g} Mbit"


def human_epsilon(value: float | None, decimals: int = 4) -> str:
    """An ε, rounded up, or a dash if there is none."""
    return "–" if value is None else f"{round_up(value, decimals):.{decimals}f}"


def human(value: Any) -> str:
    """A cell of a table: numbers with four digits that count, or as many as they have before the point."""
    if value is None:
        return "–"
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def titled(name: str) -> str:
    """The name of a measure in words."""
    return name.replace("_", " ").replace("auroc", "AUROC").replace("brier", "Brier score")


def with_ranges(columns: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    """Columns of an answer as text; those of lower and upper ends go behind what they are the ends of.

    Ends of ``x`` are called ``x_low`` and ``x_high``, ``x low`` and ``x high``, or, if they follow it, ``low`` and
    ``high``.
    """
    names = list(columns)
    ends: dict[str, tuple[str, str]] = {}
    for place, name in enumerate(names):
        choices = [(f"{name}_low", f"{name}_high"), (f"{name} low", f"{name} high")]
        if names[place + 1 : place + 3] == ["low", "high"]:
            choices.append(("low", "high"))
        ends |= [(name, pair) for pair in choices if all(end in columns for end in pair)]
    hidden = {end for pair in ends.values() for end in pair}
    shown = {}
    for name in names:
        if name in hidden:
            continue
        texts = [human(value) for value in columns[name]]
        if name in ends:
            low, high = (columns[end] for end in ends[name])
            texts = [
                text if least is None else f"{text} ({human(least)} to {human(most)})"
                for text, least, most in zip(texts, low, high, strict=True)
            ]
        shown[titled(name)] = texts
    return shown
