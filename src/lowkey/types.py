"""Names for the arrays and numbers that modules exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float32]
"""Model vectors (length n), measurements (length m) and blocks of either: always float32."""

Bits: TypeAlias = NDArray[np.uint64]
"""Random 64-bit words."""

Words: TypeAlias = NDArray[np.uint32]
"""Integers modulo a power of two: what private clients send, and their sum."""

ClientId: TypeAlias = int

Evaluation: TypeAlias = Mapping[str, float | Sequence[Sequence[float]]]
"""Metrics of a model by name: numbers, and tables as lists of rows."""
