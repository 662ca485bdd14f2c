"""Good input, damaged: the same seed gives the same damage."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal

_INTERESTING = [0, 1, 2, 7, 8, 31, 32, 63, 64, 127, 128, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1]
_LARGE = [*_INTERESTING, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1]
_TOKENS = [
    b"[" * 3000, b"{" * 50, b'{"a":' * 3000, b"9" * 400, b"9" * 5000, b"-1", b"1e999", b"NaN", b"Infinity", b"null",
    b"true", b"[]", b"{}", b'""', b"'", b'"', b"\\ud800", b"\xff\xfe", b"\xed\xa0\x80", b"\0", b"\n", b"\r\n", b"#",
    b"=", b".", b"a." * 500, b"[[client]]\n", b"version = 3\n", b"PK\1\2", b"PK\3\4", b"PK\5\6", b"-----END",
    b"\x93NUMPY\1\0", b"../" * 5, b"inf", b"nan", b"0x", b"1_0", b"\x80" * 10, b"\x0a\xff\xff\xff\xff\x0f",
]  # fmt: skip


class Mutator:
    """Makes damaged input from good input.

    Parameters
    ----------
    seeds : sequence of bytes
        Good input; parts of one may be put into another.
    seed : int
        Of all choices.
    """

    def __init__(self, seeds: Sequence[bytes], seed: int) -> None:
        self._seeds, self._random = list(seeds), random.Random(seed)
        self._ways: list[Callable[[bytearray], None]] = [
            self._flip, self._flip, self._set, self._number, self._number, self._cut, self._remove, self._repeat,
            self._splice, self._insert, self._swap, self._digits,
        ]  # fmt: skip

    def next(self) -> bytes:
        """The next damaged input: one to four changes of a good one."""
        data = bytearray(self._random.choice(self._seeds))
        for _ in range(self._random.choice((1, 1, 1, 2, 3, 4))):
            self._random.choice(self._ways)(data)
        return bytes(data)

    def _place(self, data: bytearray) -> int:
        return self._random.randrange(len(data) + 1)

    def _span(self, data: bytearray) -> slice:
        start = self._place(data)
        return slice(start, start + self._random.choice((1, 2, 4, 8, 12, 33, 64, 500)))

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)

    def _set(self, data: bytearray) -> None:
        if data:
            data[self._random.randrange(len(data))] = self._random.choice((0, 1, 32, 34, 46, 48, 57, 127, 128, 255))

    def _number(self, data: bytearray) -> None:
        """A count, a length or a number, in either order of bytes; often the one that is there, moved by little."""
        width = self._random.choice((1, 2, 4, 4, 8))
        order: Literal["big", "little"] = "big" if self._random.random() < 0.7 else "little"
        start = self._place(data)
        if self._random.random() < 0.5:
            near = int.from_bytes(data[start : start + width], order) + self._random.choice((-1, 1, -8, 8))
        else:
            near = self._random.choice(_LARGE)
        data[start : start + width] = (near % 256**width).to_bytes(width, order)

    def _cut(self, data: bytearray) -> None:
        del data[self._place(data) :]

    def _remove(self, data: bytearray) -> None:
        del data[self._span(data)]

    def _repeat(self, data: bytearray) -> None:
        span = self._span(data)
        data[span.start : span.start] = data[span] * self._random.choice((1, 1, 2, 50))

    def _splice(self, data: bytearray) -> None:
        other = self._random.choice(self._seeds)
        start = self._random.randrange(len(other) + 1)
        data[self._span(data)] = other[start : start + self._random.choice((4, 12, 64, 500, 5000))]

    def _insert(self, data: bytearray) -> None:
        start = self._place(data)
        data[start:start] = self._random.choice(_TOKENS)

    def _swap(self, data: bytearray) -> None:
        one, other = self._span(data), self._span(data)
        data[one], data[other] = data[other], data[one]

    def _digits(self, data: bytearray) -> None:
        """Another number in text."""
        digits = [place for place, byte in enumerate(data[:2000]) if 48 <= byte <= 57]
        if digits:
            start = self._random.choice(digits)
            data[start : start + 1] = str(self._random.choice(_LARGE)).encode()
