"""Masks: a key expanded to as many numbers as a vector has, by AES-256 in counter mode; or to one large number."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from lowkey.types import Words

_BLOCK = 1 << 15
"""Numbers masked at a time: vector, zeros and key stream of a block stay in a core's cache."""


def apply_masks(vector: Words, *, add: Sequence[bytes] = (), subtract: Sequence[bytes] = ()) -> None:
    """Add and subtract the masks of 32-byte keys, in place, modulo 2^32; to work with fewer bits, keep the low ones.

    The mask of a key is its AES-256-CTR key stream from counter 0, read as little-endian 32-bit numbers.
    """
    streams = [
        (Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor(), combine)
        for keys, combine in ((add, np.add), (subtract, np.subtract))
        for key in keys
    ]
    size = min(_BLOCK, vector.size)
    zeros, scratch = memoryview(bytes(4 * size)), np.empty(size, "<u4")
    written = scratch.view(np.uint8).data
    for start in range(0, vector.size, _BLOCK):
        block = vector[start : start + _BLOCK]
        for stream, combine in streams:
            stream.update_into(zeros[: block.nbytes], written[: block.nbytes])
            combine(block, scratch[: block.size], out=block)


def scalar_mask(*, add: Sequence[bytes] = (), subtract: Sequence[bytes] = ()) -> int:
    """One large integer from the same keys: HMAC-SHA-512 of each, added and subtracted; it cancels as masks do."""
    return sum(map(_number, add)) - sum(map(_number, subtract))


def _number(key: bytes) -> int:
    return int.from_bytes(hmac.digest(key, b"lowkey/secagg/scalar", "sha512"), "little")


def keep_bits(vector: Words, bits: int) -> None:
    """Reduce modulo 2^bits, in place."""
    vector &= np.uint32(2**bits - 1)
