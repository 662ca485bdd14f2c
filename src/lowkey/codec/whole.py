"""Nothing is compressed: the identity twin of all codecs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lowkey import checks
from lowkey.protocols import PublicNumbers
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class WholeUpdate:
    """Clients send the whole update, as in FedAvg."""

    ratio: ClassVar[float] = 1.0
    changes_each_round: ClassVar[bool] = False
    makes_blocks: ClassVar[bool] = False

    def operator(self, num_coordinates: int, public: PublicNumbers) -> WholeOperator:
        return WholeOperator(num_coordinates)


class WholeOperator:
    """Satisfies :class:`lowkey.protocols.Operator` with m = n. It returns its argument, never a copy."""

    def __init__(self, num_coordinates: int) -> None:
        checks.at_least("num_coordinates", num_coordinates, 1)
        self.num_coordinates = self.num_measurements = num_coordinates

    def forward(self, vector: FloatArray) -> FloatArray:
        checks.vector_of("update", vector, self.num_coordinates)
        return vector

    def adjoint(self, measurements: FloatArray) -> FloatArray:
        checks.vector_of("measurements", measurements, self.num_measurements)
        return measurements
