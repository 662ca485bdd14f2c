"""What a solver is given, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating[Any]]
"""float32 in runs; float64 where a solver or a test wants more."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The LASSO of B blocks.

    Attributes
    ----------
    y : measurements, shape (B, k).
    lam : λ > 0, the same for all blocks.
    length : L, coordinates of a block.
    """

    y: Floats = field(repr=False)
    lam: float
    length: int


@dataclass(frozen=True)
class Solution:
    """Block solutions, shape (B, L), and the iterations they took."""

    s: Floats = field(repr=False)
    iterations: int
