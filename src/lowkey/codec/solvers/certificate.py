"""How close to the optimum a solution is, computed only from the solution and the data."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from lowkey.codec.solvers.problem import Floats, Problem


@dataclass(frozen=True)
class Certificate:
    """Objective and duality gap of every block, and the correlations Θᵀ(y − Θs) that they were read from."""

    objective: NDArray[np.float64]
    gap: NDArray[np.float64]
    correlation: Floats = field(repr=False)

    def reached(self, tolerance: float) -> bool:
        """True when all blocks together are within ``tolerance`` of the optimum, relative to their objective."""
        return bool(self.gap.sum() <= tolerance * self.objective.sum())


def certify(problem: Problem, s: Floats | None = None) -> Certificate:
    """Judge block solutions (B, L), or the zero solution if ``s`` is None.

    The residual, shrunk until ‖Θᵀθ‖∞ ≤ λ, is feasible in the dual: no optimum is more than ``gap`` below.

    Sums are kept in float64.
    """
    y, lam, kept = problem.y, problem.lam, problem.y.shape[1]
    if s is None:
        l1_norm, residual, spectrum = 0.0, y, np.empty((len(y), problem.length), y.dtype)
    else:
        l1_norm, spectrum = np.abs(s).sum(axis=1, dtype=np.float64), scipy.fft.dct(s, norm="ortho")
        residual = y - spectrum[:, :kept]
    spectrum[:, :kept], spectrum[:, kept:] = residual, 0.0
    correlation: Floats = scipy.fft.idct(spectrum, norm="ortho", overwrite_x=True)  # in place, to save memory
    steepest = np.maximum(correlation.max(axis=1), -correlation.min(axis=1)).astype(np.float64)
    shrink = np.minimum(1.0, lam / np.maximum(steepest, np.finfo(np.float64).tiny))
    residual_square = np.einsum("ij,ij->i", residual, residual, dtype=np.float64)
    alignment = np.einsum("ij,ij->i", residual, y, dtype=np.float64)
    primal = 0.5 * residual_square + lam * l1_norm
    dual = shrink * alignment - 0.5 * shrink**2 * residual_square  # ½‖y‖² − ½‖y − θ‖²
    return Certificate(primal, np.maximum(primal - dual, 0.0), correlation)
