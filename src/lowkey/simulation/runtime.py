"""Choosing and opening a runtime."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import scipy.fft

from lowkey.federation import Client, Scheme
from lowkey.protocols import Keys, Respondent, Trainer
from lowkey.rng import Secrets
from lowkey.simulation.in_process import InProcess
from lowkey.simulation.memory import Memory
from lowkey.simulation.workers import WorkerPool
from lowkey.timing import StageClock


@contextmanager
def open_runtime(
    *,
    scheme: Scheme,
    trainer: Trainer,
    respondent: Respondent | None = None,
    secrets: Secrets,
    clock: StageClock,
    workers: int | Literal["auto"],
    device: str = "cpu",
    memory: Memory | None = None,
    keys: Keys | None = None,
) -> Iterator[InProcess | WorkerPool]:
    """A runtime for the clients; the server's transforms use all cores while it is open.

    "auto" takes one worker per core on the CPU; accelerators are used from the main process.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = (cores if device == "cpu" else 0) if workers == "auto" else workers
    if count == 0:
        with scipy.fft.set_workers(cores):
            client = Client(
                scheme=scheme, trainer=trainer, respondent=respondent, secrets=secrets, keys=keys, clock=clock
            )
            yield InProcess(client, memory)
        return
    # workers are made first, so that their own transforms stay with one thread
    with (
        WorkerPool(
            scheme=scheme,
            trainer=trainer,
            respondent=respondent,
            secrets=secrets,
            workers=count,
            clock=clock,
            memory=memory,
            keys=keys,
        ) as pool,
        scipy.fft.set_workers(cores),
    ):
        yield pool
