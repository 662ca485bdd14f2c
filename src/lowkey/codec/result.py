"""What a decoder recovered, and how close to the optimum it is."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from lowkey.errors import NotConverged
from lowkey.types import FloatArray

_NOT_CONVERGED = (  # without figures: Python shows the same text once
    "the decoder stopped at its iteration limit, before it reached decoder.tolerance; its last estimate is used, "
    "and decoder.relative_gap in the metrics says how good it is. Raise decoder.max_iterations or decoder.tolerance"
)

Stopped = Literal["exact", "converged", "iteration limit"]


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """A recovered model update with its certificate.

    Attributes
    ----------
    update : FloatArray
        Vector of length n, float32.
    nonzeros : int
        How many coordinates of the update are not zero.
    objective : float
        Value of what was minimised, summed over blocks; 0 for exact maps.
    relative_gap : float
        Duality gap over objective, an upper bound of the relative distance to the optimum.
    iterations : int
        Iterations of the solver, in the group of blocks that took most; 0 for exact maps.
    stopped : Stopped
        "exact" (a formula, nothing to solve), "converged" (gap below the tolerance) or "iteration limit".
    regularisation : float
        The λ that was used; 0 for exact maps.
    """

    update: FloatArray = field(repr=False)
    nonzeros: int
    objective: float = 0.0
    relative_gap: float = 0.0
    iterations: int = 0
    stopped: Stopped = "exact"
    regularisation: float = 0.0


@dataclass
class Certificates:
    """The certificates of all groups of blocks, added up."""

    objective: float = 0.0
    gap: float = 0.0
    iterations: int = 0

    def add(self, objective: float, gap: float, iterations: int) -> None:
        self.objective += float(objective)
        self.gap += float(gap)
        self.iterations = max(self.iterations, iterations)

    def decoded(self, update: FloatArray, tolerance: float, regularisation: float = 0.0) -> Decoded:
        """The record of an update; warns if the update is not within the tolerance."""
        relative_gap = self.gap / self.objective if self.objective > 0 else 0.0
        if relative_gap > tolerance:
            warnings.warn(_NOT_CONVERGED, NotConverged, stacklevel=3)
        return Decoded(
            update=update,
            nonzeros=int(np.count_nonzero(update)),
            objective=self.objective,
            relative_gap=relative_gap,
            iterations=self.iterations,
            stopped="iteration limit" if relative_gap > tolerance else "converged",
            regularisation=regularisation,
        )
