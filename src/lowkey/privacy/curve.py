"""Commitments in the group of Ed25519, by libsodium: they hide a vector, bind to it, and add up like vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

import nacl.bindings as sodium

from lowkey.rng import BitSource

ORDER = 2**252 + 27742317777372353535851937790883648493  # of the group; a prime
POINT_BYTES = SCALAR_BYTES = 32
NOTHING = b"\x01" + bytes(31)  # the neutral point

_OFFSET = 2**130  # is added to every secret scalar, so that none is 0: libsodium refuses 0


def scalar_bytes(value: int) -> bytes:
    """A number modulo the order of the group."""
    return (value % ORDER).to_bytes(SCALAR_BYTES, "little")


def random_scalars(source: BitSource, count: int) -> list[int]:
    """Numbers below the order, uniform up to 2⁻²⁵⁸."""
    words = source.bits(8 * count).tobytes()
    return [int.from_bytes(words[64 * i : 64 * i + 64], "little") % ORDER for i in range(count)]


def is_point(data: bytes) -> bool:
    """Whether these bytes are a point of the group other than the neutral one, in its one encoding."""
    return len(data) == POINT_BYTES and bool(sodium.crypto_core_ed25519_is_valid_point(data))


def add(points: Iterable[bytes]) -> bytes:
    """The sum of points."""
    total = NOTHING
    for point in points:
        total = sodium.crypto_core_ed25519_add(total, point)
    return total


def subtract(point: bytes, other: bytes) -> bytes:
    """The difference of two points."""
    difference: bytes = sodium.crypto_core_ed25519_sub(point, other)
    return difference


def combine(scalars: Iterable[int], points: Iterable[bytes]) -> bytes:
    """Σ scalar · point; numbers that are 0 modulo the order are left out."""
    return add(
        sodium.crypto_scalarmult_ed25519_noclamp(scalar_bytes(value), point)
        for value, point in zip(scalars, points, strict=True)
        if value % ORDER
    )


@lru_cache(maxsize=16)
def generators(name: str, count: int) -> tuple[bytes, ...]:
    """Points between which nobody knows a relation: hashes of their names, mapped to the curve by Elligator 2."""
    digests = (hashlib.sha256(f"lowkey generator {name} {index}".encode()).digest() for index in range(count))
    return tuple(sodium.crypto_core_ed25519_from_uniform(digest) for digest in digests)


@lru_cache(maxsize=16)
def _offsets(name: str, count: int) -> bytes:
    return combine([_OFFSET], [add(generators(name, count))])


def commit(name: str, values: Sequence[int], blinding: int) -> bytes:
    """C = ρH + Σ v_i G_i, a point that tells nothing about the values while ρ, the blinding, is secret and uniform.

    Guarantees
    ----------
    Hiding rests on nothing, binding on discrete logarithms (Pedersen 1991). Commitments add up: the sum of several is
    the commitment to the sums of their values and of their blindings. libsodium multiplies in constant time.
    """
    shifted = combine((value + _OFFSET for value in values), generators(name, len(values)))
    hidden = add([shifted, combine([blinding], generators("blinding", 1))])
    return subtract(hidden, _offsets(name, len(values)))


if is_point(sodium.crypto_core_ed25519_add(generators("one", 1)[0], (2**255 - 20).to_bytes(32, "little"))):
    raise ImportError("libsodium takes points outside of the group (CVE-2025-69277); install PyNaCl 1.6.2 or later")
