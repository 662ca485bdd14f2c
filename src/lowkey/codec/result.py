"""What a decoder found, and how well."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lowkey.types import FloatArray

Stopped = Literal["exact", "converged", "iteration limit"]


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """A recovered model update with its certificate.

    Attributes
    ----------
    update : float32 vector of length n.
    nonzeros : how many coordinates of it are not zero.
    objective : value of what was minimised, summed over blocks; 0 for exact maps.
    relative_gap : duality gap over objective, an upper bound of the relative distance to the optimum.
    iterations : of the solver; 0 for exact maps.
    stopped : "exact" (a formula, nothing to solve), "converged" (gap below the tolerance) or "iteration limit".
    regularisation : the λ that was used; 0 for exact maps.
    """

    update: FloatArray = field(repr=False)
    nonzeros: int
    objective: float = 0.0
    relative_gap: float = 0.0
    iterations: int = 0
    stopped: Stopped = "exact"
    regularisation: float = 0.0
