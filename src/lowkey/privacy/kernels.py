"""The loops of encoding and noise, compiled."""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def add_draws(values, words, start, high, guide, shift):
    """Add to ``values[i]`` the number of thresholds below ``words[i]``, from ``start`` on.

    ``guide`` says between which thresholds a word with these leading bits falls: mostly nothing is left to search.
    Stops and returns i where the leading word of a threshold equals ``words[i]``, else returns the length.
    """
    for i in range(start, words.size):
        word = words[i]
        cell = np.int64(word >> shift)
        first, last = guide[cell], guide[cell + 1]
        while first < last:
            middle = (first + last) >> 1
            if high[middle] == word:
                return i
            if high[middle] < word:
                first = middle + 1
            else:
                last = middle
        values[i] += first
    return words.size


@njit(cache=True, nogil=True, fastmath={"reassoc"})
def square(values):
    """Σ values², in float64; in whatever order is quickest."""
    total = 0.0
    for i in range(values.size):
        value = np.float64(values[i])
        total += value * value
    return total


@njit(cache=True, nogil=True)
def round_randomly(values, scale, largest, coins, rounded):
    """Round scale · values, clamped to ±largest, up with the probability of the fraction; returns Σ rounded²."""
    squares = np.int64(0)
    for i in range(values.size):
        x = min(max(values[i] * scale, -largest), largest)
        below = math.floor(x)
        up = coins[i] < (x - below) * 4294967296.0  # a coin is 32 bits
        u = np.int64(below) + np.int64(up)
        rounded[i] = u
        squares += u * u
    return squares
