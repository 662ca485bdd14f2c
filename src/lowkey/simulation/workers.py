"""Clients in worker processes, with models and vectors in shared memory.

The parent publishes the model once a round. A worker gets some blocks of clients in one message, lets the clients of a
block train together, adds up their vectors where the requests have a rule for that, and leaves the sum, or else each
vector, in a slot of shared memory. The parent hands them on in the order of the requests, whatever the workers' speed,
so that sums do not depend on scheduling. Memory is a few slots per worker: neither the cohort nor the population
matters.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.sharedctypes import RawArray
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np

from lowkey import checks
from lowkey.errors import ClientFailed, InvalidInput, WorkerDied
from lowkey.federation import Client, ClientState, Part, Reply, Request, Requests, Rule, Scheme, block_size
from lowkey.protocols import Keys, Respondent, Trainer
from lowkey.rng import Secrets
from lowkey.secagg import MemberState
from lowkey.simulation.in_process import answer
from lowkey.simulation.memory import Memory
from lowkey.simulation.pool import AHEAD, Pool
from lowkey.simulation.register import Register
from lowkey.timing import StageClock
from lowkey.types import ClientId

_STAGE_BYTES = 40

_State: TypeAlias = tuple[ClientId, tuple[int, int], int, MemberState | None]
"""A client's state as a plain tuple, which is quick to send."""


@dataclass(frozen=True)
class _Block:
    states: list[_State]
    requests: list[tuple[Request, bool]]  # without the model, which is in shared memory; whether it belongs there


@dataclass(frozen=True)
class _Job:
    blocks: list[_Block]
    rule: Rule | None
    length: int  # of a vector of this round


@dataclass(frozen=True)
class _BlockDone:
    """What a block has sent: without a rule a reply for each client, in which the vector is missing; else the sum.

    States and replies are None for clients that dropped out.
    """

    states: list[_State | None]
    replies: list[Reply | None]
    part: Part | None
    dtype: str | None


@dataclass(frozen=True)
class _Done:
    blocks: list[_BlockDone]
    slot: int
    tried: int
    excuses: tuple[str, ...]
    seconds: dict[str, float]


class _SharedStageClock(StageClock):
    """Writes client and stage to shared memory, where the parent finds them if this process dies."""

    def __init__(self, memory: Any) -> None:
        super().__init__()
        self._memory = memory

    def enter(self, name: str, client: ClientId | None = None) -> None:
        super().enter(name, client)
        self._memory.value = f"{'' if client is None else client} {name}".encode()[: _STAGE_BYTES - 1]


class WorkerPool:
    """Satisfies :class:`lowkey.protocols.Ask` with several processes; use it as a context manager.

    Parameters
    ----------
    scheme, trainer, respondent, secrets : Scheme, Trainer, Respondent or None, Secrets
        The parts of every client; data is shared with the workers, not copied, where the system can fork.
    workers : int
        Number of processes; each has one thread.
    clock : StageClock
        Gets the clients' seconds, summed over clients.
    memory : Memory or None
        The states that clients remember.
    keys : Keys or None
        Keys of all clients; needed for secure aggregation.
    blocks_at_once : int
        How many blocks of clients go to a worker in one message. Results do not depend on it.
    """

    def __init__(
        self,
        *,
        scheme: Scheme,
        trainer: Trainer,
        respondent: Respondent | None = None,
        secrets: Secrets,
        workers: int,
        clock: StageClock,
        memory: Memory | None = None,
        keys: Keys | None = None,
        blocks_at_once: int = 1,
    ) -> None:
        checks.at_least("runtime.workers", workers, 1)
        checks.at_least("blocks at once", blocks_at_once, 1)
        self._clock, self._memory, self._register = clock, memory or Memory(), Register()
        self.take_figures = self._register.take
        self._length_at: Callable[[int], int] = partial(_length, scheme, trainer.num_coordinates)
        self._at_once = blocks_at_once
        members = max(phase.privacy.sampling.roster_size for phase in scheme.phases.values())
        largest = block_size(members, trainer.num_coordinates)
        longest = max(self._length_at(number) for number in scheme.phases)
        size_of_slot = 4 * longest * largest * blocks_at_once
        shared_model: Any = RawArray(ctypes.c_float, trainer.num_coordinates)
        self._model = np.frombuffer(shared_model, np.float32)
        self._slots: list[Any] = [RawArray(ctypes.c_char, size_of_slot) for _ in range(workers * AHEAD)]
        self._stages: list[Any] = [RawArray(ctypes.c_char, _STAGE_BYTES) for _ in range(workers)]
        self._pool: Pool[_Job, _Done] = Pool(
            [
                _Clients(
                    Client(
                        scheme=scheme,
                        trainer=trainer,
                        respondent=respondent,
                        secrets=secrets,
                        keys=keys,
                        clock=_SharedStageClock(stage),
                    ),
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

    def __call__(self, requests: Mapping[ClientId, Request]) -> Iterator[tuple[ClientId, Reply] | Part]:
        try:
            yield from self._answers(requests if isinstance(requests, Requests) else Requests(requests))
        except WorkerDied as death:
            whose, _, stage = self._stages[death.worker].value.decode().partition(" ")
            client = int(whose) if whose else death.job.blocks[0].states[0][0]
            raise ClientFailed(client, stage or "start", death.reason) from None

    def _answers(self, requests: Requests) -> Iterator[tuple[ClientId, Reply] | Part]:
        self._pool.drain()  # jobs of a round that was abandoned read the model that is there
        self._memory.prepare(requests)
        self._register.begin()
        self._publish(requests)
        blocks = list(requests.blocks)
        messages = [blocks[first : first + self._at_once] for first in range(0, len(blocks), self._at_once)]
        length = self._length_at(next(iter(requests.values())).round) if requests else 0
        jobs = (
            _Job([self._block(requests, block) for block in message], requests.rule, length) for message in messages
        )
        for message, done in zip(messages, self._pool.map(jobs), strict=True):
            self._clock.add(done.seconds)
            self._register.add(done.tried, done.excuses)
            vectors = _Vectors(self._slots[done.slot], length)
            for clients, block in zip(message, done.blocks, strict=True):
                for state in block.states:
                    if state is not None:
                        self._memory.keep(ClientState(*state))
                if block.part is not None:
                    yield replace(block.part, total=vectors.next(block.dtype))  # read in place
                    continue
                for client, reply in zip(clients, block.replies, strict=True):
                    if reply is not None:
                        yield client, replace(reply, vector=None if block.dtype is None else vectors.next(block.dtype))
        self._register.close()

    def _block(self, requests: Requests, clients: Sequence[ClientId]) -> _Block:
        # members mostly get one and the same request: it is stripped once, and sent once
        stripped: dict[int, tuple[Request, bool]] = {}
        asked = [requests[client] for client in clients]
        for request in asked:
            if id(request) not in stripped:
                stripped[id(request)] = replace(request, weights=None), request.weights is not None
        return _Block([_packed(self._memory[client]) for client in clients], [stripped[id(r)] for r in asked])

    def _publish(self, requests: Mapping[ClientId, Request]) -> None:
        """Put the model of a round where every worker reads it."""
        models = {id(request.weights): request.weights for request in requests.values() if request.weights is not None}
        if len(models) > 1:
            raise InvalidInput(
                f"the requests of one round carry {len(models)} different models; they must carry the same"
            )
        for model in models.values():
            self._model[:] = model


def _length(scheme: Scheme, num_coordinates: int, number: int) -> int:
    """Numbers in a vector of a round."""
    return scheme.at(number).wire(num_coordinates, number).length


class _Vectors:
    """Vectors one behind the other in a slot of shared memory."""

    def __init__(self, slot: Any, length: int) -> None:
        self._slot, self._length, self._place = slot, length, 0

    def next(self, dtype: Any) -> Any:
        """A view of the place of the next vector."""
        view = np.frombuffer(self._slot, np.dtype(dtype), self._length, offset=self._place)
        self._place += view.nbytes
        return view


class _Clients:
    """In a worker process: blocks of clients answer one after the other, and use the worker's slots in turn.

    No slot is used again before its vectors were taken: a worker has a slot for each job whose result is not yet taken.
    """

    def __init__(self, client: Client, model: Any, slots: list[tuple[int, Any]]) -> None:
        self._client, self._model, self._slots, self._jobs = client, model, slots, 0

    def __call__(self, job: _Job) -> _Done:
        client, (slot, memory) = self._client, self._slots[self._jobs % AHEAD]
        if self._jobs == 0:
            client.trainer.limit_threads(1)
        self._jobs += 1
        vectors = _Vectors(memory, job.length)
        try:
            blocks = [self._answer(block, job.rule, vectors) for block in job.blocks]
        except ClientFailed:
            client.attendance.take()
            client.clock.take()
            raise
        tried, excuses = client.attendance.take()
        return _Done(blocks, slot, tried, tuple(excuses), client.clock.take())

    def _answer(self, block: _Block, rule: Rule | None, vectors: _Vectors) -> _BlockDone:
        with_model: dict[int, Request] = {}
        for request, has_model in block.requests:
            if id(request) not in with_model:
                weights = np.frombuffer(self._model, np.float32) if has_model else None
                with_model[id(request)] = replace(request, weights=weights)
        states = [ClientState(*state) for state in block.states]
        answers = answer(self._client, states, [with_model[id(request)] for request, _ in block.requests])
        after = [None if one is None else _packed(one[0]) for one in answers]
        if rule is not None:
            part = Part(vectors.next(rule.dtype))
            for state, one in zip(states, answers, strict=True):
                if one is not None:
                    with self._client.clock.stage("sum", state.client):
                        part.take(rule, state.client, one[1])
            return _BlockDone(after, [], replace(part, total=np.empty(0, rule.dtype)), np.dtype(rule.dtype).str)
        self._client.clock.enter("hand over")
        replies, dtype = list[Reply | None](), None
        for one in answers:
            reply = None if one is None else one[1]
            if reply is not None and reply.vector is not None:
                dtype = reply.vector.dtype.str
                vectors.next(dtype)[:] = reply.vector
            replies.append(reply and replace(reply, vector=None))
        return _BlockDone(after, replies, None, dtype)


def _packed(state: ClientState) -> _State:
    return state.client, state.answered, state.contributions, state.member
