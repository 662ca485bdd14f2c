"""Over-relaxed ADMM on all blocks at once: for large supports, and as an independent check.

Both steps are closed formulas. ½‖y − Θx‖² + ½ρ‖x − v‖² is least where the kept DCT coefficients of x are
(y + ρΘv)/(1 + ρ) and the others those of v, because ΘΘᵀ = I; the L1 norm is a soft threshold at λ/ρ.

References
----------
Boyd et al. (2011), *Distributed optimization ... by ADMM*, Sections 3.1.1, 3.4.3 (over-relaxation) and 6.4.
"""

from __future__ import annotations

import numpy as np
import scipy.fft

from lowkey.codec.solvers.certificate import certify
from lowkey.codec.solvers.problem import Floats, Problem, Solution

_CHECK_EVERY = 5  # iterations between two certificates: each costs as much as an iteration
_RELAXATION = 1.8
_THRESHOLD = 12.5  # λ/ρ over the typical size of Θᵀy: about as large as recovered coordinates are, by experiment


def by_admm(problem: Problem, *, tolerance: float, max_iterations: int) -> Solution:
    """Converges for any λ > 0, in about a hundred iterations at useful ones."""
    y, kept = problem.y, problem.y.shape[1]
    s = np.zeros((len(y), problem.length), y.dtype)
    mean_square = float(np.einsum("ij,ij->", y, y, dtype=np.float64)) / y.size
    if mean_square == 0.0:
        return Solution(s, 0)
    threshold = y.dtype.type(_THRESHOLD * np.sqrt(mean_square * kept / problem.length))
    rho = y.dtype.type(problem.lam) / threshold
    u = np.zeros_like(s)
    known = y / (1 + rho)
    for iteration in range(1, max_iterations + 1):
        spectrum: Floats = scipy.fft.dct(s - u, norm="ortho", overwrite_x=True)
        spectrum[:, :kept] *= rho / (1 + rho)
        spectrum[:, :kept] += known
        x: Floats = scipy.fft.idct(spectrum, norm="ortho", overwrite_x=True)
        x -= s
        x *= y.dtype.type(_RELAXATION)
        x += s
        x += u
        np.clip(x, -threshold, threshold, out=u)
        s = np.subtract(x, u, out=x)
        if iteration % _CHECK_EVERY == 0 and certify(problem, s).reached(tolerance):
            break
    return Solution(s, iteration)
