"""Exact sampling of the discrete Gaussian N_Z(0, σ²): P(k) ∝ exp(−k²/2σ²) on the integers.

A draw looks up random bits in a table of the cumulative distribution. Thresholds have 128 bits: with 64, the table's
rounding over all draws of a long run would be as large as the δ of the guarantee.

References
----------
Canonne, Kamath and Steinke (2020), *The Discrete Gaussian for Differential Privacy*, Definition 1.
"""

from __future__ import annotations

import decimal
import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lowkey import checks
from lowkey.rng import BitSource
from lowkey.types import Bits

_REACH = 14  # standard deviations the table covers; beyond lies 2⁻¹⁴¹ of the mass
_PRECISION = 320  # binary digits of the weights
_GUIDE_BITS = 16  # leading bits of a word that index the guide
_AT_ONCE = 2**15  # draws whose random bits fit the cache


def add_discrete_gaussian(values: NDArray[np.int32], std: float, source: BitSource) -> None:
    """Add independent draws of N_Z(0, std²) to ``values``, in place.

    Parameters
    ----------
    values : NDArray[np.int32]
        Vector that the noise is added to.
    std : float
        σ ≥ 0; 0 adds nothing (limiting case).
    source : BitSource
        Secret bits; each draw takes one word.

    Guarantees
    ----------
    Each draw is within 2⁻¹¹³ of N_Z(0, std²) in total variation for std ≤ 1170 (the table's 28·std thresholds, rounded
    to 128 bits), and no floating-point number is involved. Running time depends on the draws: an attacker who can
    measure the client's nanoseconds is not covered.
    """
    checks.not_negative("std", std)
    if std == 0.0:
        return
    from lowkey.privacy.kernels import add_draws  # compiled on import, so imported only when needed

    table = _table(std)
    for first in range(0, values.size, _AT_ONCE):
        part = values[first : first + _AT_ONCE]
        part -= table.reach
        words = source.bits(part.size)
        drawn = add_draws(part, words, 0, table.high, table.guide, table.shift)
        while drawn < part.size:
            part[drawn] += table.count_below(words[drawn], source.bits(1)[0])
            drawn = add_draws(part, words, drawn + 1, table.high, table.guide, table.shift)


def pmf(k: int, std: float) -> float:
    """Probability that the sampler draws k."""
    checks.positive("std", std)
    table = _table(std)
    return (table.cumulative(k) - table.cumulative(k - 1)) / 2**128


@dataclass(frozen=True)
class _Table:
    """Thresholds 2¹²⁸·P(X ≤ k) for k = −reach … reach − 1, as two words each, and an index of their leading bits."""

    reach: np.int32
    high: Bits
    low: Bits
    guide: NDArray[np.int32]
    shift: np.uint64

    def cumulative(self, k: int) -> int:
        """2¹²⁸·P(X ≤ k)."""
        index = k + int(self.reach)
        if not 0 <= index < self.high.size:
            return 0 if index < 0 else 2**128
        return int(self.high[index]) << 64 | int(self.low[index])

    def count_below(self, high: np.uint64, low: np.uint64) -> int:
        """Number of thresholds at or below a 128-bit number."""
        first, last = np.searchsorted(self.high, high, "left"), np.searchsorted(self.high, high, "right")
        return int(first + np.searchsorted(self.low[first:last], low, "right"))


@lru_cache(maxsize=8)
def _table(std: float) -> _Table:
    weights = _weights(std)
    total = 2 * sum(weights) - weights[0]
    cumulative = itertools.accumulate([*reversed(weights), *weights[1:-1]])
    words = b"".join(((c << 128) // total).to_bytes(16, "little") for c in cumulative)
    low, high = np.ascontiguousarray(np.frombuffer(words, "<u8").reshape(-1, 2).T).astype(np.uint64)
    shift = np.uint64(64 - _GUIDE_BITS)
    cells = np.arange(2**_GUIDE_BITS, dtype=np.uint64) << shift
    guide = np.append(np.searchsorted(high, cells), high.size).astype(np.int32)
    return _Table(np.int32(len(weights) - 1), high, low, guide, shift)


def _weights(std: float) -> list[int]:
    """2³²⁰·exp(−k²/2σ²) for k = 0 … 14σ, as integers: w(k+1) = w(k)·q²ᵏ⁺¹ with q = exp(−1/2σ²)."""
    context = decimal.Context(prec=120)
    exponent = context.divide(decimal.Decimal(-1), context.multiply(2, context.power(decimal.Decimal(std), 2)))
    q = int(context.multiply(context.exp(exponent), decimal.Decimal(2**_PRECISION)))
    step, square = q, q * q >> _PRECISION
    weights = [1 << _PRECISION]
    for _ in range(math.ceil(_REACH * std)):
        weights.append(weights[-1] * step >> _PRECISION)
        step = step * square >> _PRECISION
    return weights
