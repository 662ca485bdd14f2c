"""Solvers of one problem: the LASSO of many blocks that share one sensing matrix.

    minimise over s   ½‖y − Θs‖² + λ‖s‖₁,   Θ = first k rows of the orthonormal DCT of one block

All solvers have the same signature and return a :class:`Solution`. :func:`certify` judges what they reached, and trusts
nothing that they computed.
"""

from __future__ import annotations

from lowkey.codec.solvers.active_set import by_active_set
from lowkey.codec.solvers.admm import by_admm
from lowkey.codec.solvers.certificate import Certificate, certify
from lowkey.codec.solvers.problem import Floats, Problem, Solution

__all__ = [
    "Certificate",
    "Floats",
    "Problem",
    "Solution",
    "by_active_set",
    "by_admm",
    "certify",
]
