"""Several maps as one: one after the other, or side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lowkey.errors import InvalidInput
from lowkey.features.maps import FeatureMap, Rows, Shape, as_array, count_of, digest_of, flat, is_sparse


@dataclass(frozen=True)
class Chain:
    """Maps one after the other; without any, rows stay as they are.

    Parameters
    ----------
    maps : tuple of FeatureMap
        The first gets the rows themselves.
    """

    maps: tuple[FeatureMap, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "maps", _as_maps("a chain", self.maps))

    @property
    def digest(self) -> str:
        return digest_of("chain", {"maps": [one.digest for one in self.maps]})

    def width(self, inputs: Shape) -> int:
        size: Shape = inputs
        for one in self.maps:
            size = one.width(size)
        return count_of(size)

    def __call__(self, rows: Rows) -> Rows:
        for one in self.maps:
            rows = one(rows)
        return rows


@dataclass(frozen=True)
class Beside:
    """The features of several maps of the same rows, side by side; sparse where all of them are.

    Parameters
    ----------
    maps : tuple of FeatureMap
        At least one. With :class:`Columns` at the front of a chain, each gets columns of its own.
    """

    maps: tuple[FeatureMap, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "maps", _as_maps("beside", self.maps))
        if not self.maps:
            raise InvalidInput("beside has no maps; give at least one")

    @property
    def digest(self) -> str:
        return digest_of("beside", {"maps": [one.digest for one in self.maps]})

    def width(self, inputs: Shape) -> int:
        return sum(one.width(inputs) for one in self.maps)

    def __call__(self, rows: Rows) -> Rows:
        parts = [one(rows) for one in self.maps]
        if all(map(is_sparse, parts)):
            import scipy.sparse

            return scipy.sparse.hstack(parts, format="csr", dtype=np.float32)
        return np.concatenate(
            [flat(part.toarray() if is_sparse(part) else as_array("beside", part)) for part in parts], 1
        )


def _as_maps(name: str, maps: Iterable[FeatureMap]) -> tuple[FeatureMap, ...]:
    listed = tuple(maps)
    for place, one in enumerate(listed):
        if isinstance(one, type) or not callable(one) or not hasattr(one, "digest"):
            raise InvalidInput(f"part {place} of {name} is {one!r}; it must be a feature map")
    return listed
