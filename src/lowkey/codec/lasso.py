"""Sparse recovery, the paper's decoder: a LASSO in every block, solved to a certificate.

    minimise over s   ½‖y − Θs‖² + λ‖s‖₁,   Θ = first k rows of the orthonormal DCT of one block

References
----------
Kerkouche et al. (2021), Eq. (4): the problem; they solve it by OWL-QN with an unstated λ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lowkey import checks
from lowkey.codec.adjoint import AdjointDecoder
from lowkey.codec.blocks import as_blocks
from lowkey.codec.regularisation import LambdaRule, RelativeToRms
from lowkey.codec.result import Decoded, Tally
from lowkey.codec.solvers import SOLVERS, Problem, certify
from lowkey.errors import InvalidInput
from lowkey.protocols import Operator
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class LassoDecoder:
    """Recovers a sparse update, with a certificate of how close to the optimum it is.

    Parameters
    ----------
    rule : how λ follows from the measurements. Where it gives 0, the update is Θᵀy, the shortest that explains them.
    solver : "active-set", "admm" or "owlqn".
    tolerance : relative duality gap at which to stop.
    max_iterations : when to give up; the result then says "iteration limit".
    """

    rule: LambdaRule = field(default_factory=lambda: RelativeToRms(1.0))
    solver: str = "active-set"
    tolerance: float = 1e-3
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        if self.solver not in SOLVERS:
            raise InvalidInput(f"decoder.solver is {self.solver!r}; it must be one of {', '.join(SOLVERS)}")
        checks.positive("decoder.tolerance", self.tolerance)
        checks.at_least("decoder.max_iterations", self.max_iterations, 1)

    def decode(self, operator: Operator, measurements: FloatArray, noise: float = 0.0) -> Decoded:
        blocks, y = as_blocks("lasso", operator, measurements)
        lam = self.rule(blocks, y, noise)
        if lam == 0.0:
            return AdjointDecoder().decode(operator, measurements)
        tally = Tally()

        def solved() -> Iterator[FloatArray]:
            for group in blocks.groups:
                problem = Problem(y=y[group], lam=lam, length=blocks.block_length)
                solution = SOLVERS[self.solver](problem, tolerance=self.tolerance, max_iterations=self.max_iterations)
                reached = certify(problem, solution.s)
                tally.add(reached.objective.sum(), reached.gap.sum(), solution.iterations)
                yield solution.s

        return tally.decoded(blocks.assemble(solved()), self.tolerance, lam)
