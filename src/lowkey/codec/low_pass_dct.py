"""The first coefficients of one DCT of the whole update: the compression of FL-FREQ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import scipy.fft

from lowkey import checks
from lowkey.codec.sizes import fast_length, measurements_for
from lowkey.protocols import PublicNumbers
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class LowPassDCT:
    """Clients send the lowest frequencies of the update.

    Parameters
    ----------
    ratio : float
        Coefficients that are sent over all coefficients, r, in (0, 1].
    """

    ratio: float = 1.0
    changes_each_round: ClassVar[bool] = False
    makes_blocks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.fraction("codec.ratio", self.ratio)

    def operator(self, num_coordinates: int, public: PublicNumbers) -> LowPassOperator:
        return LowPassOperator(num_coordinates, self.ratio)


class LowPassOperator:
    """First m coefficients of one orthonormal DCT-II over the whole vector in its natural order.

    The vector is padded with zeros to a length whose transform is cheap: for the paper's network the exact length has
    a large prime factor and costs more than ten times as much. The padding never reaches the model, and at ratio 1
    the map is still inverted exactly by its adjoint.
    """

    def __init__(self, num_coordinates: int, ratio: float) -> None:
        checks.at_least("num_coordinates", num_coordinates, 1)
        self.num_coordinates = num_coordinates
        self.padded_length = fast_length(num_coordinates)
        self.num_measurements = measurements_for(ratio, self.padded_length)

    def forward(self, vector: FloatArray) -> FloatArray:
        checks.vector_of("update", vector, self.num_coordinates)
        coefficients: FloatArray = scipy.fft.dct(vector, n=self.padded_length, norm="ortho")
        return coefficients[: self.num_measurements]

    def adjoint(self, measurements: FloatArray) -> FloatArray:
        checks.vector_of("measurements", measurements, self.num_measurements)
        vector: FloatArray = scipy.fft.idct(measurements, n=self.padded_length, norm="ortho")
        return vector[: self.num_coordinates]
