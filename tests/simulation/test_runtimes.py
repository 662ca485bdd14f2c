"""One contract for every runtime, and what worker processes add: same bits, named crashes, bounded memory."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from lowkey import ChunkedDCT, ClientPrivacy
from lowkey.errors import ClientFailed, InvalidInput
from lowkey.federation import Client, Federation, Request, Schedule, Scheme, initial_state, scheme
from lowkey.federation.aggregation import singly
from lowkey.protocols import LocalUpdate
from lowkey.rng import OSSecrets, ReplaySecrets, Secrets
from lowkey.simulation import InProcess, WorkerPool
from lowkey.timing import StageClock
from tests.conftest import sent_vector

DIMENSION = 500


class Pull:
    """Moves the model towards a point of the client's own; told clients misbehave."""

    num_coordinates = DIMENSION

    def __init__(self, num_clients: int = 50, act: Callable[[int], None] = lambda client: None) -> None:
        self.num_clients, self.act = num_clients, act

    def limit_threads(self, threads: int) -> None: ...

    def train(self, weights: np.ndarray, client: int, rng: np.random.Generator) -> LocalUpdate:
        self.act(client)
        target = np.random.default_rng(client).normal(size=DIMENSION).astype(np.float32)
        return LocalUpdate(np.float32(0.1) * (target - weights), 1 + client % 3)


def scheme_for(name: str = "fl-cs", clients: int = 50) -> Scheme:
    codec = ChunkedDCT(ratio=0.2, chunks=5) if name.startswith("fl-cs") else None
    privacy = ClientPrivacy(clip_norm=1.0, noise_multiplier=1.0) if name.endswith("-dp") else None
    return scheme(name, clients=clients, cohort=12, codec=codec, privacy=privacy).for_layers([DIMENSION])


@contextmanager
def runtime(kind: str, made: Scheme, trainer: Pull, secrets: Secrets | None = None) -> Iterator[InProcess | WorkerPool]:
    secrets, clock = secrets or OSSecrets(), StageClock()
    if kind == "in-process":
        yield InProcess(Client(scheme=made, trainer=trainer, secrets=secrets, clock=clock))
    else:
        with WorkerPool(scheme=made, trainer=trainer, secrets=secrets, workers=int(kind), clock=clock) as pool:
            yield pool


KINDS = ["in-process", "1", "3"]
ZEROS = np.zeros(DIMENSION, np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_replies_come_in_the_order_of_the_requests(kind: str) -> None:
    clients = [7, 3, 30, 1, 22, 9, 8, 40]
    with runtime(kind, scheme_for("fl-std"), Pull(act=lambda c: time.sleep(0.02 * (c % 3)))) as ask:
        for number in (1, 2):
            requests = {c: Request(round=number, weights=ZEROS) for c in clients}
            replies = [(c, r.round, r.weight, sent_vector(r).copy()) for c, r in singly(ask(requests))]
            assert [c for c, *_ in replies] == clients
            for client, number_, weight, vector in replies:
                alone = Pull().train(ZEROS, client, np.random.default_rng(0))
                assert (number_, weight) == (number, alone.num_examples)
                np.testing.assert_allclose(vector, alone.update * np.float32(weight), rtol=1e-6)


def trained(kind: str, name: str) -> np.ndarray:
    made, secrets = scheme_for(name), ReplaySecrets(1)
    with runtime(kind, made, Pull(), secrets) as ask:
        federation = Federation(
            scheme=made, ask=ask, evaluate=lambda w: {"accuracy": 0.0, "loss": 0.0}, secrets=secrets
        )
        state, _ = federation.run(initial_state(made, ZEROS), Schedule(rounds=4))
    return state.weights


@pytest.mark.parametrize("name", ["fl-std", "fl-cs", "fl-cs-dp"])
def test_same_model_whatever_the_runtime(name: str) -> None:
    alone = trained("in-process", name)
    for kind in ("1", "3"):
        np.testing.assert_array_equal(trained(kind, name), alone)


def explode(client: int) -> None:
    if client == 3:
        raise ValueError("boom")


def die(client: int) -> None:
    if client == 3:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_names_client_and_stage(kind: str) -> None:
    requests = {c: Request(round=1, weights=ZEROS) for c in (1, 2, 3, 4)}
    with (
        runtime(kind, scheme_for(), Pull(act=explode)) as ask,
        pytest.raises(ClientFailed, match=r"client 3 failed in stage 'train': boom") as caught,
    ):
        list(ask(requests))
    assert (caught.value.client, caught.value.stage) == (3, "train")


@pytest.mark.parametrize("kind", ["1", "2"])
def test_a_killed_worker_names_client_and_stage(kind: str) -> None:
    requests = {c: Request(round=1, weights=ZEROS) for c in (1, 2, 3, 4)}
    with (
        runtime(kind, scheme_for(), Pull(act=die)) as ask,
        pytest.raises(ClientFailed, match=r"client 3 failed in stage 'train'.*exit code -9.*memory"),
    ):
        list(ask(requests))


def test_an_abandoned_round_leaves_clean_workers() -> None:
    with runtime("2", scheme_for("fl-std"), Pull()) as ask:
        replies = iter(ask({c: Request(round=1, weights=ZEROS) for c in range(9)}))
        next(replies)
        assert isinstance(replies, Generator)
        replies.close()
        ones = np.ones(DIMENSION, np.float32)
        for client, reply in singly(ask({c: Request(round=2, weights=ones) for c in range(9)})):
            alone = Pull().train(ones, client, np.random.default_rng(0))
            np.testing.assert_allclose(
                sent_vector(reply), alone.update * np.float32(reply.weight), rtol=1e-5, atol=1e-7
            )


def test_closing_ends_all_processes() -> None:
    with runtime("2", scheme_for(), Pull()) as ask:
        assert isinstance(ask, WorkerPool)
        processes = [worker.process for worker in ask._pool._workers]
        assert all(process.is_alive() for process in processes)
    assert not any(process.is_alive() for process in processes)


def test_a_million_clients_cost_what_six_thousand_do() -> None:
    """Shared memory holds the model and three slots per worker, whatever the population; nothing else is allocated."""

    def shared(clients: int) -> int:
        made = scheme("fl-std", clients=clients, cohort=10)
        trainer = Pull(num_clients=clients)
        with WorkerPool(scheme=made, trainer=trainer, secrets=OSSecrets(), workers=2, clock=StageClock()) as pool:
            federation = Federation(scheme=made, ask=pool, evaluate=lambda w: {"accuracy": 0.0, "loss": 0.0})
            federation.run(initial_state(made, ZEROS), Schedule(rounds=2))
            held: int = pool._model.nbytes + sum(len(slot) for slot in pool._slots)
            assert not any(worker.running for worker in pool._pool._workers)
            return held

    assert shared(6_000) == shared(1_000_000) == 4 * DIMENSION * (1 + 2 * 3)


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked, and /proc tells what they hold, on Linux")
def test_workers_share_the_trainers_data() -> None:
    """A worker reads a table of 256 MB without holding a copy of it."""
    table = np.ones(64_000_000, np.float32)

    def read(client: int) -> None:
        assert table.sum() == len(table)

    with runtime("2", scheme_for(), Pull(act=read)) as ask:
        for _ in ask({c: Request(round=1, weights=ZEROS) for c in range(4)}):
            pass
        assert isinstance(ask, WorkerPool)
        for worker in ask._pool._workers:
            held = Path(f"/proc/{worker.process.pid}/smaps_rollup").read_text(encoding="ascii")
            private = sum(int(held.split(f"{kind}:")[1].split()[0]) for kind in ("Private_Clean", "Private_Dirty"))
            assert private < 128 * 1024  # in units of 1024 bytes


def test_impossible_pool_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"runtime\.workers"):
        WorkerPool(scheme=scheme_for(), trainer=Pull(), secrets=OSSecrets(), workers=0, clock=StageClock())
