"""The linear decoder: Θᵀ applied to the measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lowkey.codec.result import Decoded
from lowkey.protocols import Operator
from lowkey.types import FloatArray


@dataclass(frozen=True)
class AdjointDecoder:
    """Identity, scatter (random subset) or inverse DCT with the missing coefficients at zero.

    For orthonormal rows it is the shortest update that explains the measurements exactly.
    """

    needs_blocks: ClassVar[bool] = False

    def decode(
        self,
        operator: Operator,
        measurements: FloatArray,
        noise: float = 0.0,
        layers: Sequence[int] = (),
    ) -> Decoded:
        update = operator.adjoint(measurements)
        return Decoded(update=update, nonzeros=int(np.count_nonzero(update)))
