"""The record of the privacy that a population of clients has spent; on disk before any sum can become known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeAlias

from lowkey import checks
from lowkey.errors import LedgerError
from lowkey.privacy.chain import Chain, Key
from lowkey.privacy.events import Event

State: TypeAlias = Literal["INTENT", "RELEASED", "ABORTED"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One attempt at a round, its cost, and how it ended; an attempt that is still an intent counts as released."""

    run: str
    round: int
    attempt: int
    event: Event
    state: State = "INTENT"

    @property
    def spent(self) -> bool:
        return self.state != "ABORTED"


class Ledger(Chain[Entry]):
    """Every attempt at a private round over one population of clients, by any number of runs, whose costs add up.

    An attempt is intended before its sum can become known, then either released, or aborted when the sum has not become
    known and no longer can. No clients, cohorts, roles or times are recorded.

    Parameters
    ----------
    path : Path or None
        JSON lines file, made with the first attempt; None keeps the record in memory (library use, tests).
    run : str
        Name of the run that writes; it stays the same when the run is resumed. No other process can write meanwhile.

    Guarantees
    ----------
    When ``intend`` returns, the cost is on disk. An attempt that dies later stays counted, and its repetition counts
    again: ε is never understated, and overstated by at most one round for each crash. For what a damaged file does, see
    :class:`~lowkey.privacy.chain.Chain`.
    """

    FORMAT: ClassVar[str] = "lowkey ledger 2"

    def __init__(self, path: Path | None, *, run: str, read_only: bool = False) -> None:
        self.run = run
        super().__init__(path, read_only=read_only)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Open an existing ledger for reading, without taking its lock."""
        return cls(path, run="", read_only=True)

    @property
    def events(self) -> tuple[Event, ...]:
        """What the population has spent, in all runs."""
        return tuple(entry.event for entry in self.entries if entry.spent)

    def events_of(self, run: str) -> tuple[Event, ...]:
        """What one run has spent."""
        return tuple(entry.event for entry in self.entries if entry.spent and entry.run == run)

    def next_attempt(self, round_number: int) -> int:
        """The first free number for another attempt at a round of this run, from 0."""
        return 1 + max((a for run, r, a in self._entries if (run, r) == (self.run, round_number)), default=-1)

    def intend(self, round_number: int, attempt: int, event: Event) -> None:
        """Pay for an attempt; durable before this returns."""
        checks.at_least("round", round_number, 1)
        checks.at_least("attempt", attempt, 0)
        self._write("INTENT", round_number, attempt, event=event.to_json())

    def release(self, round_number: int, attempt: int) -> None:
        """Note that the sum of an attempt has become known."""
        self._write("RELEASED", round_number, attempt)

    def abort(self, round_number: int, attempt: int) -> None:
        """Take an attempt back, because its sum has not become known to anybody and no longer can."""
        self._write("ABORTED", round_number, attempt)

    def _write(self, state: State, round_number: int, attempt: int, **more: Any) -> None:
        self._append({"state": state, "run": self.run, "round": round_number, "attempt": attempt, **more})

    def _entry(self, record: Mapping[str, Any]) -> tuple[Key, Entry]:
        match record:
            case {"state": str(state), "run": str(run), "round": int(number), "attempt": int(attempt), **more}:
                key = (run, number, attempt)
                name = f"round {number}, attempt {attempt} of run '{run}'"
            case _:
                raise LedgerError("fields are missing or have another type")
        known = self._entries.get(key)
        match state, more:
            case "INTENT", {"event": dict(fields), **rest} if not rest:
                if known is not None:
                    raise LedgerError(f"{name} was intended before; try it again as a new attempt")
                return key, Entry(run=run, round=number, attempt=attempt, event=Event.from_json(fields))
            case ("RELEASED" | "ABORTED") as outcome, {} if not more:
                if known is None:
                    raise LedgerError(f"{name} is to be {outcome}, but was never intended")
                if known.state != "INTENT":
                    raise LedgerError(f"{name} is to be {outcome}, but is {known.state} already")
                return key, replace(known, state=outcome)
            case _:
                raise LedgerError(f"state {state!r} with the fields {', '.join(more) or 'none'} is unknown")
