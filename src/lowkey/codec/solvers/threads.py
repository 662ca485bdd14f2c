"""A few threads for compiled loops over blocks, as many as SciPy's transforms use."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import numpy as np
import scipy.fft

_SLICES = 4  # per thread: blocks differ in effort


class Threads:
    """A pool of threads; use it as a context manager."""

    def __init__(self) -> None:
        self._count = scipy.fft.get_workers()
        self._pool = ThreadPoolExecutor(self._count)

    def __enter__(self) -> Threads:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def over(self, length: int, function: Callable[..., None], *arguments: Any) -> None:
        """Call ``function(first, last, *arguments)`` for slices that cover ``range(length)``."""
        ends = np.linspace(0, length, min(length, _SLICES * self._count) + 1).astype(int)
        list(self._pool.map(lambda first, last: function(first, last, *arguments), ends[:-1], ends[1:]))
