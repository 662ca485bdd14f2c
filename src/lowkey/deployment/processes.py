"""Child processes that do not outlive their parent, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

_TERM_SECONDS = 8.0
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


class Processes:
    """Programs that run beside this one, each with a log file; stopped in reverse order of their start.

    Each leads its own process group: Ctrl-C in a terminal reaches only this process, which then stops the others in
    order, with all that they started. On Linux they are also told to end when this process dies. None
    leaves a core file.
    """

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, tuple[Sequence[str], Mapping[str, str]]] = {}
        logs.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with (self.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
                preexec_fn=_begin,
            )
        self._running[name], self._commands[name] = process, (command, environment)
        return process

    def revive(self, prefix: str) -> None:
        """Restart processes that have ended by themselves, as a supervisor would."""
        for name, process in list(self._running.items()):
            if name.startswith(prefix) and process.poll() is not None:
                self.stop(name)
                self.start(name, *self._commands[name])

    def stop(self, name: str) -> None:
        """End one process, first politely, with its whole group."""
        process = self._running[name]
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TERM_SECONDS)
        self.kill(name)

    def kill(self, name: str) -> None:
        """End one process at once, with its whole group, as a power cut would."""
        process = self._running.pop(name)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self._running.values():  # all at once; the order of waiting stays
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        for name in reversed(list(self._running)):
            self.stop(name)


def free_ports(count: int) -> list[int]:
    """Free ports on loopback."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def wait_for_port(port: int, process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a process listens at a loopback port before the time is over or ``process`` has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        time.sleep(0.1)
    return False


def forbid_dumps() -> None:
    """From now on nobody finds this process's memory on disk or reads it while it runs, but the system's administrator.

    No core file is written when it crashes; on Linux other processes of the same user cannot look into it either.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)


def _begin() -> None:
    """In a child, before its program starts."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
