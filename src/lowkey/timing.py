"""A stopwatch that knows which stage is running."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class StageClock:
    """Seconds by stage, and the stage that is running now, which error messages name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.current = "idle"

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.enter(name)
        started = time.perf_counter()
        yield
        self.add({name: time.perf_counter() - started})
        self.enter("idle")

    def enter(self, name: str) -> None:
        """Set the running stage; after an error it stays the stage that failed."""
        self.current = name

    def add(self, seconds: Mapping[str, float]) -> None:
        for name, value in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value

    def take(self) -> dict[str, float]:
        """Return all seconds so far, and start again from zero."""
        taken, self.seconds = self.seconds, {}
        return taken
