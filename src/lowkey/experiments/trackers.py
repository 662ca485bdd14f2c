"""Sending metrics to experiment trackers, as observers of the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lowkey.errors import ConfigError
from lowkey.extras import how_to_install
from lowkey.federation import RoundRecord
from lowkey.protocols import Observer

TRACKERS = ("tensorboard",)


@contextmanager
def open_tracker(name: str | None, directory: Path) -> Iterator[list[Observer]]:
    """Observers for a tracker; none for None. TensorBoard events go to ``directory``/tensorboard."""
    if name is None:
        yield []
        return
    if name not in TRACKERS:
        raise ConfigError(f"no tracker is called {name!r}; there is {', '.join(TRACKERS)}")
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ModuleNotFoundError as error:
        raise ConfigError(how_to_install(error) or str(error)) from None

    writers: list[EventFileWriter] = []  # opened with the first round, when the run directory exists

    def observe(record: RoundRecord) -> None:
        if not writers:
            writers.append(EventFileWriter(str(directory / "tensorboard")))
        numbers = {key: v for key, v in record.to_json().items() if isinstance(v, int | float) and key != "round"}
        numbers |= {f"seconds/{key}": v for key, v in record.seconds.items()}
        values = [Summary.Value(tag=key, simple_value=value) for key, value in numbers.items()]
        writers[0].add_event(Event(step=record.round, summary=Summary(value=values)))

    try:
        yield [observe]
    finally:
        for writer in writers:
            writer.close()
