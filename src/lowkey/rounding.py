"""Figures for people that never promise more than is true."""

from __future__ import annotations

import math


def round_up(value: float, decimals: int) -> float:
    """The next number with so many decimals at or above ``value``; for every ε that is shown."""
    scale = 10.0**decimals
    return math.ceil(value * scale) / scale
