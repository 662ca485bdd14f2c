"""Shared pieces of the tests: a small problem that learns, and operators of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

from lowkey.experiments import Config, find, override, parse

settings.register_profile("lowkey", deadline=None)  # a busy machine is no defect
settings.load_profile("lowkey")


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


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    return tmp_path / "run"
