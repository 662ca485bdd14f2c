"""Recipes for operators: public numbers from which client and server build the same map for a round."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

from lowkey import checks
from lowkey.codec.operators import ChunkedDCT, Identity, LowPassDCT, RandomSubset
from lowkey.errors import InvalidInput
from lowkey.protocols import Operator
from lowkey.rng import PublicStream

CodecKind: TypeAlias = Literal["identity", "random-subset", "low-pass-dct", "chunked-dct"]


@dataclass(frozen=True, kw_only=True)
class Codec:
    """How updates are measured.

    Parameters
    ----------
    kind : "identity", "random-subset" (a new subset each round), "low-pass-dct" or "chunked-dct".
    ratio : share of measurements to coordinates, in (0, 1]; must be 1 for "identity".
    chunks : number of chunks of "chunked-dct".
    public_seed : names the shuffle, the signs or the subsets; known to all participants.
    signs : whether "chunked-dct" flips the sign of every coordinate at random before it transforms.
    """

    kind: CodecKind = "identity"
    ratio: float = 1.0
    chunks: int = 200
    public_seed: int = 0
    signs: bool = False

    def __post_init__(self) -> None:
        if self.kind not in get_args(CodecKind):
            raise InvalidInput(f"codec kind is {self.kind!r}; it must be one of {', '.join(get_args(CodecKind))}")
        checks.fraction("codec.ratio", self.ratio)
        if self.kind == "identity" and self.ratio != 1.0:
            raise InvalidInput(f"codec.ratio is {self.ratio}, but whole updates are sent; leave it at 1")
        if self.signs and self.kind != "chunked-dct":
            raise InvalidInput(f"codec.signs is true, but codec kind is {self.kind!r}; only 'chunked-dct' uses signs")
        checks.at_least("codec.chunks", self.chunks, 1)

    @property
    def changes_each_round(self) -> bool:
        """True when measurements of two rounds do not add up to measurements of the sum."""
        return self.kind == "random-subset"

    def operator(self, num_coordinates: int, round_number: int) -> Operator:
        """The map of one round (rounds count from 1)."""
        return _build(self, num_coordinates, round_number if self.changes_each_round else 0)


@lru_cache(maxsize=2)
def _build(codec: Codec, num_coordinates: int, round_number: int) -> Operator:
    if codec.kind == "identity":
        return Identity(num_coordinates)
    if codec.kind == "low-pass-dct":
        return LowPassDCT(num_coordinates, codec.ratio)
    source = PublicStream(codec.public_seed, codec.kind, round_number)
    if codec.kind == "random-subset":
        return RandomSubset(num_coordinates, codec.ratio, source)
    signs = PublicStream(codec.public_seed, codec.kind, "signs") if codec.signs else None
    return ChunkedDCT(num_coordinates, codec.ratio, codec.chunks, source, signs)
