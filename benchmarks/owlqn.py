"""The paper's solver: OWL-QN, block after block, by libLBFGS. Slow; here for fidelity and comparison.

References
----------
Andrew and Gao (2007), *Scalable training of L1-regularized log-linear models*.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from dataclasses import dataclass

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from lowkey.codec.solvers import Floats, Problem, Solution, certify


@dataclass(frozen=True)
class Solved:
    """One block, what it took, and the relative gap at the last look; looking at the gap is not counted."""

    s: NDArray[np.float64]
    iterations: int
    seconds: float
    gap: float


def by_owlqn(problem: Problem, *, tolerance: float, max_iterations: int) -> Solution:
    """Each block until its own gap is within ``tolerance``; iterations are the largest number over blocks."""
    s, most = np.zeros((len(problem.y), problem.length), problem.y.dtype), 0
    for row, y in enumerate(problem.y):
        if y.any():
            block = solve_block(
                y, problem.lam, problem.length, tolerance=tolerance, max_iterations=max_iterations, look_every=10
            )
            s[row], most = block.s, max(most, block.iterations)
    return Solution(s, most)


def solve_block(
    y: Floats, lam: float, length: int, *, tolerance: float, max_iterations: int = 0, look_every: int = 1
) -> Solved:
    """One block; 0 iterations are as many as it takes."""
    try:
        import lbfgs
    except ModuleNotFoundError:
        raise SystemExit("OWL-QN needs PyLBFGS; install it with: pip install PyLBFGS") from None
    # libLBFGS stops at an absolute length of the gradient, so it is given numbers of size one
    scale = float(np.sqrt(np.mean(np.square(y, dtype=np.float64))))
    block = Problem(y=y[None].astype(np.float64) / scale, lam=lam / scale, length=length)
    target, last, iterations, looking, gap = block.y[0], np.zeros(length), 0, 0.0, np.inf

    def value_and_gradient(s: NDArray[np.float64], gradient: NDArray[np.float64]) -> float:
        residual = scipy.fft.dct(s, norm="ortho")[: target.size] - target
        gradient[:] = scipy.fft.idct(residual, n=length, norm="ortho")
        return 0.5 * float(residual @ residual)

    def progress(s: NDArray[np.float64], *_: object) -> int:
        nonlocal iterations, looking, gap
        began = time.perf_counter()
        iterations += 1
        last[:] = s
        if iterations % look_every == 0:
            certificate = certify(block, s[None])
            gap = float(certificate.gap[0] / certificate.objective[0])
        looking += time.perf_counter() - began
        return int(gap <= tolerance)

    began = time.perf_counter()
    # Stopped by us, or its line search found nothing better: the last iterate stands, and the certificate judges it.
    with contextlib.suppress(lbfgs.LBFGSError), warnings.catch_warnings(action="ignore"):
        last[:] = lbfgs.fmin_lbfgs(
            value_and_gradient,
            np.zeros(length),
            progress=progress,
            orthantwise_c=block.lam,
            line_search="wolfe",
            epsilon=1e-9,
            max_iterations=max_iterations,
        )
    return Solved(last * scale, iterations, time.perf_counter() - began - looking, gap)
