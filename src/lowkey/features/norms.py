"""Maps that give rows, or groups of their numbers, a common size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.features.maps import BlockMap, Shape, count_of, flat
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class GroupNorm(BlockMap):
    """Gives each group of neighbouring numbers of a row mean 0 and variance 1.

    After a scattering of 28 × 28 images (81 channels of 7 × 7), 27 groups are three channels each. Unlike batch
    normalisation this looks at one row alone, so that it costs no privacy.

    Parameters
    ----------
    groups : int
        How many groups a row has, all of the same length.
    epsilon : float
        Added to the variance, above 0: a group of equal numbers becomes zeros.

    References
    ----------
    Wu and He (2018), *Group Normalization*; Tramèr and Boneh (2021), *Differentially Private Learning Needs Better
    Features (or Much More Data)*, Sec. 2.2.
    """

    kind: ClassVar[str] = "group-norm"
    groups: int = 27
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        checks.at_least("group-norm: groups", self.groups, 1)
        checks.positive("group-norm: epsilon", self.epsilon)

    def width(self, inputs: Shape) -> int:
        count = count_of(inputs)
        if count % self.groups:
            near = [divisor for divisor in range(1, count + 1) if count % divisor == 0]
            best = min(near, key=lambda divisor: abs(divisor - self.groups))
            raise InvalidInput(
                f"group-norm: a row of {count} numbers cannot be divided into {self.groups} groups of equal length; "
                f"{best} groups would do"
            )
        return count

    def _block(self, rows: FloatArray) -> FloatArray:
        grouped = rows.reshape(len(rows), self.groups, -1)
        centred: FloatArray = grouped - grouped.mean(2, keepdims=True)
        variance = np.einsum("ngk,ngk->ng", centred, centred)[..., None] / np.float32(centred.shape[2])
        centred /= np.sqrt(variance + np.float32(self.epsilon))
        return flat(centred)


@dataclass(frozen=True, kw_only=True)
class UnitNorm(BlockMap):
    """Scales each row to one Euclidean norm; rows of zeros stay zeros.

    Parameters
    ----------
    norm : float
        The norm, above 0.
    at_most : bool
        Scale only rows above the norm, and leave the others as they are.
    """

    kind: ClassVar[str] = "unit-norm"
    takes_sparse: ClassVar[bool] = True
    norm: float = 1.0
    at_most: bool = False

    def __post_init__(self) -> None:
        checks.positive("unit-norm: norm", self.norm)
        checks.one_of("unit-norm: at_most", self.at_most, (True, False))

    def width(self, inputs: Shape) -> int:
        return count_of(inputs)

    def _block(self, rows: FloatArray) -> FloatArray:
        rows = flat(rows)
        return rows * self._factors(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))[:, None]

    def _sparse(self, rows: Any) -> Any:
        squares = np.asarray(rows.astype(np.float64).power(2).sum(axis=1)).ravel()
        scaled = rows.copy()
        scaled.data *= np.repeat(self._factors(squares), np.diff(rows.indptr))
        return scaled

    def _factors(self, squares: Any) -> FloatArray:
        """What each row is multiplied by, from its squared norm."""
        norms = np.sqrt(squares)
        factors = np.divide(self.norm, norms, out=np.zeros_like(norms), where=norms > 0)
        return np.asarray(np.minimum(factors, 1.0) if self.at_most else factors, np.float32)
