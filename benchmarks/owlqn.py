"""The paper's solver: OWL-QN, block after block, by libLBFGS. Slow; here for fidelity and comparison.

References
----------
Andrew and Gao (2007), *Scalable training of L1-regularized log-linear models*.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from lowkey.codec.solvers.certificate import certify
from lowkey.codec.solvers.problem import Problem, Solution
from lowkey.errors import InvalidInput
from lowkey.extras import how_to_install

_CHECK_EVERY = 10


def by_owlqn(problem: Problem, *, tolerance: float, max_iterations: int) -> Solution:
    """Each block until its own gap is within ``tolerance``; iterations are the largest number over blocks."""
    try:
        import lbfgs
    except ModuleNotFoundError as error:
        raise InvalidInput(how_to_install(error) or str(error)) from error
    s = np.zeros((len(problem.y), problem.length), problem.y.dtype)
    most = 0
    for row, y in enumerate(problem.y):
        scale = float(np.sqrt(np.mean(np.square(y, dtype=np.float64))))
        if scale == 0.0:
            continue
        # libLBFGS stops at an absolute length of the gradient, so it is given numbers of size one
        block = Problem(y=y[None].astype(np.float64) / scale, lam=problem.lam / scale, length=problem.length)
        solution = _solve(lbfgs, block, tolerance, max_iterations)
        s[row] = solution.s[0] * scale
        most = max(most, solution.iterations)
    return Solution(s, most)


def _solve(lbfgs: Any, block: Problem, tolerance: float, max_iterations: int) -> Solution:
    target, last, iterations = block.y[0], np.zeros(block.length), 0

    def value_and_gradient(s: NDArray[np.float64], gradient: NDArray[np.float64]) -> float:
        residual = scipy.fft.dct(s, norm="ortho")[: target.size] - target
        gradient[:] = scipy.fft.idct(residual, n=block.length, norm="ortho")
        return 0.5 * float(residual @ residual)

    def progress(s: NDArray[np.float64], *_: object) -> int:
        nonlocal iterations
        iterations += 1
        last[:] = s
        return int(iterations % _CHECK_EVERY == 0 and certify(block, s[None]).reached(tolerance))

    # Stopped by us, or its line search found nothing better: the last iterate stands, and the certificate judges it.
    with contextlib.suppress(lbfgs.LBFGSError), warnings.catch_warnings(action="ignore"):
        last[:] = lbfgs.fmin_lbfgs(
            value_and_gradient,
            np.zeros(block.length),
            progress=progress,
            orthantwise_c=block.lam,
            line_search="wolfe",
            epsilon=1e-9,
            max_iterations=max_iterations,
        )
    return Solution(last[None], iterations)
