"""The record of spent privacy: append-only, on disk before anything noisy is used."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from lowkey.durable import append_line
from lowkey.errors import InvalidInput, LedgerError
from lowkey.privacy.events import Event


@dataclass(frozen=True)
class Entry:
    """One attempt at a round, and what it may have released."""

    round: int
    event: Event


class Ledger:
    """Every attempt at a private round, in order.

    Parameters
    ----------
    path : JSON lines file, created when missing; None keeps the record in memory (library use without a run directory).

    Guarantees
    ----------
    When ``spend`` returns, the entry is on disk. An attempt that dies later stays counted, and its repetition counts
    again: ε is never understated, and overstated by at most one round for each crash.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._entries: list[Entry] = _read(path) if path is not None and path.exists() else []

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(entry.event for entry in self._entries)

    def spend(self, round_number: int, event: Event) -> None:
        """Record that a round is about to be released; durable before this returns."""
        if self._path is not None:
            append_line(self._path, json.dumps({"round": round_number, "event": event.to_json()}))
        self._entries.append(Entry(round_number, event))


def _read(path: Path) -> list[Entry]:
    text = path.read_text(encoding="utf-8")
    whole, _, torn = text.rpartition("\n")
    if torn:
        raise LedgerError(
            f"{path} ends in a half-written line. If the machine crashed while writing it, its round was never asked "
            "for: remove the line and resume. Otherwise restore the file from a copy"
        )
    entries = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            record = json.loads(line)
            entries.append(Entry(int(record["round"]), Event(**record["event"])))
        except (ValueError, KeyError, TypeError, InvalidInput) as error:
            raise LedgerError(
                f"{path}, line {number} cannot be read ({error}); restore the file from a copy: without it the spent "
                "privacy is unknown and the run cannot go on"
            ) from error
    return entries
