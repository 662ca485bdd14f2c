"""Range checks that give one-line errors: name, value, allowed range."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable

import numpy as np

from lowkey.errors import InvalidInput
from lowkey.types import FloatArray


def number(name: str, value: object) -> None:
    """Refuse what is not a real number, such as a bool or text."""
    if type(value) is float:  # nearly always, and an abstract class takes long to ask
        return
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidInput(f"{name} is {value!r}; it must be a number")


def positive(name: str, value: float, *, most: float | None = None) -> None:
    """Refuse what is not a number above 0, and at most ``most``."""
    number(name, value)
    if not value > 0 or math.isinf(value):
        raise InvalidInput(f"{name} is {value}; it must be a number above 0")
    if most is not None and value > most:
        raise InvalidInput(f"{name} is {value:g}; it must be at most {most:g}")


def not_negative(name: str, value: float) -> None:
    """Refuse what is not a finite number of at least 0."""
    number(name, value)
    if not (value >= 0 and math.isfinite(value)):
        raise InvalidInput(f"{name} is {value}; it must be 0 or above")


def fraction(name: str, value: float, *, include_zero: bool = False, include_one: bool = True) -> None:
    """Refuse what is not a number between 0 and 1."""
    number(name, value)
    low = value >= 0 if include_zero else value > 0
    high = value <= 1 if include_one else value < 1
    if not (low and high):
        interval = f"{'[' if include_zero else '('}0, 1{']' if include_one else ')'}"
        raise InvalidInput(f"{name} is {value}; it must lie in {interval}")


def at_least(name: str, value: int, least: int) -> None:
    """Refuse what is not a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InvalidInput(f"{name} is {value!r}; it must be a whole number of at least {least}")
    if value < least:
        raise InvalidInput(f"{name} is {value}; it must be at least {least}")


def one_of(name: str, value: object, choices: Iterable[object]) -> None:
    """Refuse what is not one of the allowed values."""
    allowed = list(choices)
    if value not in allowed:
        raise InvalidInput(f"{name} is {value!r}; it must be one of {', '.join(map(str, allowed))}")


def vector_of(name: str, vector: FloatArray, length: int) -> None:
    """Refuse what is not a float32 vector of exactly this length."""
    if vector.shape != (length,):
        raise InvalidInput(f"{name} has shape {vector.shape}; it must be a vector of {length} numbers")
    if vector.dtype != np.float32:
        raise InvalidInput(f"{name} has type {vector.dtype}; it must be float32")


def finite(name: str, vector: FloatArray) -> None:
    """Refuse NaN, infinity, and numbers whose norm is infinite."""
    if not is_finite(vector):
        raise InvalidInput(f"{name} holds NaN or infinite numbers; lower the learning rate or check the data")


def finite_norm(name: str, vector: FloatArray) -> float:
    """Euclidean norm, summed in float64; refuses NaN and infinity."""
    finite(name, vector)
    return math.sqrt(float(np.einsum("i,i->", vector, vector, dtype=np.float64)))


def is_finite(vector: FloatArray) -> bool:
    """Whether all numbers of a vector, and its norm in float64, are finite."""
    with np.errstate(all="ignore"):
        square = float(np.dot(vector, vector))  # in float32: squares do not cancel, so what is not finite stays
    if math.isfinite(square):
        return True
    return math.isfinite(float(np.einsum("i,i->", vector, vector, dtype=np.float64)))
