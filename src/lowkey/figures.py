"""Numbers as text for people, rounded so that they never promise more than is true."""

from __future__ import annotations

import math


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
