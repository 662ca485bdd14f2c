"""The type says what has been done to a client's vector: Measurement → Bounded → Noised.

Only a ``Noised`` vector (or, in schemes without privacy, an ``Open`` one) can be put into a reply.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lowkey.types import FloatArray


@dataclass(frozen=True)
class Measurement:
    """Compressed update of one client. Private: never leaves the client."""

    value: FloatArray = field(repr=False)


@dataclass(frozen=True)
class Bounded:
    """A measurement whose Euclidean norm is at most ``l2_bound``. Private: never leaves the client."""

    value: FloatArray = field(repr=False)
    l2_bound: float


@dataclass(frozen=True)
class Noised:
    """A bounded measurement plus this client's share of the noise. The sum over a cohort may be released."""

    value: FloatArray = field(repr=False)


@dataclass(frozen=True)
class Open:
    """A measurement sent as it is, by a scheme that promises no privacy."""

    value: FloatArray = field(repr=False)
