"""Two clouds of points that a linear model tells apart, divided among clients."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

Rows: TypeAlias = tuple[np.ndarray, np.ndarray]


def blobs(clients: int = 60, each: int = 8) -> tuple[list[Rows], Rows]:
    """The points of so many clients, and 400 to test on."""
    rng = np.random.default_rng(0)

    def draw(size: int) -> Rows:
        labels = rng.integers(0, 2, size)
        return (rng.normal(size=(size, 5)) + 1.5 * labels[:, None]).astype(np.float32), labels

    return [draw(each) for _ in range(clients)], draw(400)
