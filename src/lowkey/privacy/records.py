"""The type says what has been done to a client's vector: Measurement → Bounded → Noised.

A ``Measurement`` holds real numbers. Bounding turns it into integers on a public grid, so that its norm, the noise and
the sum over clients are exact; see :class:`lowkey.privacy.encoding.Encoding`.

Only a ``Noised`` vector (or, in schemes without privacy, an ``Open`` one) can be put into a reply.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lowkey.types import FloatArray


@dataclass(frozen=True)
class Measurement:
    """Compressed update of one client. Private: never leaves the client."""

    value: FloatArray = field(repr=False)


@dataclass(frozen=True)
class Bounded:
    """Integers of which one client, or one person, makes at most a norm of ``l2_bound``. Never leaves the client."""

    value: NDArray[np.int32] = field(repr=False)
    l2_bound: float


@dataclass(frozen=True)
class Noised:
    """Bounded integers plus this client's share of the noise, modulo 2^bits. The sum over a cohort may be released."""

    value: NDArray[np.uint32] = field(repr=False)


@dataclass(frozen=True)
class Open:
    """A measurement sent as it is, by a scheme that promises no privacy."""

    value: FloatArray = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class WireFormat:
    """What a client's vector looks like on the wire.

    Attributes
    ----------
    bits : int or None
        Of each of its integers; None for float32 numbers.
    length : int
        How many numbers it has.
    """

    bits: int | None
    length: int

    @property
    def num_bytes(self) -> int:
        return math.ceil(self.length * (self.bits or 32) / 8)
