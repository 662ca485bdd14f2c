"""How many numbers are measured, and which lengths have a cheap transform."""

from __future__ import annotations

from lowkey import checks
from lowkey.errors import InvalidInput


def fast_length(length: int) -> int:
    """Smallest length ≥ ``length`` whose prime factors are at most 13: a transform of it is cheap."""
    while True:
        rest = length
        for prime in (2, 3, 5, 7, 11, 13):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return length
        length += 1


def measurements_for(ratio: float, length: int) -> int:
    """Number of measurements that a ratio in (0, 1] keeps of ``length`` coordinates; it must be at least one."""
    checks.fraction("codec.ratio", ratio)
    kept = round(ratio * length)
    if kept < 1:
        raise InvalidInput(
            f"codec.ratio is {ratio:g}, which keeps none of {length} numbers; use at least {1 / length:.2g}"
        )
    return kept
