"""Writing files so that a crash leaves either the old or the new content, never half of it; and locks for sole use."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Self

from lowkey.errors import InUse


def append_line(path: Path, line: str) -> None:
    """Append one line; it is on disk, with its directory entry, when this returns."""
    with path.open("ab") as file:
        first = file.tell() == 0  # the file may have been made by a process that died before it synced the directory
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if first:
        _sync_directory(path.parent)


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of a file atomically."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Lock:
    """Sole use of a file or directory, until closed or until the process ends, however it ends.

    Parameters
    ----------
    path : Path
        The lock file: empty, made if missing, and left behind. It must be used for nothing else.
    of : Path
        What the lock protects; the error names it when another process has the lock.
    """

    # Record locks, unlike flock, are not inherited by forked workers, which may outlive a killed parent for a moment.
    # They do not keep a process from itself, though, and end when it closes any handle of the file: hence this set.
    _held: set[Path] = set()  # noqa: RUF012

    def __init__(self, path: Path, *, of: Path) -> None:
        self._path, self._handle = path.resolve(), -1
        if self._path in self._held:
            raise InUse(f"{of} is in use by this process already; close it there first")
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise InUse(f"{of} is in use by another process; wait for it or stop it") from None
        self._handle = handle
        self._held.add(self._path)

    def close(self) -> None:
        """Release the lock; safe to call twice."""
        if self._handle >= 0:
            os.close(self._handle)
            self._held.remove(self._path)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
