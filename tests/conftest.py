"""Shared pieces of the tests: a small problem that learns, and which tests are slow or start servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

from lowkey.experiments import Config, find, override, parse
from lowkey.federation import Reply, Scheme
from lowkey.privacy import ClientMechanism
from lowkey.types import FloatArray, Words
from tests.marks import PROCESSES, SLOW

settings.register_profile("lowkey", deadline=None)  # a busy machine is no defect
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)  # the same examples every time
settings.load_profile("ci" if os.environ.get("CI") else "lowkey")

TESTS = Path(__file__).parent
FLOWER = find_spec("flwr") is not None
NEED_FLOWER = ["cli/test_flower.py", "flower", "fuzz", *(f"deployment/test_{n}.py" for n in ("apps", "guard", "local"))]
NEED_FLOWER += [f"attacks/test_{name}.py" for name in (
    "cheap_release", "error_texts", "failing_training", "foreign_write_access", "malformed_vectors", "renamed_runs",
    "replies_that_flower_unpacks", "rolled_back_context", "traffic_tells_contributors", "two_apps",
)]  # fmt: skip
collect_ignore = [] if FLOWER else NEED_FLOWER


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not FLOWER:
        terminalreporter.write_line("Flower is not installed: its tests were left out")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks by place and name. Tests of one file share fixtures and so one worker; those with servers share one too."""
    parallel = "PYTEST_XDIST_WORKER" in os.environ
    for item in items:
        file = item.path.relative_to(TESTS).as_posix()
        if file in PROCESSES:
            item.add_marker(pytest.mark.processes)
        if f"{file}::{getattr(item, 'originalname', item.name)}" in SLOW:
            item.add_marker(pytest.mark.slow)
        if parallel:
            item.add_marker(pytest.mark.xdist_group("processes" if file in PROCESSES else file))
    if parallel:  # the longest group first, so that no worker waits for it at the end
        items.sort(key=lambda item: item.get_closest_marker("processes") is None)


@pytest.fixture(autouse=True)
def _single_thread() -> Iterator[None]:
    """Sums in one thread, so that bit-for-bit comparisons mean something."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def tiny_config(preset: str = "demo/fl-std", *changes: str) -> Config:
    """A preset shrunk to seconds: 400 clients of the bundled sample, a small network, no worker processes."""
    small = ("federation.clients=400", "model.filters=[2, 4]", "model.hidden=8", "schedule.rounds=3")
    chunks = ("codec.chunks=3",) if "fl-cs" in preset else ()  # other codecs have none
    return _shrunk(preset, *small, *chunks, *changes)


def tiny_hospital(preset: str = "hospital/synthetic/fl-std", *changes: str) -> Config:
    """A preset of synthetic hospitals shrunk to seconds: five clients, a small network, no worker processes."""
    small = ("data.scale=0.001", "federation.clients=5", "model.hidden=4", "schedule.rounds=2")
    return _shrunk(preset, *small, *changes)


def _shrunk(preset: str, *changes: str) -> Config:
    return parse(override(find(preset), ["federation.cohort=5", "runtime.workers=0", *changes])).resolve()


def mechanism_of(scheme: Scheme) -> ClientMechanism:
    """What protects the clients of a private scheme."""
    assert isinstance(scheme.privacy, ClientMechanism)
    return scheme.privacy


def sent_vector(reply: Reply) -> FloatArray | Words:
    """The vector of a client that has sent one."""
    assert reply.vector is not None
    return reply.vector


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    return tmp_path / "run"
