"""Linear sensing operators: from a model vector of n coordinates to m measurements.

Each is an exact pair ``forward`` (Θ) and ``adjoint`` (Θᵀ), built from public numbers only, so that client and server
hold the same map. All arithmetic is float32; SciPy's transforms use as many threads as ``scipy.fft.set_workers`` says.

References
----------
Kerkouche et al. (2021), *Compression Boosts Differentially Private Federated Learning*, Section 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.rng import BitSource, permutation, random_signs, subset
from lowkey.types import FloatArray

_GROUP = 2**21  # coordinates that a block operator works on at once


def fast_length(length: int) -> int:
    """Smallest length ≥ ``length`` whose prime factors are at most 13: a transform of it is cheap."""
    while True:
        rest = length
        for prime in (2, 3, 5, 7, 11, 13):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return length
        length += 1


def measurements_for(ratio: float, length: int) -> int:
    """Number of measurements that a ratio in (0, 1] keeps of ``length`` coordinates, at least one."""
    checks.fraction("codec.ratio", ratio)
    return max(1, round(ratio * length))


class Identity:
    """Nothing is compressed: m = n. Returns its argument, never a copy."""

    def __init__(self, num_coordinates: int) -> None:
        checks.at_least("num_coordinates", num_coordinates, 1)
        self.num_coordinates = self.num_measurements = num_coordinates

    def forward(self, vector: FloatArray) -> FloatArray:
        checks.vector_of("update", vector, self.num_coordinates)
        return vector

    def adjoint(self, measurements: FloatArray) -> FloatArray:
        checks.vector_of("measurements", measurements, self.num_measurements)
        return measurements


class RandomSubset:
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


class LowPassDCT:
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


class ChunkedDCT:
    """First coefficients of the orthonormal DCT-II of each of P equal chunks of the publicly shuffled vector.

    Coordinates and zero padding are shuffled together over P chunks of one FFT-friendly length, so that every chunk
    holds its share of the signal. Satisfies :class:`lowkey.protocols.BlockOperator`: per chunk ΘΘᵀ = I. Works through
    the chunks in groups, so that beyond its shuffle it needs the same little memory for a model of any size.

    Given a second public source, it also flips every coordinate's sign at random before the transform. Then no
    coefficient of a dense update is much larger than the others; without, the first of a chunk grows with the mean of
    the coordinates. Blocks hold flipped coordinates: as sparse as before, and ``assemble`` flips them back.
    """

    def __init__(
        self, num_coordinates: int, ratio: float, num_chunks: int, source: BitSource, signs: BitSource | None = None
    ) -> None:
        checks.at_least("num_coordinates", num_coordinates, 1)
        checks.at_least("codec.chunks", num_chunks, 1)
        if num_chunks > num_coordinates:
            raise InvalidInput(
                f"codec.chunks is {num_chunks}, but the model has only {num_coordinates} parameters; "
                f"use at most {num_coordinates} chunks"
            )
        self.num_coordinates, self.num_blocks = num_coordinates, num_chunks
        self.block_length = fast_length(-(-num_coordinates // num_chunks))
        self.block_measurements = measurements_for(ratio, self.block_length)
        self.num_measurements = num_chunks * self.block_measurements
        self._sources = source, signs
        at_once = max(1, _GROUP // self.block_length)
        self.groups = [slice(first, min(first + at_once, num_chunks)) for first in range(0, num_chunks, at_once)]

    # drawn when first used: whoever asks only for sizes, as a deployed client does in most steps, need not shuffle
    @cached_property
    def _coordinates(self) -> NDArray[np.intp]:
        """Coordinate that stands at each position of the shuffled vector; ``num_coordinates`` marks padding."""
        drawn = permutation(self._sources[0], self.num_blocks * self.block_length)
        np.minimum(drawn, self.num_coordinates, out=drawn)
        return drawn.reshape(self.num_blocks, self.block_length)

    @cached_property
    def _signs(self) -> NDArray[np.int8] | None:
        source = self._sources[1]
        return None if source is None else random_signs(source, self._coordinates.size).reshape(self.num_blocks, -1)

    @cached_property
    def _padding(self) -> list[NDArray[np.intp]]:
        return [np.flatnonzero(self._coordinates[group] == self.num_coordinates) for group in self.groups]

    def coordinates(self, group: slice) -> NDArray[np.intp]:
        return self._coordinates[group]

    def forward(self, vector: FloatArray) -> FloatArray:
        checks.vector_of("update", vector, self.num_coordinates)
        measurements = np.empty((self.num_blocks, self.block_measurements), np.float32)
        scratch = np.empty((self.groups[0].stop, self.block_length), np.float32)
        for group, padding in zip(self.groups, self._padding, strict=True):
            coordinates = self._coordinates[group]
            blocks = np.take(vector, coordinates, out=scratch[: len(coordinates)], mode="clip")
            blocks.reshape(-1)[padding] = 0.0
            if self._signs is not None:
                blocks *= self._signs[group]
            spectrum: FloatArray = scipy.fft.dct(blocks, norm="ortho", overwrite_x=True)
            measurements[group] = spectrum[:, : self.block_measurements]
        return measurements.reshape(-1)

    def adjoint(self, measurements: FloatArray) -> FloatArray:
        checks.vector_of("measurements", measurements, self.num_measurements)
        kept = measurements.reshape(self.num_blocks, self.block_measurements)
        return self.assemble(scipy.fft.idct(kept[group], n=self.block_length, norm="ortho") for group in self.groups)

    def assemble(self, solved: Iterable[FloatArray]) -> FloatArray:
        """The model vector of blocks that come group by group; what stands on padding is dropped."""
        vector = np.empty(self.num_coordinates + 1, np.float32)
        for group, blocks in zip(self.groups, solved, strict=True):
            vector[self._coordinates[group]] = blocks if self._signs is None else blocks * self._signs[group]
        return vector[:-1]
