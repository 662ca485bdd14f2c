"""Fewer columns from a public seed: random projection, and hashing of columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.features.maps import BlockMap, Shape, count_of, flat
from lowkey.rng import PublicStream, random_signs, subset
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class Projection(BlockMap):
    """A random projection to fewer numbers, which keeps the squared norm of a row on average over seeds.

    Public random signs, an orthonormal cosine transform, and a public random subset of its coefficients, times
    √(numbers / size). Its rows are orthogonal, which those of a Gaussian matrix are not: at 3,969 → 1,500 the latter
    stretches some directions four times as much as others. Orthonormal rows by a QR factorisation would not be the same
    on two machines, and a matrix costs time and memory; signs and subset are whole numbers from
    :class:`lowkey.rng.PublicStream`, so that every machine has the same map up to the rounding of its transform.

    Parameters
    ----------
    size : int
        Numbers of a projected row; fewer than a row has before.
    seed : int
        The public seed.

    References
    ----------
    Ailon and Chazelle (2006), *Approximate Nearest Neighbors and the Fast Johnson-Lindenstrauss Transform*; Tropp
    (2011), *Improved Analysis of the Subsampled Randomized Hadamard Transform*.
    """

    kind: ClassVar[str] = "projection"
    takes_sparse: ClassVar[bool] = True
    size: int
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least("projection: size", self.size, 1)
        checks.at_least("projection: seed", self.seed, 0)

    def width(self, inputs: Shape) -> int:
        if self.size >= count_of(inputs):
            raise InvalidInput(
                f"projection: size is {self.size}, and a row has only {count_of(inputs)} numbers; choose a smaller "
                "size, or leave the projection out"
            )
        return self.size

    def _block(self, rows: FloatArray) -> FloatArray:
        import scipy.fft

        rows = flat(rows)
        signs, chosen = _signs_and_places(rows.shape[1], self.size, self.seed)
        mixed = scipy.fft.dct(rows * signs, axis=1, norm="ortho", overwrite_x=True)
        return np.asarray(mixed[:, chosen] * np.float32(math.sqrt(rows.shape[1] / self.size)), np.float32)


@lru_cache(maxsize=4)
def _signs_and_places(count: int, size: int, seed: int) -> tuple[FloatArray, NDArray[np.intp]]:
    signs = random_signs(PublicStream(seed, "feature projection", "signs", count), count)
    return signs.astype(np.float32), subset(PublicStream(seed, "feature projection", "places", count), count, size)


@dataclass(frozen=True, kw_only=True)
class Hashing(BlockMap):
    """Adds each column, with a public random sign, to one of a few columns that a public hash chooses.

    It keeps inner products on average over seeds, and sparse rows sparse. Where a column goes depends on its number and
    the seed only, not on how many columns there are.

    Parameters
    ----------
    size : int
        Columns after hashing.
    seed : int
        The public seed.

    References
    ----------
    Weinberger et al. (2009), *Feature Hashing for Large Scale Multitask Learning*.
    """

    kind: ClassVar[str] = "hashing"
    takes_sparse: ClassVar[bool] = True
    size: int
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least("hashing: size", self.size, 1)
        checks.at_least("hashing: seed", self.seed, 0)

    def width(self, inputs: Shape) -> int:
        count_of(inputs)
        return self.size

    def _block(self, rows: FloatArray) -> FloatArray:
        rows = flat(rows)
        return np.asarray(rows @ _hash_matrix(rows.shape[1], self.size, self.seed), np.float32)

    def _sparse(self, rows: Any) -> Any:
        return rows @ _hash_matrix(rows.shape[1], self.size, self.seed)


@lru_cache(maxsize=4)
def _hash_matrix(count: int, size: int, seed: int) -> Any:
    """One entry, +1 or −1, in each of ``count`` rows."""
    import scipy.sparse

    words = PublicStream(seed, "feature hashing").bits(count)
    signs = np.where(words & np.uint64(1), np.float32(-1), np.float32(1))
    places = ((words >> np.uint64(1)) % np.uint64(size)).astype(np.int32)
    return scipy.sparse.csr_array((signs, places, np.arange(count + 1, dtype=np.int32)), shape=(count, size))
