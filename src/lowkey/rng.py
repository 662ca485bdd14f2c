"""Three kinds of randomness, never mixed.

*Reproducible* (data split, order of local SGD): :func:`generator`, a NumPy generator named by a seed and a path.
*Public* (sensing shuffle, random subsets): :class:`PublicStream`, known to every participant. It uses only raw
words of a counter-based generator, whose stream NumPy promises never to change, so that two machines with different
NumPy releases agree.
*Secret* (noise, cohort sampling that claims amplification): :class:`OSSecrets`, keyed by the operating system. It takes
no seed. :class:`ReplaySecrets` stands in for it in tests; a run that used it claims no privacy.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from lowkey.errors import InvalidInput
from lowkey.types import Bits


def _derive(seed: int, names: tuple[object, ...]) -> int:
    """128 bits that depend on the seed and on every name."""
    path = "\x1f".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=16).digest(), "little")


def generator(seed: int, *names: object) -> np.random.Generator:
    """Reproducible NumPy generator for one purpose, such as ``generator(0, "client", round, id)``."""
    return np.random.Generator(np.random.PCG64(_derive(seed, names)))


class BitSource(Protocol):
    """A source of 64-bit words."""

    def bits(self, count: int) -> Bits: ...


class PublicStream:
    """Words that everyone who knows the seed can draw again."""

    def __init__(self, seed: int, *names: object) -> None:
        self._philox = np.random.Philox(key=_derive(seed, names))

    def bits(self, count: int) -> Bits:
        return np.asarray(self._philox.random_raw(count), dtype=np.uint64)


@dataclass(frozen=True)
class _CipherStream:
    """AES-256-CTR under a fresh key of the operating system, used once and never stored."""

    _keystream: CipherContext = field(
        default_factory=lambda: Cipher(algorithms.AES(os.urandom(32)), modes.CTR(bytes(16))).encryptor(), repr=False
    )

    def bits(self, count: int) -> Bits:
        return np.frombuffer(self._keystream.update(bytes(8 * count)), dtype=np.uint64)


class Secrets(Protocol):
    """Gives one independent source for each named purpose."""

    @property
    def claims_privacy(self) -> bool: ...

    def source(self, *names: object) -> BitSource: ...


class OSSecrets:
    """Secret randomness for production: every source has its own key from the operating system.

    Guarantees
    ----------
    No seed, no fallback, no state on disk. Two calls never share a stream, whatever the names.
    """

    claims_privacy: ClassVar[bool] = True

    def source(self, *names: object) -> BitSource:
        return _CipherStream()


@dataclass(frozen=True)
class ReplaySecrets:
    """NOT SECRET: repeats the same "secrets" for a seed, for tests only; runs that use it claim no privacy."""

    seed: int
    claims_privacy: ClassVar[bool] = False

    def source(self, *names: object) -> BitSource:
        return PublicStream(self.seed, "replayed secret", *names)


def _shuffled_keys(source: BitSource, size: int) -> tuple[Bits, np.uint64]:
    """Distinct random keys whose low bits are 0 .. size-1, and the mask of those bits."""
    if size < 1:
        raise InvalidInput(f"cannot draw from {size} items; at least 1 is needed")
    width = np.uint64(max(1, (size - 1).bit_length()))
    keys = source.bits(size) << width
    keys |= np.arange(size, dtype=np.uint64)
    return keys, (np.uint64(1) << width) - np.uint64(1)


def permutation(source: BitSource, size: int) -> NDArray[np.intp]:
    """Random order of 0 .. size-1, by sorting random keys that carry their index in the low bits."""
    keys, mask = _shuffled_keys(source, size)
    keys.sort()
    keys &= mask
    return keys.astype(np.intp)


def subset(source: BitSource, size: int, count: int) -> NDArray[np.intp]:
    """Random subset of ``count`` of 0 .. size-1, ascending."""
    if not 0 <= count <= size:
        raise InvalidInput(f"cannot choose {count} of {size} items; choose 0 to {size}")
    if count == size:
        return np.arange(size, dtype=np.intp)
    keys, mask = _shuffled_keys(source, size)
    chosen = np.partition(keys, count)[:count] & mask
    chosen.sort()
    return chosen.astype(np.intp)


def random_signs(source: BitSource, size: int) -> NDArray[np.int8]:
    """Independent fair +1 and −1, one bit each."""
    words = source.bits(-(-size // 64)).astype("<u8", copy=False)
    signs = np.unpackbits(words.view(np.uint8), count=size).view(np.int8)
    signs *= -2
    signs += 1
    return signs


def coin_flips(source: BitSource, size: int, probability: float) -> NDArray[np.intp]:
    """Those of 0 .. size-1 whose independent coin of this probability fell on heads, ascending."""
    if probability >= 1.0:
        return np.arange(size, dtype=np.intp)
    return np.flatnonzero(source.bits(size) < np.uint64(int(probability * 2.0**64)))
