"""A stopwatch that knows which stage is running."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lowkey.types import ClientId


class StageClock:
    """Seconds by stage, and the stage and client that are at work now, which error messages name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.current = "idle"
        self.client: ClientId | None = None

    @contextmanager
    def stage(self, name: str, client: ClientId | None = None) -> Iterator[None]:
        self.enter(name, client)
        started = time.perf_counter()
        yield
        self.add({name: time.perf_counter() - started})
        self.enter("idle")

    def enter(self, name: str, client: ClientId | None = None) -> None:
        """Set the running stage, and whose it is; after an error both stay what they were when it failed."""
        self.current, self.client = name, client

    def add(self, seconds: Mapping[str, float]) -> None:
        for name, value in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value

    def take(self) -> dict[str, float]:
        """Return all seconds so far, and start again from zero."""
        taken, self.seconds = self.seconds, {}
        return taken
