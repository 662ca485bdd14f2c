"""Bounding what one client can contribute, in the compressed domain."""

from __future__ import annotations

import math

import numpy as np

from lowkey import checks
from lowkey.privacy.records import Bounded, Measurement

_BELOW = 1.0 - 2.0**-20  # float32 rounding of the scaled vector stays below this margin
_PRECISE = 2.0**-100  # smaller factors would lose digits in float32


def clip(measurement: Measurement, clip_norm: float) -> Bounded:
    """Scale a measurement down to norm ``clip_norm`` where it is longer.

    Parameters
    ----------
    measurement : finite vector; NaN or infinity raises InvalidInput.
    clip_norm : S > 0; infinity bounds nothing (limiting case).

    Guarantees
    ----------
    The exact Euclidean norm of the result is at most ``clip_norm``, rounding included. Vectors inside by a millionth
    or more pass unchanged.
    """
    checks.positive("privacy.clip_norm", clip_norm, allow_infinite=True)
    norm = checks.finite_norm("update", measurement.value)
    if norm <= clip_norm * _BELOW or math.isinf(clip_norm):
        return Bounded(measurement.value, clip_norm)
    factor = clip_norm * _BELOW**2 / norm
    if factor > _PRECISE:
        return Bounded(measurement.value * np.float32(factor), clip_norm)
    return Bounded((measurement.value.astype(np.float64) * factor).astype(np.float32), clip_norm)
