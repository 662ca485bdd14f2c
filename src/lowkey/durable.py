"""Writing files so that a crash leaves either the old or the new content, never half of it; and locks for sole use."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

from lowkey.errors import InUse, InvalidInput

_COMPARED = 512  # bytes at the end of a file; in a ledger, more than the hash of its last line


def replace_file(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Replace the content of a file atomically; nobody can do more with it than ``mode`` says, whatever the umask.

    Of several writers at the same time the last one wins, with its whole content.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")  # no other writer has this name
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def append_line(path: Path, line: str) -> None:
    """Append a line to a file, made if missing; it is on disk, with its directory entry, when this returns."""
    made = not path.exists()
    with path.open("ab") as file:
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if made:
        _sync_directory(path.parent)


def read_table(path: Path, **needed: type) -> dict[str, Any]:
    """The table in a JSON file, in which each key of ``needed`` has a value of exactly this type.

    Raises
    ------
    InvalidInput
        Whatever is wrong with the file; the caller adds what to do.
    """
    try:
        table = json.loads(path.read_bytes(), parse_constant=_no_number)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is damaged ({error})") from None
    if not isinstance(table, dict):
        raise InvalidInput(f"{path} is damaged (it holds no table)")
    for key, kind in needed.items():
        if type(table.get(key)) is not kind:
            raise InvalidInput(f"{path} is damaged ({key} is missing or not of type {kind.__name__})")
    return table


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Lock:
    """Sole use of a file, by whatever name it is reached, until closed or until the process ends, however it ends.

    Parameters
    ----------
    path : Path
        The file that is locked; made if missing, and left behind.
    of : Path
        What the lock protects; the error names it when somebody else has the lock.

    Attributes
    ----------
    handle : int
        Descriptor of the open file, for reading and appending; -1 when closed, and in forked processes.
    """

    # flock is held by the open file: no other open file has it meanwhile, in this process or another, and readers that
    # come and go do not end it, as they would end a record lock. Forked workers inherit it, though, and may outlive a
    # killed parent for a moment: so they close their copies at once.
    _held: ClassVar[set[Lock]] = set()

    def __init__(self, path: Path, *, of: Path) -> None:
        self.handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            here = any(os.path.samestat(os.fstat(self.handle), os.fstat(held.handle)) for held in self._held)
            os.close(self.handle)
            if here:
                raise InUse(f"{of} is in use by this process already; close it there first") from None
            raise InUse(f"{of} is in use by another process; wait for it or stop it") from None
        except OSError:
            os.close(self.handle)
            raise
        self._held.add(self)

    def close(self) -> None:
        """Release the lock; safe to call twice."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1
            self._held.remove(self)

    @classmethod
    def close_all(cls) -> None:
        """Release every lock that this process holds, or that a forked process has inherited."""
        for held in tuple(cls._held):
            held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


os.register_at_fork(after_in_child=Lock.close_all)


class LockedLines(Lock):
    """A file of lines that this process alone appends to.

    Guarantees
    ----------
    A line is on disk, with its directory entry, when ``append`` returns. ``changed`` tells, before that, whether
    another program has replaced, moved or removed the file, or changed its size or its end, since this process has read
    or written it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, of=path)
        self._path, self._size, self._end = path.absolute(), 0, b""

    def read(self) -> bytes:
        """The whole content."""
        with open(self.handle, "rb", closefd=False) as file:
            file.seek(0)
            content = file.read()
        self._size, self._end = len(content), content[-_COMPARED:]
        return content

    def changed(self) -> str | None:
        """What happened to the file behind the back of this process; None if nothing did."""
        found = os.fstat(self.handle)
        if not self._path.exists() or not os.path.samestat(found, self._path.stat()):
            return "was replaced, moved or removed"
        end = os.pread(self.handle, _COMPARED, max(0, self._size - _COMPARED))
        return None if (found.st_size, end) == (self._size, self._end) else "was changed by another program"

    def append(self, line: str) -> None:
        """Append one line; it is on disk, with its directory entry, when this returns."""
        content = line.encode() + b"\n"
        with open(self.handle, "ab", closefd=False) as file:
            file.write(content)
        os.fsync(self.handle)
        if self._size == 0:  # the file may have been made by a process that died before it synced the directory
            _sync_directory(self._path.resolve().parent)
        self._size, self._end = self._size + len(content), (self._end + content)[-_COMPARED:]
