"""Vectors of b-bit numbers as bytes without gaps: value i takes bits i·b to (i + 1)·b, low bits first."""

from __future__ import annotations

import math

import numpy as np

from lowkey.errors import InvalidInput
from lowkey.types import Words


def packed_size(length: int, bits: int) -> int:
    """How many bytes ``length`` numbers take: ⌈length · bits / 8⌉."""
    if not 8 <= bits <= 32:
        raise InvalidInput(f"bits is {bits}; it must lie in 8 … 32")
    return -(-length * bits // 8)


def pack(values: Words, bits: int) -> bytes:
    """Bytes of unsigned numbers below 2^bits."""
    size = packed_size(values.size, bits)
    if values.dtype != np.uint32 or values.ndim != 1:
        raise InvalidInput(f"values are {values.dtype} of shape {values.shape}; they must be a vector of uint32")
    if values.size and int(values.max()) >> bits:
        raise InvalidInput(f"the largest value is {values.max()}; it must be below 2^{bits}")
    group, width = _whole_bytes(bits)
    if width > 8:
        return _pack_bit_by_bit(values, bits)
    padded = np.zeros((-(-values.size // group), group), np.uint32)
    padded.reshape(-1)[: values.size] = values
    joined = padded[:, 0].astype("<u8")
    for index in range(1, group):
        joined |= padded[:, index].astype("<u8") << np.uint64(index * bits)
    return joined.view(_low_bytes(width))["low"].tobytes()[:size]


def unpack(data: bytes, bits: int, length: int) -> Words:
    """The ``length`` numbers that :func:`pack` wrote; refuses any other bytes.

    Guarantees
    ----------
    The length is checked before anything is copied, and the result packs to the same bytes again: bits after the last
    number must be 0. The working memory is at most 64 bytes for each number.
    """
    size = packed_size(length, bits)
    if len(data) != size:
        raise InvalidInput(f"the packed vector has {len(data)} bytes; {length} numbers of {bits} bits take {size}")
    if size and data[-1] >> (8 - (8 * size - length * bits)):
        raise InvalidInput("the packed vector has bits after its last number")
    group, width = _whole_bytes(bits)
    if width > 8:
        return _unpack_bit_by_bit(data, bits, length)
    groups = -(-length // group)
    joined = np.zeros(groups, "<u8")
    joined.view(_low_bytes(width))["low"] = np.frombuffer(data.ljust(groups * width, b"\0"), f"V{width}")
    values = np.empty((groups, group), np.uint32)
    for index in range(group):
        values[:, index] = (joined >> np.uint64(index * bits)) & np.uint64(2**bits - 1)
    return values.reshape(-1)[:length]


def _whole_bytes(bits: int) -> tuple[int, int]:
    """Smallest group of numbers that fills whole bytes, and how many bytes; up to 8 bytes are joined in one word."""
    group = 8 // math.gcd(bits, 8)
    return group, group * bits // 8


def _low_bytes(width: int) -> np.dtype[np.void]:
    """The first bytes of little-endian 64-bit words, as a field, so that they are copied in one go."""
    return np.dtype({"names": ["low"], "formats": [f"V{width}"], "itemsize": 8})


def _pack_bit_by_bit(values: Words, bits: int) -> bytes:
    """For odd and other unusual widths: correct, several times slower."""
    matrix = np.unpackbits(values.astype("<u4").view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
    return np.packbits(matrix[:, :bits].reshape(-1), bitorder="little").tobytes()


def _unpack_bit_by_bit(data: bytes, bits: int, length: int) -> Words:
    matrix = np.zeros((length, 32), np.uint8)
    flat = np.unpackbits(np.frombuffer(data, np.uint8), count=length * bits, bitorder="little")
    matrix[:, :bits] = flat.reshape(length, bits)
    return np.packbits(matrix, axis=1, bitorder="little").view("<u4")[:, 0].astype(np.uint32, copy=False)
