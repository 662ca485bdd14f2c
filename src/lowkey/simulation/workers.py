"""Clients in worker processes, with models and replies in shared memory.

The parent publishes the model once a round; a worker trains a client and leaves its vector in a slot of shared memory;
the parent hands vectors on in the order of the requests, whatever the workers' speed, so that sums do not depend on
scheduling. Memory is a few slots per worker: neither the cohort nor the population matters.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from multiprocessing.sharedctypes import RawArray
from types import TracebackType
from typing import Any

import numpy as np

from lowkey import checks
from lowkey.errors import CannotContribute, ClientFailed, InvalidInput, WorkerDied
from lowkey.federation import Client, ClientState, Reply, Request, Scheme
from lowkey.protocols import Keys, Trainer
from lowkey.rng import Secrets
from lowkey.simulation.in_process import answer
from lowkey.simulation.memory import Memory
from lowkey.simulation.pool import AHEAD, Pool
from lowkey.simulation.register import Register
from lowkey.timing import StageClock
from lowkey.types import ClientId

_STAGE_BYTES = 16


@dataclass(frozen=True)
class _Job:
    state: ClientState
    request: Request  # without the model, which is in shared memory
    has_model: bool


@dataclass(frozen=True)
class _Place:
    """Where in shared memory a vector is."""

    slot: int
    length: int
    dtype: str

    def view(self, memory: Any) -> Any:
        return np.frombuffer(memory, np.dtype(self.dtype), self.length)


@dataclass(frozen=True)
class _Done:
    state: ClientState
    reply: Reply | None  # without its vector; None for a client that dropped out
    vector: _Place | None
    tried: int
    excuses: tuple[str, ...]
    seconds: dict[str, float]


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
        size = 4 * scheme.wire(trainer.num_coordinates).length
        shared_model: Any = RawArray(ctypes.c_float, trainer.num_coordinates)
        self._model = np.frombuffer(shared_model, np.float32)
        self._slots: list[Any] = [RawArray(ctypes.c_char, size) for _ in range(workers * AHEAD)]
        self._stages: list[Any] = [RawArray(ctypes.c_char, _STAGE_BYTES) for _ in range(workers)]
        self._pool: Pool[_Job, _Done] = Pool(
            [
                _Clients(
                    Client(scheme=scheme, trainer=trainer, secrets=secrets, keys=keys, clock=_SharedStageClock(stage)),
                    shared_model,
                    list(enumerate(self._slots))[number::workers],
                )
                for number, stage in enumerate(self._stages)
            ]
        )

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all workers; safe to call twice."""
        self._pool.close()

    def __call__(self, requests: Mapping[ClientId, Request]) -> Iterator[tuple[ClientId, Reply]]:
        try:
            yield from self._answers(requests)
        except WorkerDied as death:
            stage = self._stages[death.worker].value.decode() or "start"
            raise ClientFailed(death.job.state.client, stage, death.reason) from None

    def _answers(self, requests: Mapping[ClientId, Request]) -> Iterator[tuple[ClientId, Reply]]:
        self._pool.drain()  # jobs of a round that was abandoned read the model that is there
        self._memory.prepare(requests)
        self._register.begin()
        self._publish(requests)
        jobs = (
            _Job(self._memory[client], replace(request, weights=None), request.weights is not None)
            for client, request in requests.items()
        )
        for client, done in zip(requests, self._pool.map(jobs), strict=True):
            self._clock.add(done.seconds)
            self._register.add(done.tried, done.excuses)
            if done.reply is not None:
                self._memory.keep(done.state)
                place = done.vector
                vector = None if place is None else place.view(self._slots[place.slot])  # read in place
                yield client, replace(done.reply, vector=vector)
        self._register.close()

    def _publish(self, requests: Mapping[ClientId, Request]) -> None:
        """Put the model of a round where every worker reads it."""
        models = {id(request.weights): request.weights for request in requests.values() if request.weights is not None}
        if len(models) > 1:
            raise InvalidInput(
                f"the requests of one round carry {len(models)} different models; they must carry the same"
            )
        for model in models.values():
            self._model[:] = model


class _Clients:
    """In a worker process: clients answer one after the other, and leave their vectors in the worker's slots in turn.

    No slot is used again before its vector was taken: a worker has a slot for each job whose result is not yet taken.
    """

    def __init__(self, client: Client, model: Any, slots: list[tuple[int, Any]]) -> None:
        self._client, self._model, self._slots, self._jobs = client, model, slots, 0

    def __call__(self, job: _Job) -> _Done:
        client, (slot, memory) = self._client, self._slots[self._jobs % AHEAD]
        if self._jobs == 0:
            client.trainer.limit_threads(1)
        self._jobs += 1
        weights = np.frombuffer(self._model, np.float32) if job.has_model else None
        try:
            state, reply = answer(client, job.state, replace(job.request, weights=weights))
        except CannotContribute:  # a scheme without privacy: the client has dropped out
            return _Done(job.state, None, None, *self._figures())
        except ClientFailed:
            self._figures()
            raise
        client.clock.enter("hand over")
        place = None
        if reply.vector is not None:
            place = _Place(slot, reply.vector.size, reply.vector.dtype.str)
            place.view(memory)[:] = reply.vector
        return _Done(state, replace(reply, vector=None), place, *self._figures())

    def _figures(self) -> tuple[int, tuple[str, ...], dict[str, float]]:
        tried, excuses = self._client.attendance.take()
        return tried, tuple(excuses), self._client.clock.take()
