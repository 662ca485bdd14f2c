"""Files that survive crashes, and locks that end with their process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lowkey.durable import Lock, append_line, replace_file
from lowkey.errors import InUse


def test_lines_are_appended_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    for line in ("one", "zwölf", ""):
        append_line(path, line)
    assert path.read_bytes() == "one\nzwölf\n\n".encode()


def test_replacing_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "content"
    for content in (b"old", b"new"):
        replace_file(path, content)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("content", b"new")]


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
        with pytest.raises(InUse, match="the thing is in use by this process already"):
            Lock(tmp_path / "." / "lock", of=Path("the thing"))
        again = subprocess.run(hold(path), capture_output=True, text=True, check=False)
        assert "InUse" in again.stderr  # the refused attempt did not end the lock
    assert subprocess.run(hold(path), capture_output=True, text=True, check=True).stdout == "held\n"
    with Lock(path, of=Path("the thing")) as lock:
        lock.close()
        lock.close()


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
