"""Sparse recovery, the paper's decoder: a LASSO in every block, solved to a certificate.

    minimise over s   ½‖y − Θs‖² + λ‖s‖₁,   Θ = first k rows of the orthonormal DCT of one block

λ is a multiple of √r · rms(y), r = k/L: that is the typical size of Θᵀy, because ΘΘᵀ = I, so that factors mean the same
at every ratio.

References
----------
Kerkouche et al. (2021), Eq. (4): the problem; they solve it by OWL-QN with an unstated λ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lowkey import checks
from lowkey.codec.adjoint import AdjointDecoder
from lowkey.codec.blocks import as_blocks
from lowkey.codec.result import Certificates, Decoded
from lowkey.codec.solvers import Problem, by_active_set, certify
from lowkey.protocols import BlockOperator, Operator
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class LassoDecoder:
    """Recovers a sparse update, with a certificate of how close to the optimum it is.

    Parameters
    ----------
    lambda_factor : float
        λ over √r · rms(y). At 0 the update is Θᵀy, the shortest that explains the measurements.
    tolerance : float
        Relative duality gap at which to stop.
    max_iterations : int
        Iterations after which to stop; the result then says "iteration limit".
    """

    lambda_factor: float = 1.0
    tolerance: float = 1e-3
    max_iterations: int = 1000
    needs_blocks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.not_negative("decoder.lambda_factor", self.lambda_factor)
        checks.positive("decoder.tolerance", self.tolerance)
        checks.at_least("decoder.max_iterations", self.max_iterations, 1)

    def decode(
        self,
        operator: Operator,
        measurements: FloatArray,
        noise: float = 0.0,
        layers: Sequence[int] = (),
    ) -> Decoded:
        blocks, y = as_blocks("lasso", operator, measurements)
        lam = self.lambda_factor * typical_correlation(blocks, y)
        if lam == 0.0:
            return AdjointDecoder().decode(operator, measurements)
        certificates = Certificates()

        def solved() -> Iterator[FloatArray]:
            for group in blocks.groups:
                problem = Problem(y=y[group], lam=lam, length=blocks.block_length)
                solution = by_active_set(problem, tolerance=self.tolerance, max_iterations=self.max_iterations)
                reached = certify(problem, solution.s)
                certificates.add(reached.objective.sum(), reached.gap.sum(), solution.iterations)
                yield solution.s

        return certificates.decoded(blocks.assemble(solved()), self.tolerance, lam)


def typical_correlation(operator: BlockOperator, y: FloatArray) -> float:
    """√r · rms(y), the root mean square of Θᵀy; ``y`` has shape (P, k)."""
    mean_square = float(np.einsum("ij,ij->", y, y, dtype=np.float64)) / y.size
    return float(np.sqrt(operator.block_measurements / operator.block_length)) * float(np.sqrt(mean_square))
