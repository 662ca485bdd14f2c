"""Coordinate descent on a small working set, the default solver.

At a useful λ a block of thousands of coordinates has tens to hundreds that are not zero. Alternate:

1. Two transforms give the correlations Θᵀ(y − Θs) of all coordinates, and with them the duality gap. Blocks that are
   close enough to the optimum are finished.
2. The working set is the support and, of the coordinates that violate optimality, the local maxima: neighbouring
   columns of a low-pass Θ are nearly equal, so a peak stands for its surroundings.
3. Coordinate descent within the working set. Inner products of columns of Θ are sums of two entries of one table,
   so that nothing of size L is touched. Where a spike lies between two positions, two neighbours share it, and plain
   descent crawls along the valley between them; after each coordinate an exact step moves weight between it and its
   predecessor at a constant L1 norm.

Where the first working set is large, ADMM comes near the optimum first, so that few Gram matrices are needed; where it
is still large then, ADMM also finishes.

References
----------
Friedman, Hastie and Tibshirani (2010), *Regularization paths ...*, Section 2.2 (covariance updates).
Massias, Gramfort and Salmon (2018), *Celer: a fast solver for the Lasso with dual extrapolation* (working sets).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lowkey.codec.solvers.admm import by_admm
from lowkey.codec.solvers.certificate import certify
from lowkey.codec.solvers.problem import Problem, Solution
from lowkey.codec.solvers.threads import Threads

_INNER = 0.3  # how far the working set is solved, relative to the gap that is left: more would be thrown away
_LARGE_AT_FIRST = 600  # first working set from which ADMM finds the support sooner
_LARGEST = 1100  # working set above which transforms are cheaper than its Gram matrix
_ROUGH, _ROUGH_THRESHOLD = 30, 6.0  # its iterations then, and its threshold: soon near, if slow to finish


def by_active_set(problem: Problem, *, tolerance: float, max_iterations: int) -> Solution:
    """Uses as many threads as ``scipy.fft.get_workers`` says."""
    from lowkey.codec.solvers.kernels import improve_blocks  # compiled on first use, so not before it is needed

    y, length = problem.y, problem.length
    table, lam = _gram_table(length, y.shape[1]).astype(y.dtype), y.dtype.type(problem.lam)
    s = np.zeros((len(y), length), y.dtype)
    objective, gap = np.zeros(len(y)), np.zeros(len(y))
    live = np.arange(len(y))
    large = np.zeros(len(y), np.bool_)
    of_admm = 0
    with Threads() as threads:
        for iteration in range(1, max_iterations + 1):
            some = Problem(y=y[live], lam=problem.lam, length=length)
            state = certify(some, s[live] if iteration > 1 else None)
            objective[live], gap[live] = state.objective, state.gap
            left = float(gap[~large].sum() / max(objective[~large].sum(), np.finfo(np.float64).tiny))
            if left <= tolerance:
                break
            undone = (state.gap > tolerance * state.objective) & ~large[live]
            live, correlation = live[undone], state.correlation[undone]
            if live.size == 0:
                break
            accuracy = max(0.5 * tolerance, _INNER * left)
            limit = _LARGE_AT_FIRST if iteration == 1 else _LARGEST
            threads.over(len(live), improve_blocks, s, live, correlation, lam, table, accuracy, limit, large)
            if iteration == 1 and large.any():
                rest = Problem(y=y[large], lam=problem.lam, length=length)
                most = min(_ROUGH, max_iterations)
                rough = by_admm(rest, tolerance=tolerance, max_iterations=most, threshold=_ROUGH_THRESHOLD)
                s[large], of_admm = rough.s, rough.iterations
                large[:] = False
    if large.any():
        rest = Problem(y=y[large], lam=problem.lam, length=length)
        finish = by_admm(rest, tolerance=tolerance, max_iterations=max_iterations, start=s[large])
        s[large] = finish.s
        of_admm += finish.iterations
    return Solution(s, iteration + of_admm)


@lru_cache(maxsize=4)
def _gram_table(length: int, kept: int) -> NDArray[np.float64]:
    """h with ⟨column i, column j⟩ = h[|i − j|] + h[i + j + 1]: a sum of cosines, in closed form."""
    distance = np.arange(1, 2 * length)
    half = np.pi / (2 * length)
    h = np.sin((2 * kept - 1) * half * distance) / (2 * length * np.sin(half * distance))
    return np.concatenate([[(kept - 0.5) / length], h, [(kept - 0.5) / length]])
