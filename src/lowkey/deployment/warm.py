"""A node's standby: a process that has imported everything, and forks a process for each message.

Flower starts a program for every message, and most of what that costs is importing Python modules and compiling loops.
The guard's program hands its job to the standby of the node, over a socket that only its owner can reach; the first
message, which finds none, starts one and does its job itself. The fork is a separate process, as Flower wants it: its
memory ends with the message.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from lowkey.deployment.processes import forbid_dumps

_NEEDED = ("lowkey.flower.node", "lowkey.privacy.views")  # by name: this room imports nothing of the first
_WITH_TORCH = ("lowkey.experiments.building",)  # without PyTorch, an app brings another trainer
_LOOK_SECONDS = 2.0
_MOST_BYTES = 1 << 20


def hand_over(place: Path, arguments: Sequence[str]) -> int | None:
    """Let the standby at ``place`` do a job; return its exit code, or None if there is none yet: then it is started."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            with contextlib.chdir(place.parent):  # paths of sockets must be short
                connection.connect(place.name)
        except OSError:
            _start(place, arguments)
            return None
        job = json.dumps({"arguments": list(arguments), "environment": dict(os.environ)}).encode()
        socket.send_fds(connection, [len(job).to_bytes(4, "big")], [1, 2])
        connection.sendall(job)
        code = connection.recv(1)
    return code[0] if code else 1


def _start(place: Path, arguments: Sequence[str]) -> None:
    """Start the standby in the background; it stays in the group of the node, and ends with Flower's executor."""
    place.parent.mkdir(parents=True, exist_ok=True)
    executor = arguments[arguments.index("--parent-pid") + 1] if "--parent-pid" in arguments else str(os.getppid())
    command = [sys.executable, "-P", "-m", __name__, str(place), executor]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def stand_by(place: Path, executor: int) -> None:
    """Serve jobs until the executor that sends them is gone."""
    import lowkey.deployment.guard as guard

    forbid_dumps()
    cache = place.with_name("numba")  # Numba reads it by pickle, so it must be our own and new
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(mode=0o700)
    os.environ["NUMBA_CACHE_DIR"] = str(cache)
    for name in _NEEDED:
        import_module(name)
    _compile()
    for name in _WITH_TORCH:
        with contextlib.suppress(ModuleNotFoundError):
            import_module(name)
    guard.import_flower()
    mask = os.umask(0o177)
    with socket.socket(socket.AF_UNIX) as listener:
        with contextlib.chdir(place.parent):
            Path(place.name).unlink(missing_ok=True)
            listener.bind(place.name)
        os.umask(mask)
        listener.listen()
        threading.Thread(target=_end_with, args=(executor, place), daemon=True).start()
        signal.signal(
            signal.SIGCHLD, signal.SIG_IGN
        )  # this process does not wait for its forks; the sender of the job does
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _work(connection)
            connection.close()


def _compile() -> None:
    """Compile the loops of the noise, which no fork needs to do again."""
    import numpy as np

    from lowkey.privacy import Encoding, Measurement
    from lowkey.rng import OSSecrets

    encoding, source = Encoding(length=1, members=3, honest=3, noise_multiplier=1.0), OSSecrets().source("standby")
    encoding.add_noise(encoding.bound(Measurement(np.ones(1, np.float32)), 1.0, source), source)


def _work(connection: socket.socket) -> None:
    """In the fork: do one job as if it had been started afresh."""
    import lowkey.deployment.guard as guard

    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        head, descriptors, _, _ = socket.recv_fds(connection, 4, 2)
        size = int.from_bytes(head, "big")
        if size > _MOST_BYTES:
            return
        job = json.loads(connection.recv(size, socket.MSG_WAITALL))
        for target, descriptor in enumerate(descriptors, start=1):
            os.dup2(descriptor, target)
        os.environ.clear()
        os.environ.update(job["environment"])
        sys.argv = ["", *job["arguments"]]
        guard.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        with contextlib.suppress(OSError):
            connection.sendall(bytes([code & 255]))
        os._exit(code & 255)


def _end_with(executor: int, place: Path) -> None:
    while _is_alive(executor):
        time.sleep(_LOOK_SECONDS)
    place.unlink(missing_ok=True)
    os._exit(0)


def _is_alive(process: int) -> bool:
    """Whether a process runs; a zombie does not count."""
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat")
        return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    stand_by(Path(sys.argv[1]), int(sys.argv[2]))
