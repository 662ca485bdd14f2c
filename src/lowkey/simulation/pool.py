"""Worker processes: jobs in, results out in the order of the jobs, and an end that is never waited for in vain."""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any, Generic, Self, TypeVar

from lowkey.errors import WorkerDied

Job = TypeVar("Job")
Result = TypeVar("Result")

AHEAD = 3  # jobs of a worker: one that it does, one queued behind it, one whose result waits to be taken
_QUEUED = 2
_END_SECONDS = 5.0  # for all workers together, as the next
_KILL_SECONDS = 2.0
_SIGNALS = {signal.SIGINT, signal.SIGTERM}


@dataclass
class _Worker(Generic[Job, Result]):
    """The parent's view of one worker process."""

    number: int
    process: Any
    connection: Connection
    running: deque[Job] = field(default_factory=deque)
    finished: deque[tuple[Result, Exception | None]] = field(default_factory=deque)

    @property
    def has_room(self) -> bool:
        return len(self.running) < _QUEUED and len(self.running) + len(self.finished) < AHEAD


class Pool(Generic[Job, Result]):
    """Worker processes that each do one job after the other; use it as a context manager.

    Parameters
    ----------
    work : sequence of callable
        One for each worker: the function that does its jobs. It is called in the worker's process only.

    Guarantees
    ----------
    Ending the pool takes a few seconds at most, whatever its workers do and however many they are. They do not inherit
    the parent's handling of signals, not even for a moment: Ctrl-C is the parent's business, and SIGTERM ends a worker
    at once. A worker that dies is noticed, and one whose parent has died ends.
    """

    def __init__(self, work: Sequence[Callable[[Job], Result]]) -> None:
        self._workers: list[_Worker[Job, Result]] = []
        context: Any = mp.get_context("fork" if sys.platform == "linux" else "spawn")
        try:
            for number, function in enumerate(work):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, function), daemon=True)
                before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # the worker lets them in, see _serve
                try:
                    process.start()
                    self._workers.append(_Worker(number, process, ours))
                finally:
                    signal.pthread_sigmask(signal.SIG_SETMASK, before)
                theirs.close()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers; safe to call twice."""
        for worker in self._workers:
            worker.process.terminate()
        self._join_all(_END_SECONDS)
        for worker in self._workers:
            if worker.process.is_alive():  # it is stopped, or its job has changed what SIGTERM does
                worker.process.kill()
        self._join_all(_KILL_SECONDS)
        for worker in self._workers:
            worker.connection.close()
        self._workers = []

    def map(self, jobs: Iterable[Job]) -> Iterator[Result]:
        """Results of all jobs, in their order.

        A job is taken when a worker has room for it. A worker does its jobs in the order in which it gets them, and
        gets no further one as long as ``AHEAD`` results of it have not been taken. The result that was yielded last
        counts as taken when the next one is asked for. An error of a job is raised where its result would have been.
        """
        self.drain()
        waiting, order = iter(jobs), deque[_Worker[Job, Result]]()
        while self._hand_out(waiting, order) or order:
            if not order[0].finished:
                self._collect()
                continue
            result, error = order[0].finished[0]
            if error is not None:
                raise error
            yield result
            order.popleft().finished.popleft()

    def drain(self) -> None:
        """Wait for the jobs of a caller that has stopped half-way, and forget their results."""
        while any(worker.running for worker in self._workers):
            self._collect()
        for worker in self._workers:
            worker.finished.clear()

    def _join_all(self, seconds: float) -> None:
        """Wait until all workers have ended, and no longer than this for all of them together."""
        deadline = time.monotonic() + seconds
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))

    def _hand_out(self, jobs: Iterator[Job], order: deque[_Worker[Job, Result]]) -> bool:
        """Give jobs to all workers that have room; whether there was a job."""
        given = False
        while room := [worker for worker in self._workers if worker.has_room]:
            worker = min(room, key=lambda worker: len(worker.running))
            job = list(islice(jobs, 1))
            if not job:
                break
            worker.running += job
            order.append(worker)
            given = True
            try:
                worker.connection.send(job[0])
            except OSError:
                raise self._death(worker) from None
        return given

    def _collect(self) -> None:
        """Wait for at least one finished job."""
        busy = {worker.connection: worker for worker in self._workers if worker.running}
        for connection in wait(list(busy)):
            worker = busy[connection]  # type: ignore[index]
            try:
                worker.finished.append(worker.connection.recv())
            except (EOFError, OSError):
                raise self._death(worker) from None
            worker.running.popleft()

    def _death(self, worker: _Worker[Job, Result]) -> WorkerDied:
        worker.process.join(_END_SECONDS)
        job = worker.running[0]
        worker.running.clear()
        return WorkerDied(worker.number, job, worker.process.exitcode)


def _serve(connection: Connection, work: Callable[[Job], Result]) -> None:
    """Body of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    jobs = SimpleQueue[Job]()
    threading.Thread(target=_listen, args=(connection, jobs), daemon=True).start()
    while True:
        job = jobs.get()
        result, error = None, None
        try:
            result = work(job)
        except Exception as raised:
            error = _portable(raised)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the parent is gone; the listener sees it too
            connection.send((result, error))


def _listen(connection: Connection, jobs: SimpleQueue[Job]) -> None:
    """Take in jobs at any time, so that parent and worker cannot both wait to be read; end with the parent."""
    parent = mp.parent_process()
    assert parent is not None
    with contextlib.suppress(EOFError, OSError):
        while connection in wait([connection, parent.sentinel]):
            jobs.put(connection.recv())
    os._exit(0)


def _portable(error: Exception) -> Exception:
    """An error that can be sent to another process, with a note where it came from."""
    error.add_note(f"in a worker process:\n{traceback.format_exc()}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # what it holds cannot travel
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
