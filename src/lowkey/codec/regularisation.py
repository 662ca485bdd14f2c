"""Named rules for λ, the weight of the L1 norm. A rule looks only at the measurements, so λ scales with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.fft

from lowkey import checks
from lowkey.types import FloatArray


class LambdaRule(Protocol):
    """Gives one λ for all blocks of measurements, shape (P, m/P), of signals of a given block length."""

    def __call__(self, blocks: FloatArray, block_length: int) -> float: ...


@dataclass(frozen=True)
class RelativeToRms:
    """λ = factor · √(m/n) · rms(y): a multiple of the typical size of Θᵀy, noise included."""

    factor: float

    def __post_init__(self) -> None:
        checks.not_negative("decoder.lambda_factor", self.factor)

    def __call__(self, blocks: FloatArray, block_length: int) -> float:
        mean_square = float(np.einsum("ij,ij->", blocks, blocks, dtype=np.float64)) / blocks.size
        return self.factor * float(np.sqrt(mean_square * blocks.shape[1] / block_length))


@dataclass(frozen=True)
class RelativeToMax:
    """λ = factor · ‖Θᵀy‖∞: at factor 1 the recovered update is just zero."""

    factor: float

    def __post_init__(self) -> None:
        checks.not_negative("decoder.lambda_factor", self.factor)

    def __call__(self, blocks: FloatArray, block_length: int) -> float:
        return self.factor * float(np.abs(scipy.fft.idct(blocks, n=block_length, norm="ortho")).max())


LAMBDA_RULES: dict[str, type[RelativeToRms] | type[RelativeToMax]] = {
    "relative-to-rms": RelativeToRms,
    "relative-to-max": RelativeToMax,
}
