"""What a solver gets, and what it returns."""

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
    y : Floats
        Measurements, shape (B, k).
    lam : float
        λ > 0, the same for all blocks.
    length : int
        L, the number of coordinates of a block.
    """

    y: Floats = field(repr=False)
    lam: float
    length: int


@dataclass(frozen=True)
class Solution:
    """Block solutions, shape (B, L), and the iterations they took."""

    s: Floats = field(repr=False)
    iterations: int
