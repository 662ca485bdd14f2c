"""Tables that several tests ask questions of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowkey.analytics import Answer, Question, Starts, Total

SMALL = {
    "age": np.array([20.0, 40.0, 60.0, np.nan, 90.0, 120.0]),
    "stay": np.array([1.0, 3.0, 2.0, 5.0, 9.0, 4.0]),
    "sex": np.array(["f", "m", "f", None, "x", "m"], object),
    "died": np.array([0.0, 1.0, 0.0, 0.0, 1.0, np.nan]),
}
STARTS = np.array([0, 2, 2, 3, 6])
"""Four units: of 2, 0, 1 and 3 rows."""


def objects(values: Sequence[Any]) -> NDArray[Any]:
    found = np.empty(len(values), object)
    found[:] = values
    return found


SMALL["codes"] = objects([("A1", "B2"), ("A1",), (), ("B2", "C3"), ("A1", "A1"), ("C3", "D4")])


def hospitals(units: int = 400, *, seed: int = 0) -> tuple[dict[str, NDArray[Any]], Starts]:
    """Units of 1 to 12 rows; large ones are older."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 13, units)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    rows, of = int(starts[-1]), np.repeat(sizes, sizes)
    age = rng.normal(45 + 2.0 * of, 15)
    age[rng.random(rows) < 0.1] = np.nan
    codes = [tuple(f"C{rng.integers(9) * rng.integers(3)}" for _ in range(rng.integers(0, 4))) for _ in range(rows)]
    return {
        "age": age,
        "stay": np.abs(np.nan_to_num(age, nan=50.0) / 10 + rng.normal(0, 3, rows)),
        "sex": rng.choice(np.array(["f", "m", "x", None], object), rows, p=[0.5, 0.35, 0.1, 0.05]),
        "died": (rng.random(rows) < 0.3).astype(float),
        "codes": objects(codes),
    }, starts


def exact(question: Question, rows: Any = None, starts: Any = None) -> Answer:
    """The answer without noise."""
    vectors = question.vectors(SMALL if rows is None else rows, STARTS if starts is None else starts)
    assert vectors.shape[1] == question.length
    return question.read(Total(value=vectors.sum(axis=0), noise=0.0, units=len(vectors)))
