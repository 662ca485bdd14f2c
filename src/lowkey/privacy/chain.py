"""Files of records that nobody can change unnoticed: JSON lines, each with a hash over all lines before it.

{"previous": hash of the line before (in the first line: name of the format), "record": {…}, "hash": SHA-256 of the line
so far}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar

from lowkey.durable import LockedLines
from lowkey.errors import InvalidInput, LedgerError

EntryT = TypeVar("EntryT")
Key: TypeAlias = tuple[str, int, int]  # run, round, attempt


class Chain(Generic[EntryT]):
    """An append-only file of records about attempts; a subclass says what they mean and in which order they may come.

    Parameters
    ----------
    path : Path or None
        The file, made if missing; None keeps the records in memory.
    read_only : bool
        Read without taking the lock, also while another process writes.

    Guarantees
    ----------
    A record is on disk when the method that made it returns. A file in which a line was edited, removed, added, moved
    or half-written is refused. One process writes a file, by whatever name or link it is reached. Before each record it
    compares the end of the file with what it knows; if another file is there, or another end, nothing is written. Lines
    cut off while nobody writes leave a shorter chain that is valid; a ``head`` that was remembered elsewhere is then no
    longer known. Hashes protect from accidents and carelessness, not from an owner who rewrites the whole file.
    """

    FORMAT: ClassVar[str]
    OLDER: ClassVar[tuple[str, ...]] = ()
    """Formats of earlier versions whose files are read, and continued as they are."""

    def __init__(self, path: Path | None, *, read_only: bool = False) -> None:
        self._path, self._writable = path, not read_only
        self._heads = [self.FORMAT]
        self._entries: dict[Key, EntryT] = {}
        self._file: LockedLines | None = None
        if path is None:
            return
        try:
            if self._writable:
                self._file = LockedLines(path)
            self._load(path, path.read_bytes() if self._file is None else self._file.read())
        except OSError as error:
            self.close()
            raise LedgerError(
                f"{path} cannot be opened ({error.strerror}); check the path and its permissions"
            ) from error
        except BaseException:
            self.close()
            raise

    @property
    def entries(self) -> tuple[EntryT, ...]:
        """All attempts, in the order in which they were first recorded."""
        return tuple(self._entries.values())

    @property
    def head(self) -> str:
        """Hash that stands for everything recorded so far."""
        return self._heads[-1]

    def knows(self, head: str) -> bool:
        """Whether everything that was recorded at this head is recorded here; False means a newer or another file."""
        return head in self._heads or head in (self.FORMAT, *self.OLDER)  # a format stands for no record at all

    def close(self) -> None:
        """Write no more and let others write; what was read stays readable."""
        self._writable = False
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _entry(self, record: Mapping[str, Any]) -> tuple[Key, EntryT] | None:
        """The entry that a record makes, or None; raises LedgerError, InvalidInput, TypeError if it cannot be next."""
        raise NotImplementedError

    def _append(self, record: Mapping[str, Any]) -> None:
        if not self._writable:
            raise LedgerError(f"{self._path} is closed or was opened for reading only; open it for writing")
        made = self._entry(record)
        line, head = _seal(self.head, record)
        try:
            if self._file is not None:
                if what := self._file.changed():
                    raise LedgerError(
                        f"{self._path} {what} while this process was using it, so nothing was written; find out by "
                        "whom, put back the file with the most lines, and start again"
                    )
                self._file.append(line)
            self._remember(head, made)
        except BaseException as error:
            self.close()  # the file may now end in half a line, or in a line that is not remembered here
            if not isinstance(error, OSError):
                raise
            raise LedgerError(
                f"{self._path} cannot be written ({error.strerror}); nothing may be released without it: free the disk "
                "and start again"
            ) from error

    def _remember(self, head: str, made: tuple[Key, EntryT] | None) -> None:
        self._heads.append(head)
        if made is not None:
            self._entries[made[0]] = made[1]

    def _load(self, path: Path, content: bytes) -> None:
        *lines, torn = content.split(b"\n")
        if torn:
            raise LedgerError(
                f"{path} ends in a half-written line, which a crash while writing leaves; nothing is released before "
                "its line is complete, so remove this line and start again"
            )
        for number, line in enumerate(lines, 1):
            try:
                found = json.loads(line)
                previous, record = str(found["previous"]), found["record"]
                if number == 1 and previous in self.OLDER:
                    self._heads = [previous]
                sealed, head = _seal(self.head, record)
            except (ValueError, KeyError, TypeError, RecursionError):
                previous, sealed, head = "", "", ""
            if number == 1 and previous != self.head and len(previous) != hashlib.sha256().digest_size * 2:
                raise LedgerError(
                    f"{path} is not a file of the format '{self.FORMAT}'; it is another file or was written by another "
                    "version of Lowkey: check the path, or continue with that version"
                )
            if sealed.encode() != line:
                raise LedgerError(
                    f"{path}, line {number} or one near it was changed, moved or removed; restore the file from a "
                    "copy: without it nobody knows what was spent"
                )
            try:
                made = self._entry(record)
            except (LedgerError, InvalidInput, TypeError, OverflowError) as error:
                raise LedgerError(
                    f"{path}, line {number} makes no sense ({error}); restore the file from a copy"
                ) from None
            self._remember(head, made)


def _seal(previous: str, record: Mapping[str, Any]) -> tuple[str, str]:
    """A line and its hash, the new head."""
    body = json.dumps({"previous": previous, "record": record}, separators=(",", ":"), allow_nan=False)
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{body[:-1]},"hash":"{digest}"}}', digest
