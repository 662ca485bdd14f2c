"""Shamir's secret sharing over GF(2^256 + 297): any T shares give the secret, fewer give nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

from lowkey.errors import InvalidInput
from lowkey.rng import BitSource

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33
_WORDS = 6
"""A coefficient is 384 random bits modulo the prime: within 2^-127 of uniform."""


def split(secret: bytes, points: Iterable[int], shares_needed: int, source: BitSource) -> dict[int, bytes]:
    """Shares of a 32-byte secret at distinct points from 1 on, any ``shares_needed`` of which recover it.

    Guarantees
    ----------
    Fewer shares are independent of the secret: they are values of a random polynomial of degree T - 1 with the secret
    at 0 (Shamir 1979), whose other coefficients come from ``source``.
    """
    if len(secret) != SECRET_BYTES:
        raise InvalidInput(f"the secret has {len(secret)} bytes; it must have {SECRET_BYTES}")
    random = source.bits(_WORDS * (shares_needed - 1)).tobytes()
    width = 8 * _WORDS
    coefficients = [int.from_bytes(random[i : i + width], "big") % PRIME for i in range(0, len(random), width)]
    coefficients.append(int.from_bytes(secret, "big"))
    return {point: _evaluate(coefficients, point).to_bytes(SHARE_BYTES, "big") for point in points}


def _evaluate(coefficients: list[int], point: int) -> int:
    value = 0
    for coefficient in coefficients:
        value = value * point + coefficient  # points are small: reducing once at the end is quicker
    return value % PRIME


def combine(shares: Mapping[int, bytes]) -> bytes | None:
    """The secret from exactly as many shares as are needed, by point; None if they do not belong to one secret."""
    numerators, divisor = _weights(tuple(shares))
    values = [int.from_bytes(share, "big") for share in shares.values()]
    secret = sum(value * weight for value, weight in zip(values, numerators, strict=True)) * divisor % PRIME
    return secret.to_bytes(SECRET_BYTES, "big") if secret < 2**256 else None


@lru_cache(maxsize=4096)
def _weights(points: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Lagrange's weights at 0, Π_{j≠i} x_j / (x_j - x_i), as integers over one divisor, given by its inverse."""
    if len(set(points)) != len(points) or min(points, default=0) < 1:
        raise InvalidInput(f"the points of the shares are {points}; they must be distinct and at least 1")
    product = math.prod(points)
    below = [x * math.prod(other - x for other in points if other != x) for x in points]
    common = math.lcm(*below)
    return tuple(product * (common // part) for part in below), pow(common, -1, PRIME)
