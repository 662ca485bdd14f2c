"""Named rules for λ, the weight of the L1 norm. All but "fixed" scale with the measurements.

Θᵀy has the typical size √(m/n)·rms(y), because ΘΘᵀ = I; rules are written relative to it, so that factors mean the same
at every ratio. r = m/n throughout, per block k/L.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.fft

from lowkey import checks
from lowkey.protocols import BlockOperator
from lowkey.types import FloatArray

_NORMAL_QUARTILE = 0.6744897501960817  # median of |x| for a standard normal x


class LambdaRule(Protocol):
    """Gives one λ ≥ 0 for all blocks.

    ``y`` has shape (P, k); ``noise`` is the standard deviation of the known noise in each measurement, 0 for none.
    """

    def __call__(self, operator: BlockOperator, y: FloatArray, noise: float) -> float: ...


@dataclass(frozen=True)
class RelativeToRms:
    """λ = factor · √r · rms(y): a multiple of the typical size of Θᵀy, signal and noise together."""

    factor: float

    def __post_init__(self) -> None:
        checks.not_negative("decoder.lambda_factor", self.factor)

    def __call__(self, operator: BlockOperator, y: FloatArray, noise: float) -> float:  # noqa: ARG002
        mean_square = float(np.einsum("ij,ij->", y, y, dtype=np.float64)) / y.size
        return self.factor * _scale(operator) * float(np.sqrt(mean_square))


@dataclass(frozen=True)
class RelativeToMax:
    """λ = factor · λ_max, λ_max = ‖Θᵀy‖∞: at factor 1 the recovered update is just zero."""

    factor: float

    def __post_init__(self) -> None:
        checks.not_negative("decoder.lambda_factor", self.factor)

    def __call__(self, operator: BlockOperator, y: FloatArray, noise: float) -> float:  # noqa: ARG002
        return self.factor * max(float(np.abs(_correlations(operator, y, group)).max()) for group in operator.groups)


@dataclass(frozen=True)
class RelativeToNoise:
    """λ = factor · √r · ν, a multiple of what noise alone leaves in Θᵀy.

    ν is the known noise of each measurement when there is privacy noise. Without, ν is estimated robustly:
    median(|Θᵀy|) / (0.6745 √r) over the first group of blocks, which a few large coordinates do not move. Blocks are
    shuffled, so one group stands for all.
    """

    factor: float

    def __post_init__(self) -> None:
        checks.not_negative("decoder.lambda_factor", self.factor)

    def __call__(self, operator: BlockOperator, y: FloatArray, noise: float) -> float:
        if noise > 0:
            return self.factor * _scale(operator) * noise
        typical = float(np.median(np.abs(_correlations(operator, y, operator.groups[0]))))
        return self.factor * typical / _NORMAL_QUARTILE


@dataclass(frozen=True)
class Fixed:
    """λ = factor, whatever the measurements are."""

    factor: float

    def __post_init__(self) -> None:
        checks.positive("decoder.lambda_factor (of the rule 'fixed')", self.factor)

    def __call__(self, operator: BlockOperator, y: FloatArray, noise: float) -> float:  # noqa: ARG002
        return self.factor


LAMBDA_RULES: dict[str, type[RelativeToRms] | type[RelativeToMax] | type[RelativeToNoise] | type[Fixed]] = {
    "relative-to-rms": RelativeToRms,
    "relative-to-max": RelativeToMax,
    "relative-to-noise": RelativeToNoise,
    "fixed": Fixed,
}


def _scale(operator: BlockOperator) -> float:
    return float(np.sqrt(operator.block_measurements / operator.block_length))


def _correlations(operator: BlockOperator, y: FloatArray, group: slice) -> FloatArray:
    correlations: FloatArray = scipy.fft.idct(y[group], n=operator.block_length, norm="ortho")
    return correlations
