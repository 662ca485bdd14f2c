"""The record of the privacy that a population of clients has spent; on disk before any vector is asked for."""

from __future__ import annotations

import secrets
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
    """One attempt at a round, its cost, and how it ended; it counts however it ended, and also while it has no end."""

    run: str
    round: int
    attempt: int
    event: Event
    state: State = "INTENT"


class Ledger(Chain[Entry]):
    """Every attempt at a private round over one population of clients, by any number of runs, whose costs add up.

    An attempt is intended before its vectors are asked for, then either released, or aborted when it gave no sum. It
    costs the same in either case: its vectors have left the clients. No clients, cohorts, roles or times are recorded.

    Parameters
    ----------
    path : Path or None
        JSON lines file, made if missing; None keeps the record in memory (library use, tests).
    run : str
        Name of the run that writes; it stays the same when the run is resumed. No other process can write meanwhile.

    Attributes
    ----------
    identity : str or None
        Tells this ledger from every other; drawn at random for its first line. In files of the format before, which
        have none, it is the hash of the first line. None in memory, and for an empty file that is only read.

    Guarantees
    ----------
    When ``intend`` returns, the cost is on disk. An attempt that dies later stays counted, and its repetition counts
    again: ε is never understated, and overstated by at most one round for each crash. For what a damaged file does, see
    :class:`~lowkey.privacy.chain.Chain`.
    """

    FORMAT: ClassVar[str] = "lowkey ledger 3"
    OLDER: ClassVar[tuple[str, ...]] = ("lowkey ledger 2",)

    def __init__(self, path: Path | None, *, run: str, read_only: bool = False) -> None:
        self.run = run
        self.identity: str | None = None
        super().__init__(path, read_only=read_only)
        if path is not None and not read_only and self.head == self.FORMAT:
            self._append({"identity": secrets.token_hex(16)})
        if path is not None and self.identity is None:
            self.identity = next(iter(self._heads[1:]), None)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Open an existing ledger for reading, without taking its lock."""
        return cls(path, run="", read_only=True)

    @property
    def events(self) -> tuple[Event, ...]:
        """What the population has spent, in all runs."""
        return tuple(entry.event for entry in self.entries)

    def events_of(self, run: str) -> tuple[Event, ...]:
        """What one run has spent."""
        return tuple(entry.event for entry in self.entries if entry.run == run)

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
        """Note that an attempt failed and gave no sum that can be used; it stays paid."""
        self._write("ABORTED", round_number, attempt)

    def _write(self, state: State, round_number: int, attempt: int, **more: Any) -> None:
        self._append({"state": state, "run": self.run, "round": round_number, "attempt": attempt, **more})

    def _entry(self, record: Mapping[str, Any]) -> tuple[Key, Entry] | None:
        match record:
            case {"identity": str(identity)} if len(record) == 1 and self.head == self.FORMAT:
                self.identity = identity
                return None
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
