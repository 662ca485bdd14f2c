"""Sending metrics to experiment trackers, as observers of a run on any runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TypeAlias

from lowkey.errors import ConfigError
from lowkey.extras import how_to_install
from lowkey.protocols import Metrics, Observer
from lowkey.registry import Registry

Tracker: TypeAlias = Callable[[Path], AbstractContextManager[Observer]]
"""Opens an observer for the run in a directory, which need not exist yet, and closes it at the end."""


@contextmanager
def tensorboard(directory: Path) -> Iterator[Observer]:
    """Events in ``directory``/tensorboard: every number of the metrics."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ModuleNotFoundError as error:
        raise ConfigError(how_to_install(error) or str(error)) from None

    writers: list[EventFileWriter] = []  # opened with the first round, when the run directory exists

    def observe(metrics: Metrics) -> None:
        if not writers:
            writers.append(EventFileWriter(str(directory / "tensorboard")))
        numbers = {key: v for key, v in metrics.items() if isinstance(v, int | float) and key != "round"}
        numbers |= {f"seconds/{key}": v for key, v in metrics["seconds"].items()}
        values = [Summary.Value(tag=key, simple_value=value) for key, value in numbers.items()]
        writers[0].add_event(Event(step=metrics["round"], summary=Summary(value=values)))

    try:
        yield observe
    finally:
        for writer in writers:
            writer.close()


TRACKERS: Registry[Tracker] = Registry("--track", {"tensorboard": tensorboard})


def open_tracker(name: str | None, directory: Path) -> AbstractContextManager[Observer | None]:
    """The observer of a tracker; None for no tracker."""
    return nullcontext(None) if name is None else TRACKERS[name](directory)
