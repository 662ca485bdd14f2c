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

4. Near the optimum, the peaks that are left are lowered (:mod:`lowkey.codec.solvers.peaks`).

Blocks whose first working set is large are left to ADMM.

References
----------
Friedman, Hastie and Tibshirani (2010), *Regularization paths ...*, Section 2.2 (covariance updates).
Massias, Gramfort and Salmon (2018), *Celer: a fast solver for the Lasso with dual extrapolation* (working sets).
"""

from __future__ import annotations

import numpy as np

from lowkey.codec.solvers.admm import by_admm
from lowkey.codec.solvers.certificate import certify
from lowkey.codec.solvers.peaks import certify_lowered, gram_table
from lowkey.codec.solvers.problem import Problem, Solution
from lowkey.codec.solvers.threads import Threads

_INNER = 0.3  # how far the working set is solved, relative to the remaining gap: more accuracy would be wasted
_LARGE_AT_FIRST, _LARGE = 700, 900  # working set, which still grows, from which transforms are cheaper than its Gram


def by_active_set(problem: Problem, *, tolerance: float, max_iterations: int) -> Solution:
    """Solve all blocks with as many threads as ``scipy.fft.get_workers`` says."""
    from lowkey.codec.solvers.kernels import improve_blocks  # compiled on import, so imported only when needed

    y, length = problem.y, problem.length
    table, lam = gram_table(length, y.shape[1]).astype(y.dtype), y.dtype.type(problem.lam)
    s = np.zeros((len(y), length), y.dtype)
    left_to_admm = np.zeros(len(y), np.bool_)
    state, iteration, of_admm = certify(problem), 0, 0
    with Threads() as threads:
        while iteration < max_iterations and not state.reached(tolerance):
            undone = np.flatnonzero((state.gap > tolerance * state.objective) & ~left_to_admm)
            if undone.size == 0:
                break
            iteration += 1
            accuracy = max(tolerance, _INNER * float(state.gap.sum() / state.objective.sum()))
            limit, large = _LARGE_AT_FIRST if iteration == 1 else _LARGE, np.zeros(len(y), np.bool_)
            threads.over(len(undone), improve_blocks, s, undone, state.correlation, lam, table, accuracy, limit, large)
            if large.any():
                rest = Problem(y=y[large], lam=problem.lam, length=length)
                finished = by_admm(rest, tolerance=tolerance, max_iterations=max_iterations)
                s[large], of_admm = finished.s, max(of_admm, finished.iterations)
                left_to_admm |= large
            state = certify_lowered(problem, s, tolerance, threads)
    return Solution(s, iteration + of_admm)
