"""The one pool of worker processes: results in order, errors and deaths told, and an end that always comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lowkey.errors import WorkerDied
from lowkey.simulation import pool as pool_module
from lowkey.simulation.pool import AHEAD, Pool

LARGE = bytes(4 << 20)  # more than a pipe holds


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail instead of waiting for longer."""

    def late(*_: object) -> None:
        raise AssertionError(f"not done within {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """As the command line has it."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Deaf:
    """Python drops exceptions that are raised in a destructor, those of signals too."""

    def __del__(self) -> None:
        time.sleep(0.2)


def work(job: Any) -> Any:
    match job:
        case "sleep":
            time.sleep(100)
        case "deaf":
            while True:
                Deaf()
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "ignore":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(100)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "large":
            return LARGE
        case float():
            time.sleep(job)
    return job


def pids(pool: Pool[Any, Any]) -> list[int]:
    return [worker.process.pid for worker in pool._workers]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def idle(pool: Pool[Any, Any]) -> None:
    list(pool.map(range(4)))


def just_started(pool: Pool[Any, Any]) -> None:
    """Not even the signals may be reset yet."""


def given(*jobs: Any) -> Callable[[Pool[Any, Any]], None]:
    def begin(pool: Pool[Any, Any]) -> None:
        pool._hand_out(iter(jobs), deque())

    return begin


def abandoned(pool: Pool[Any, Any]) -> None:
    results = pool.map(range(100))
    next(results)
    assert isinstance(results, Generator)
    results.close()


def one_died(pool: Pool[Any, Any]) -> None:
    with pytest.raises(WorkerDied, match="exit code -9; it may have run out of memory"):
        list(pool.map(["die", 1]))


STATES: dict[str, tuple[Callable[[Pool[Any, Any]], None], int]] = {
    "just started": (just_started, 60),
    "idle": (idle, 30),
    "busy": (given("sleep", "sleep"), 30),
    "with jobs queued": (given("sleep", "sleep", 1, 2), 20),
    "in the middle of a result that nobody takes": (given("large", "large"), 20),
    "abandoned half-way": (abandoned, 20),
    "deaf to exceptions": (given("deaf", "deaf"), 10),
    "after a death": (one_died, 10),
}
STUBBORN = {"stopped": (given("stop", 1), 2), "ignoring SIGTERM": (given("ignore", 1), 2)}


def test_states_make_200_ends() -> None:
    assert sum(times for _, times in STATES.values()) == 200


@pytest.mark.parametrize("state", STATES)
def test_a_pool_ends_at_once_whatever_its_workers_do(state: str) -> None:
    begin, times = STATES[state]
    for _ in range(times):
        with within(20), sigterm_raises():
            pool = Pool([work, work])
            begin(pool)
            processes, began = pids(pool), time.monotonic()
            pool.close()
        assert time.monotonic() - began < 4.0
        assert all(map(is_gone, processes))


@pytest.mark.parametrize("state", STUBBORN)
def test_a_worker_that_does_not_end_is_killed(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_END_SECONDS", 0.3)
    begin, times = STUBBORN[state]
    for _ in range(times):
        with within(20), sigterm_raises(), Pool([work, work]) as pool:
            begin(pool)
            time.sleep(0.2)
            processes = pids(pool)
        assert all(map(is_gone, processes))


def test_workers_that_do_not_end_are_waited_for_together() -> None:
    with within(60), sigterm_raises():  # one after the other would take 40 seconds
        pool = Pool([work] * 8)
        processes = pids(pool)
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        began = time.monotonic()
        pool.close()
    assert time.monotonic() - began < pool_module._END_SECONDS + pool_module._KILL_SECONDS
    assert all(map(is_gone, processes))


def test_results_come_in_order_however_long_jobs_take() -> None:
    jobs = [0.03, 1, 2, 0.02, 3, 4, 0.01, 5]
    with Pool([work] * 3) as pool:
        for _ in range(2):
            assert list(pool.map(jobs)) == jobs
        assert list(pool.map([])) == []


def test_jobs_and_results_larger_than_a_pipe_do_not_block_each_other() -> None:
    with within(30), Pool([work]) as pool:
        assert sum(len(result) for result in pool.map([LARGE] * 5)) == 5 * len(LARGE)


def test_jobs_are_taken_as_results_are() -> None:
    taken = []

    def jobs() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    with Pool([work, work]) as pool:
        results = pool.map(jobs())
        assert [next(results) for _ in range(10)] == list(range(10))
        assert len(taken) <= 10 + 2 * AHEAD


class Odd(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def fail(job: int) -> int:
    if job == 2:
        raise ValueError("boom")
    if job == 4:
        raise Odd(1, 2)
    return job


def test_an_error_is_raised_where_its_result_would_have_been() -> None:
    with Pool([fail, fail]) as pool:
        results = pool.map(range(4))
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(ValueError, match="boom") as caught:
            next(results)
        assert "in fail" in caught.value.__notes__[0]
        with pytest.raises(RuntimeError, match="Odd: 1 and 2"):  # it cannot be pickled
            list(pool.map([4]))
        assert list(pool.map([5, 6])) == [5, 6]


def test_a_dead_worker_names_its_job() -> None:
    with Pool([work]) as pool, pytest.raises(WorkerDied) as caught:
        list(pool.map([1, "die", 2]))
    assert (caught.value.worker, caught.value.job) == (0, "die")


def handlers(_job: int) -> list[Any]:
    return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]


def test_a_worker_does_not_inherit_what_signals_do() -> None:
    with sigterm_raises(), Pool([handlers]) as pool:
        assert list(pool.map([0])) == [[signal.SIG_DFL, signal.SIG_IGN]]
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGTERM, signal.SIGINT}


ORPHANS = """
import os, time
from lowkey.simulation.pool import Pool
def work(job):
    print(os.getpid(), flush=True)
    time.sleep(100)
for _ in Pool([work, work]).map(range(2)): pass
"""


def runs(pid: int) -> bool:
    """Whether a process runs; one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="/proc tells which processes are alive")
def test_busy_workers_end_with_a_killed_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(parent.stdout.readline()) for _ in range(2)]
    parent.kill()
    parent.wait()
    with within(10):
        while any(map(runs, workers)):
            time.sleep(0.05)
