"""The last step of every solver: lower the few correlations that still exceed λ.

Near the optimum the objective is right long before the gap says so: the dual point is the residual, shrunk until no
correlation exceeds λ, and a single peak shrinks it for the whole block. One exact step of coordinate descent at each
peak, with correlations of all coordinates kept up to date, removes the peaks where a solver would need many more
iterations over all coordinates.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lowkey.codec.solvers.certificate import Certificate, certify
from lowkey.codec.solvers.problem import Floats, Problem
from lowkey.codec.solvers.threads import Threads

_NEAR = 10.0  # gap over tolerance below which little but peaks is left, by experiment


def certify_lowered(problem: Problem, s: Floats, tolerance: float, threads: Threads) -> Certificate:
    """Judge ``s``; if it is near the optimum, lower its peaks in place and judge it again."""
    from lowkey.codec.solvers.kernels import lower_peaks  # compiled on import, so imported only when needed

    state = certify(problem, s)
    if state.reached(tolerance) or not state.reached(_NEAR * tolerance):
        return state
    undone, lam = np.flatnonzero(state.gap > tolerance * state.objective), s.dtype.type(problem.lam)
    table = gram_table(problem.length, problem.y.shape[1]).astype(s.dtype)
    threads.over(len(undone), lower_peaks, s, undone, state.correlation, lam, table, tolerance)
    return certify(problem, s)


@lru_cache(maxsize=4)
def gram_table(length: int, kept: int) -> NDArray[np.float64]:
    """h with ⟨column i, column j⟩ = h[|i − j|] + h[i + j + 1]: a sum of cosines, in closed form."""
    distance = np.arange(1, 2 * length)
    half = np.pi / (2 * length)
    h = np.sin((2 * kept - 1) * half * distance) / (2 * length * np.sin(half * distance))
    return np.concatenate([[(kept - 0.5) / length], h, [(kept - 0.5) / length]])
