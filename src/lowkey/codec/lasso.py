"""Sparse recovery: the LASSO of every block at once, by accelerated proximal gradient.

    minimise over s   ½‖y − Θs‖² + λ‖s‖₁,   Θ = first k rows of the orthonormal DCT of one block

References
----------
Beck and Teboulle (2009), *A fast iterative shrinkage-thresholding algorithm*, Eq. (4.1)–(4.3).
O'Donoghue and Candès (2015), *Adaptive restart for accelerated gradient schemes*, gradient test (Section 3.2).
Kerkouche et al. (2021), Eq. (4): the problem; they solve it by OWL-QN with an unstated λ.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.fft

from lowkey import checks
from lowkey.codec.adjoint import AdjointDecoder
from lowkey.codec.operators import ChunkedDCT
from lowkey.codec.regularisation import LambdaRule, RelativeToRms
from lowkey.codec.result import Decoded
from lowkey.errors import InvalidInput
from lowkey.protocols import BlockOperator, Operator
from lowkey.types import FloatArray

_CHECK_EVERY = 10  # iterations between two certificates: each costs as much as an iteration


@dataclass(frozen=True, kw_only=True)
class LassoDecoder:
    """Recovers a sparse update, with a certificate of how close to the optimum it is.

    Parameters
    ----------
    rule : how λ follows from the measurements.
    tolerance : relative duality gap at which to stop.
    max_iterations : when to give up; the result then says "iteration limit".
    """

    rule: LambdaRule = field(default_factory=lambda: RelativeToRms(1.0))
    tolerance: float = 1e-2
    max_iterations: int = 300

    def __post_init__(self) -> None:
        checks.positive("decoder.tolerance", self.tolerance)
        checks.at_least("decoder.max_iterations", self.max_iterations, 1)

    def decode(self, operator: Operator, measurements: FloatArray) -> Decoded:
        blocks = _as_blocks(operator)
        checks.vector_of("measurements", measurements, operator.num_measurements)
        target = measurements.reshape(blocks.num_blocks, blocks.block_measurements)
        weight = self.rule(target, blocks.block_length)
        if weight == 0.0:  # no penalty: of all exact explanations the proximal method finds the shortest, Θᵀy
            return AdjointDecoder().decode(operator, measurements)
        return self._solve(blocks, target, weight)

    def _solve(self, operator: BlockOperator, y: FloatArray, lam: float) -> Decoded:
        """FISTA from zero with a restart in each block on its own. Step size 1, since ‖Θ‖ = 1."""
        kept = y.shape[1]
        s = np.zeros((operator.num_blocks, operator.block_length), np.float32)
        z = s.copy()
        t = np.ones(operator.num_blocks)
        objective = gap = np.inf
        for iteration in range(1, self.max_iterations + 1):
            # z + Θᵀ(y − Θz): among all DCT coefficients of z, the known ones are put back to y
            spectrum: FloatArray = scipy.fft.dct(z, norm="ortho")
            spectrum[:, :kept] = y
            after: FloatArray = scipy.fft.idct(spectrum, norm="ortho", overwrite_x=True)
            after -= np.clip(after, -lam, lam)  # soft threshold
            step = np.subtract(after, s, out=s)
            uphill = np.einsum("ij,ij->i", np.subtract(z, after, out=z), step) > 0
            t[uphill] = 1.0
            t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
            np.multiply(step, ((t - 1) / t_next).astype(np.float32)[:, None], out=z)
            z += after
            s, t = after, t_next
            if iteration % _CHECK_EVERY == 1 or iteration == self.max_iterations:
                objective, gap = certificate(s, y, lam)
                if gap <= self.tolerance * objective:
                    break
        update = operator.from_blocks(s)
        return Decoded(
            update=update,
            nonzeros=int(np.count_nonzero(update)),
            objective=objective,
            relative_gap=gap / objective,
            iterations=iteration,
            stopped="converged" if gap <= self.tolerance * objective else "iteration limit",
            regularisation=lam,
        )


def certificate(s: FloatArray, y: FloatArray, lam: float) -> tuple[float, float]:
    """Objective and duality gap of block solutions, summed over blocks, computed from scratch.

    The residual, shrunk until ‖Θᵀθ‖∞ ≤ λ, is feasible in the dual: the optimum is at most ``gap`` below the objective.
    """
    residual = y - scipy.fft.dct(s, norm="ortho")[:, : y.shape[1]]
    steepest = np.abs(scipy.fft.idct(residual, n=s.shape[1], norm="ortho")).max(axis=1).astype(np.float64)
    shrink = np.minimum(1.0, lam / np.maximum(steepest, np.finfo(np.float64).tiny))
    residual_square = np.einsum("ij,ij->i", residual, residual, dtype=np.float64)
    alignment = np.einsum("ij,ij->i", residual, y, dtype=np.float64)
    primal = 0.5 * residual_square + lam * np.abs(s).sum(axis=1, dtype=np.float64)
    dual = shrink * alignment - 0.5 * shrink**2 * residual_square  # ½‖y‖² − ½‖y − θ‖²
    return float(primal.sum()), float((primal - dual).sum())


def _as_blocks(operator: Operator) -> BlockOperator:
    if not isinstance(operator, ChunkedDCT):
        raise InvalidInput(
            f"the LASSO decoder needs a codec of kind 'chunked-dct', not {type(operator).__name__}; "
            "use decoder.kind = 'adjoint' with this codec"
        )
    return operator
