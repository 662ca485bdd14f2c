"""Files that survive crashes, and locks that end with their process."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lowkey.durable import Lock, LockedLines, replace_file
from lowkey.errors import InUse


def test_lines_are_appended_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    for line in ("one", "zwölf", ""):
        with LockedLines(path) as lines:
            before = lines.read()
            assert lines.changed() is None
            lines.append(line)
            assert lines.changed() is None
            assert lines.read() == before + line.encode() + b"\n" == path.read_bytes()
    assert path.read_bytes() == "one\nzwölf\n\n".encode()


@pytest.mark.parametrize("length", [0, 1, 511, 512, 513, 2000])
def test_what_others_do_to_locked_lines_is_seen(tmp_path: Path, length: int) -> None:
    path, other = tmp_path / "lines", tmp_path / "other"
    path.write_bytes(b"x" * length)
    with LockedLines(path) as lines:
        assert lines.read() == b"x" * length
        assert lines.changed() is None
        for content in (b"x" * (length + 1), b"x" * (length - 1), b"x" * (length - 1) + b"y"):
            path.write_bytes(content)
            assert lines.changed() == (None if content == b"x" * length else "was changed by another program")
        path.write_bytes(b"x" * length)
        assert lines.changed() is None
        other.write_bytes(b"x" * length)
        path.rename(tmp_path / "elsewhere")
        assert lines.changed() == "was replaced, moved or removed"
        other.rename(path)
        assert lines.changed() == "was replaced, moved or removed"


def test_replacing_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "content"
    for content in (b"old", b"new"):
        replace_file(path, content)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("content", b"new")]


def test_two_writers_do_not_touch_each_others_half_written_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sync = tmp_path / "content", os.fsync

    def another_writer(handle: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        replace_file(path, b"of the second")
        assert path.read_bytes() == b"of the second"
        sync(handle)

    monkeypatch.setattr(os, "fsync", another_writer)
    replace_file(path, b"of the first")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("content", b"of the first")]


def test_replacing_in_vain_leaves_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int) -> None:
        raise OSError("no space left on device")

    path = tmp_path / "content"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        replace_file(path, b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("content", b"old")]


@pytest.mark.parametrize(("umask", "found"), [(0, 0o644), (0o077, 0o600)])
def test_a_replaced_file_is_no_more_open_than_the_umask_says(tmp_path: Path, umask: int, found: int) -> None:
    before = os.umask(umask)
    try:
        replace_file(tmp_path / "content", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "content").stat().st_mode & 0o777 == found


HOLD = """
import os, sys, time
from pathlib import Path
from lowkey.durable import Lock
held = Lock(Path(sys.argv[1]), of=Path("the thing"))
if len(sys.argv) > 2:
    os.fork()  # the child outlives its parent
os.write(1, b"held\\n")
time.sleep(60 if len(sys.argv) > 2 else 0)
"""


def hold(path: Path, *more: str) -> list[str]:
    return [sys.executable, "-c", HOLD, str(path), *more]


def test_lock_keeps_other_processes_and_this_one_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with Lock(path, of=Path("the thing")):
        refused = subprocess.run(hold(path), capture_output=True, text=True, check=False)
        assert "InUse: the thing is in use by another process; wait for it or stop it" in refused.stderr
        (tmp_path / "symbolic").symlink_to(path)
        (tmp_path / "hard").hardlink_to(path)
        for name in ("lock", "./lock", "symbolic", "hard"):
            with pytest.raises(InUse, match="the thing is in use by this process already"):
                Lock(tmp_path / name, of=Path("the thing"))
        path.read_bytes()
        again = subprocess.run(hold(path), capture_output=True, text=True, check=False)
        assert "InUse" in again.stderr  # neither the refused attempts nor the reader ended the lock
    assert subprocess.run(hold(path), capture_output=True, text=True, check=True).stdout == "held\n"
    with Lock(path, of=Path("the thing")) as lock:
        lock.close()
        lock.close()


def test_a_place_without_locks_is_no_place_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(handle: int, kind: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.raises(OSError, match="not supported"):
        Lock(tmp_path / "lock", of=Path("the thing"))


def test_a_forked_process_has_no_lock_and_ends_none(tmp_path: Path) -> None:
    with Lock(tmp_path / "lock", of=Path("the thing")) as lock:
        child = os.fork()
        if child == 0:
            lock.close()
            os._exit(0 if lock.handle == -1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        refused = subprocess.run(hold(tmp_path / "lock"), capture_output=True, text=True, check=False)
        assert "InUse" in refused.stderr


def test_lock_ends_with_a_killed_process_though_its_forked_child_lives(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen(hold(path, "fork"), stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert holder.stdout is not None
    with holder.stdout:
        assert [holder.stdout.readline() for _ in range(2)] == ["held\n"] * 2  # both are there
        with pytest.raises(InUse, match="another process"):
            Lock(path, of=Path("the thing"))
        holder.kill()
        holder.wait()
        Lock(path, of=Path("the thing")).close()
        os.killpg(holder.pid, signal.SIGKILL)  # the child, alone in the session now
