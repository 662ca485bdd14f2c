"""Clients in worker processes, with models and replies in shared memory.

The parent publishes the model once a round; a worker trains a client and leaves its vector in a slot of shared memory;
the parent hands vectors on in the order of the requests, whatever the workers' speed, so that sums do not depend on
scheduling. Memory is a few slots per worker: neither the cohort nor the population matters.
"""

from __future__ import annotations

import ctypes
import multiprocessing as mp
import signal
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

import numpy as np

from lowkey import checks
from lowkey.errors import CannotContribute, ClientFailed, InvalidInput
from lowkey.federation import Client, ClientState, Reply, Request, Scheme
from lowkey.protocols import Keys, Trainer
from lowkey.rng import Secrets
from lowkey.simulation.in_process import answer
from lowkey.simulation.memory import Memory
from lowkey.simulation.register import Register
from lowkey.timing import StageClock
from lowkey.types import ClientId, FloatArray, Words

_SLOTS = 3  # per worker: one being filled, one queued behind it, one waiting to be summed
_STAGE_BYTES = 16


@dataclass(frozen=True)
class _Job:
    state: ClientState
    request: Request  # without the model, which is in shared memory
    has_model: bool
    slot: int


@dataclass(frozen=True)
class _Done:
    slot: int
    seconds: dict[str, float]
    state: ClientState
    tried: int = 0
    excuses: tuple[str, ...] = ()
    reply: Reply | None = None  # without its vector, which is in the slot; None for a client that dropped out
    vector: _Layout | None = None
    error: ClientFailed | None = None


@dataclass(frozen=True)
class _Layout:
    """How to read the vector in a slot."""

    length: int
    dtype: str


@dataclass
class _Worker:
    """The parent's view of one worker process."""

    process: Any
    connection: Connection
    stage: Any
    slots: list[Any]
    free: list[int] = field(default_factory=lambda: list(range(_SLOTS)))
    running: deque[_Job] = field(default_factory=deque)


class _SharedStageClock(StageClock):
    """Writes the name of the running stage to shared memory, where the parent finds it if this process dies."""

    def __init__(self, memory: Any) -> None:
        super().__init__()
        self._memory = memory

    def enter(self, name: str) -> None:
        super().enter(name)
        self._memory.value = name.encode()[: _STAGE_BYTES - 1]


class WorkerPool:
    """Satisfies :class:`lowkey.protocols.Ask` with several processes; use it as a context manager.

    Parameters
    ----------
    scheme, trainer, secrets : Scheme, Trainer, Secrets
        The parts of every client; data is shared with the workers, not copied, where the system can fork.
    workers : int
        Number of processes; each has one thread.
    clock : StageClock
        Gets the clients' seconds, summed over clients.
    memory : Memory or None
        The states that clients remember.
    keys : Keys or None
        Keys of all clients; needed for secure aggregation.
    """

    def __init__(
        self,
        *,
        scheme: Scheme,
        trainer: Trainer,
        secrets: Secrets,
        workers: int,
        clock: StageClock,
        memory: Memory | None = None,
        keys: Keys | None = None,
    ) -> None:
        checks.at_least("runtime.workers", workers, 1)
        self._clock, self._memory, self._register = clock, memory or Memory(), Register()
        self.take_figures = self._register.take
        context: Any = mp.get_context("fork" if sys.platform == "linux" else "spawn")
        size = 4 * scheme.wire(trainer.num_coordinates).length
        shared_model = context.RawArray(ctypes.c_float, trainer.num_coordinates)
        self._model = np.frombuffer(shared_model, np.float32)
        self._workers: list[_Worker] = []
        for _ in range(workers):
            ours, theirs = context.Pipe()
            slots = [context.RawArray(ctypes.c_char, size) for _ in range(_SLOTS)]
            stage = context.RawArray(ctypes.c_char, _STAGE_BYTES)
            process = context.Process(
                target=_serve, args=(theirs, scheme, trainer, secrets, keys, shared_model, slots, stage), daemon=True
            )
            process.start()
            theirs.close()
            self._workers.append(_Worker(process, ours, stage, slots))

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all workers; safe to call twice."""
        for worker in self._workers:
            worker.connection.close()
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join()
        self._workers = []

    def __call__(self, requests: Mapping[ClientId, Request]) -> Iterator[tuple[ClientId, Reply]]:
        self._drain()
        self._memory.prepare(requests)
        self._register.begin()
        self._publish(requests)
        waiting = deque(requests.items())
        arrived: dict[ClientId, tuple[_Worker, _Done]] = {}
        try:
            for client in requests:
                while client not in arrived:
                    self._hand_out(waiting)
                    arrived |= self._collect()
                worker, done = arrived.pop(client)
                self._register.add(done.tried, done.excuses)
                try:
                    if done.reply is not None:
                        self._memory.keep(done.state)
                        yield client, _whole(done.reply, done.vector, worker.slots[done.slot])
                finally:
                    worker.free.append(done.slot)
                self._hand_out(waiting)
            self._register.close()
        finally:
            for worker, done in arrived.values():
                worker.free.append(done.slot)

    def _drain(self) -> None:
        """If the last round was abandoned half-way, wait until the jobs that still run are finished."""
        while any(worker.running for worker in self._workers):
            for worker, done in self._collect(ignore_errors=True).values():
                worker.free.append(done.slot)

    def _publish(self, requests: Mapping[ClientId, Request]) -> None:
        """Put the model of a round where every worker reads it."""
        models = {id(request.weights): request.weights for request in requests.values() if request.weights is not None}
        if len(models) > 1:
            raise InvalidInput(
                f"the requests of one round carry {len(models)} different models; they must carry the same"
            )
        for model in models.values():
            self._model[:] = model

    def _hand_out(self, waiting: deque[tuple[ClientId, Request]]) -> None:
        """Give every worker up to two jobs, so that it need not wait for the parent between clients."""
        for _ in range(2):
            for worker in self._workers:
                if waiting and worker.free and len(worker.running) < 2:
                    client, request = waiting.popleft()
                    light, has_model = replace(request, weights=None), request.weights is not None
                    job = _Job(self._memory[client], light, has_model, worker.free.pop())
                    worker.running.append(job)
                    try:
                        worker.connection.send(job)
                    except OSError:
                        raise self._death(worker) from None

    def _collect(self, *, ignore_errors: bool = False) -> dict[ClientId, tuple[_Worker, _Done]]:
        """Wait for at least one finished client."""
        busy = {worker.connection: worker for worker in self._workers if worker.running}
        finished = {}
        for connection in wait(list(busy)):
            worker = busy[connection]  # type: ignore[index]
            try:
                done: _Done = worker.connection.recv()
            except (EOFError, OSError):
                if ignore_errors:
                    worker.running.clear()
                    continue
                raise self._death(worker) from None
            worker.running.popleft()
            self._clock.add(done.seconds)
            if done.error is not None and not ignore_errors:
                worker.free.append(done.slot)
                raise done.error
            finished[done.state.client] = (worker, done)
        return finished

    def _death(self, worker: _Worker) -> ClientFailed:
        worker.process.join(5)
        client = worker.running[0].state.client
        worker.running.clear()
        code = worker.process.exitcode
        hint = "; it may have run out of memory" if code == -signal.SIGKILL else ""
        return ClientFailed(client, worker.stage.value.decode() or "start", f"its process died, exit code {code}{hint}")


def _serve(
    connection: Connection,
    scheme: Scheme,
    trainer: Trainer,
    secrets: Secrets,
    keys: Keys | None,
    model: Any,
    slots: list[Any],
    stage: Any,
) -> None:
    """Body of a worker process: do jobs until the parent closes the connection or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent may treat it as Ctrl-C; a worker just ends
    trainer.limit_threads(1)
    weights = np.frombuffer(model, np.float32)
    clock = _SharedStageClock(stage)
    client = Client(scheme=scheme, trainer=trainer, secrets=secrets, keys=keys, clock=clock)
    parent = mp.parent_process()
    assert parent is not None
    while connection in wait([connection, parent.sentinel]):
        try:
            job: _Job = connection.recv()
        except (EOFError, OSError):
            return
        request = replace(job.request, weights=weights) if job.has_model else job.request
        try:
            state, reply = answer(client, job.state, request)
            clock.enter("hand over")
            layout = _leave(reply.vector, slots[job.slot])
            tried, excuses = client.attendance.take()
            light = replace(reply, vector=None)
            done = _Done(job.slot, clock.take(), state, tried=tried, excuses=tuple(excuses), reply=light, vector=layout)
        except CannotContribute:  # a scheme without privacy: the client has dropped out
            tried, excuses = client.attendance.take()
            done = _Done(job.slot, clock.take(), job.state, tried=tried, excuses=tuple(excuses))
        except ClientFailed as error:
            client.attendance.take()
            plain = ClientFailed(error.client, error.stage, error.reason)  # its cause may not survive the pipe
            done = _Done(job.slot, clock.take(), job.state, error=plain)
        connection.send(done)


def _leave(vector: FloatArray | Words | None, slot: Any) -> _Layout | None:
    """Put a vector into shared memory."""
    if vector is None:
        return None
    layout = _Layout(vector.size, vector.dtype.str)
    _view(layout, slot)[:] = vector
    return layout


def _view(layout: _Layout, slot: Any) -> Any:
    return np.frombuffer(slot, np.dtype(layout.dtype), layout.length)


def _whole(reply: Reply, layout: _Layout | None, slot: Any) -> Reply:
    """A reply with its vector, read in place."""
    return reply if layout is None else replace(reply, vector=_view(layout, slot))
