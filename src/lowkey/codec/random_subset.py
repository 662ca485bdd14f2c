"""A random subset of the coordinates, new in every round: the compression of FL-RND."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lowkey import checks
from lowkey.codec.sizes import measurements_for
from lowkey.protocols import PublicNumbers
from lowkey.rng import BitSource, PublicStream, subset
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class RandomSubset:
    """Clients send the coordinates that a public stream names for the round.

    Parameters
    ----------
    ratio : float
        Coordinates that are sent over all coordinates, r, in (0, 1].
    """

    ratio: float = 1.0
    changes_each_round: ClassVar[bool] = True
    makes_blocks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.fraction("codec.ratio", self.ratio)

    def operator(self, num_coordinates: int, public: PublicNumbers) -> SubsetOperator:
        return SubsetOperator(num_coordinates, self.ratio, PublicStream(public.seed, "random-subset", public.round))


class SubsetOperator:
    """Keeps m coordinates that a public source names; the adjoint scatters them and leaves the others zero."""

    def __init__(self, num_coordinates: int, ratio: float, source: BitSource) -> None:
        checks.at_least("num_coordinates", num_coordinates, 1)
        self.num_coordinates = num_coordinates
        self.num_measurements = measurements_for(ratio, num_coordinates)
        self.kept = subset(source, num_coordinates, self.num_measurements)

    def forward(self, vector: FloatArray) -> FloatArray:
        checks.vector_of("update", vector, self.num_coordinates)
        return np.take(vector, self.kept)

    def adjoint(self, measurements: FloatArray) -> FloatArray:
        checks.vector_of("measurements", measurements, self.num_measurements)
        vector = np.zeros(self.num_coordinates, np.float32)
        vector[self.kept] = measurements
        return vector
