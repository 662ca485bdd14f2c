"""The first coefficients of the DCT of every chunk of the shuffled update: the compression of FL-CS.

References
----------
Kerkouche et al. (2021), *Compression Boosts Differentially Private Federated Learning*, Section 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from lowkey import checks
from lowkey.codec.sizes import fast_length, measurements_for
from lowkey.errors import InvalidInput
from lowkey.protocols import PublicNumbers
from lowkey.rng import BitSource, PublicStream, permutation, random_signs
from lowkey.types import FloatArray

_GROUP = 2**21  # coordinates that are worked on at once
_FEW_BITS = 16  # with so few bits, a number has no room for the spikes of a dense update


@dataclass(frozen=True, kw_only=True)
class ChunkedDCT:
    """Clients shuffle the update publicly, cut it into chunks, and send the lowest frequencies of each.

    Parameters
    ----------
    ratio : float
        Coefficients that are sent over all coefficients, r, in (0, 1].
    chunks : int
        P, how many chunks there are.
    signs : bool or None
        Whether a public coin flips every coordinate's sign before the DCT. None flips only where numbers have 16 bits
        or fewer on the wire.
    """

    ratio: float = 1.0
    chunks: int = 200
    signs: bool | None = None
    changes_each_round: ClassVar[bool] = False
    makes_blocks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.fraction("codec.ratio", self.ratio)
        checks.at_least("codec.chunks", self.chunks, 1)

    def operator(self, num_coordinates: int, public: PublicNumbers) -> ChunkedOperator:
        flips = public.bits is not None and public.bits <= _FEW_BITS if self.signs is None else self.signs
        return ChunkedOperator(
            num_coordinates,
            self.ratio,
            self.chunks,
            PublicStream(public.seed, "chunked-dct", 0),
            PublicStream(public.seed, "chunked-dct", "signs") if flips else None,
        )


class ChunkedOperator:
    """First coefficients of the orthonormal DCT-II of each of P equal chunks of the publicly shuffled vector.

    Coordinates and zero padding are shuffled together over P chunks of one FFT-friendly length, so that every chunk
    holds its part of the signal. Satisfies :class:`lowkey.protocols.BlockOperator`: per chunk ΘΘᵀ = I. It works
    through the chunks in groups, so that besides its shuffle it needs the same little memory for a model of any size.

    Given a second public source, it also flips every coordinate's sign at random before the transform. Then no
    coefficient of a dense update is much larger than the others; without the flips, the first coefficient of a chunk
    grows with the mean of the coordinates. Blocks hold flipped coordinates, which are as sparse as before; ``assemble``
    flips them back.
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

    # drawn when first used: callers that need only sizes, as a deployed client in most steps, do not shuffle
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
        """The model vector from blocks that come group by group; values at padding positions are dropped."""
        vector = np.empty(self.num_coordinates + 1, np.float32)
        for group, blocks in zip(self.groups, solved, strict=True):
            vector[self._coordinates[group]] = blocks if self._signs is None else blocks * self._signs[group]
        return vector[:-1]
