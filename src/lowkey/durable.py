"""Writing files so that a crash leaves either the old or the new content, never half of it."""

from __future__ import annotations

import os
from pathlib import Path


def append_line(path: Path, line: str) -> None:
    """Add one line; on disk, with its directory entry, when this returns."""
    new = not path.exists()
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())
    if new:
        _sync_directory(path.parent)


def replace_file(path: Path, content: bytes) -> None:
    """Put new content in place of a file's old one, at once."""
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
