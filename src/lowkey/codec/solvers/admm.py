"""Over-relaxed ADMM on all blocks at once: for large supports, and as an independent check.

Both steps are closed formulas. ½‖y − Θx‖² + ½ρ‖x − v‖² is least where the kept DCT coefficients of x are
(y + ρΘv)/(1 + ρ) and the others those of v, because ΘΘᵀ = I; the L1 norm is a soft threshold at λ/ρ. With w = s + u,
the estimate s and the scaled multiplier u are the parts of w outside and inside ±λ/ρ, so w is the whole state.

References
----------
Boyd et al. (2011), *Distributed optimization ... by ADMM*, Sections 3.1.1, 3.4.3 (over-relaxation) and 6.4.
"""

from __future__ import annotations

import numpy as np
import scipy.fft

from lowkey.codec.solvers.peaks import certify_lowered
from lowkey.codec.solvers.problem import Floats, Problem, Solution
from lowkey.codec.solvers.threads import Threads

_RELAXATION = 1.8
_THRESHOLD = 6.5  # λ/ρ over the typical size of Θᵀy, by experiment: half comes close sooner, twice finishes sooner


def by_admm(problem: Problem, *, tolerance: float, max_iterations: int) -> Solution:
    """Solve all blocks for any λ > 0, in about a hundred iterations at a useful λ. Finished blocks are set aside."""
    from lowkey.codec.solvers.kernels import relax_blocks  # compiled on import, so imported only when needed

    y, kept, number = problem.y, problem.y.shape[1], problem.y.dtype.type
    solution = np.zeros((len(y), problem.length), y.dtype)
    mean_square = float(np.einsum("ij,ij->", y, y, dtype=np.float64)) / y.size
    if mean_square == 0.0:
        return Solution(solution, 0)
    size = number(_THRESHOLD * np.sqrt(mean_square * kept / problem.length))
    rho = number(problem.lam) / size
    w, v = np.zeros_like(solution), np.zeros_like(solution)
    objective, gap = np.zeros(len(y)), np.zeros(len(y))
    live = np.arange(len(y))
    pull = y / (1 + rho)
    check_at = 25  # no useful problem is near the optimum sooner
    with Threads() as threads:
        for iteration in range(1, max_iterations + 1):
            spectrum: Floats = scipy.fft.dct(v, norm="ortho", overwrite_x=True)
            measured = spectrum[:, :kept]
            measured *= rho / (1 + rho)
            measured += pull
            v = scipy.fft.idct(spectrum, norm="ortho", overwrite_x=True)
            threads.over(len(live), relax_blocks, v, w, size, number(_RELAXATION))
            if iteration < check_at and iteration < max_iterations:
                continue
            check_at = iteration + 10  # a certificate costs more than an iteration
            s = w - np.clip(w, -size, size)
            some = Problem(y=y[live], lam=problem.lam, length=problem.length)
            state = certify_lowered(some, s, tolerance, threads)
            solution[live], objective[live], gap[live] = s, state.objective, state.gap
            if gap.sum() <= tolerance * objective.sum():
                break
            undone = state.gap > tolerance * state.objective
            live, pull, w, v = live[undone], pull[undone], w[undone], v[undone]
    return Solution(solution, iteration)
