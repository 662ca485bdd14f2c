"""Partitions: every example once, nobody empty, the skew that was asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkey.errors import InvalidInput
from lowkey.tasks.partition import Partition, by_ids, dirichlet_shards, iid_shards


def assert_partition(partition: Partition, examples: int, clients: int) -> None:
    assert len(partition) == clients
    rows = np.concatenate([partition[c] for c in range(clients)])
    assert sorted(rows.tolist()) == list(range(examples))
    assert partition.sizes.min() >= 1


@given(st.integers(1, 200), st.data())
def test_iid_shards(examples: int, data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, examples))
    partition = iid_shards(examples, clients, np.random.default_rng(0))
    assert_partition(partition, examples, clients)
    assert partition.sizes.max() - partition.sizes.min() <= 1


@given(st.integers(1, 40), st.floats(0.01, 100), st.integers(0, 1000))
def test_dirichlet_shards(clients: int, alpha: float, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, 5, 120)
    partition = dirichlet_shards(labels, clients, alpha, np.random.default_rng(seed))
    assert_partition(partition, 120, clients)


def test_dirichlet_skew_follows_alpha() -> None:
    labels = np.repeat(np.arange(10), 500)

    def classes_of_a_client(alpha: float) -> float:
        partition = dirichlet_shards(labels, 50, alpha, np.random.default_rng(0))
        return float(np.mean([len(set(labels[partition[c]])) for c in range(50)]))

    assert classes_of_a_client(0.05) < 4 < 9 < classes_of_a_client(100.0)


def test_by_ids() -> None:
    partition = by_ids(["b", "a", "b", "c"])
    assert [partition[c].tolist() for c in range(3)] == [[1], [0, 2], [3]]


def test_bad_requests_are_refused() -> None:
    with pytest.raises(InvalidInput, match="only 3 examples"):
        iid_shards(3, 4, np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="alpha"):
        dirichlet_shards([0, 1], 2, 0.0, np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="one id per example"):
        by_ids([])
    with pytest.raises(IndexError):
        by_ids([1, 2])[2]
