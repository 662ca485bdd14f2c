"""Clients with features: computed once, kept, shared with forked workers, fit for trainers."""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

import lowkey
from lowkey.errors import CannotContribute, InvalidInput
from lowkey.features import Chain, Hashing, Scattering, Shape, UnitNorm, features_of, with_features
from lowkey.learning import HeadTrainer, LinearHead


class Counted:
    """A map that knows how often it was used."""

    digest = "counted"

    def __init__(self, width: int = 3, value: float = 2.0) -> None:
        self.calls, self._width, self._value = 0, width, value

    def width(self, inputs: Shape) -> int:
        return self._width

    def __call__(self, rows: Any) -> Any:
        self.calls += 1
        return self._value * rows


def clients(count: int = 4) -> list[tuple[Any, Any]]:
    return [(np.full((2, 3), client, np.float32), np.array([0, 1])) for client in range(count)]


def test_features_are_computed_once_for_each_client_that_is_asked() -> None:
    counted = Counted()
    featured = with_features(clients(), counted)
    assert len(featured) == 4
    assert counted.calls == 0
    for _ in range(3):
        inputs, targets = featured[2]
        np.testing.assert_array_equal(inputs, np.full((2, 3), 4))
        np.testing.assert_array_equal(targets, [0, 1])
    assert counted.calls == 1
    featured.fill()
    featured.fill()
    assert counted.calls == 4
    assert [inputs[0, 0] for inputs, _ in featured] == [0, 2, 4, 6]  # type: ignore[attr-defined]


def test_features_need_not_be_kept() -> None:
    counted = Counted()
    featured = with_features(clients(), counted, keep=False)
    np.testing.assert_array_equal(featured[1][0], featured[1][0])
    assert counted.calls == 2
    with pytest.raises(InvalidInput, match="not kept"):
        featured.fill()


def in_a_worker(featured: Any, mapping: Counted, pipe: Any) -> None:
    values = [float(featured[client][0][0, 0]) for client in (1, 3, 3)]
    pipe.send((values, mapping.calls))


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes are forked on Linux")
def test_forked_workers_have_what_was_computed_before_and_keep_their_own() -> None:
    counted = Counted()
    featured = with_features(clients(), counted)
    assert featured[1][0][0, 0] == 2
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    worker = context.Process(target=in_a_worker, args=(featured, counted, theirs))
    worker.start()
    assert mine.poll(30)
    assert mine.recv() == ([2.0, 6.0, 6.0], 2)
    worker.join()
    assert counted.calls == 1


def test_whatever_form_data_has() -> None:
    sparse = scipy.sparse.random_array((5, 30), density=0.2, rng=0, format="coo", dtype=np.float32)
    images = torch.rand(4, 1, 8, 8)
    featured = with_features([(sparse, np.arange(5)), (images.numpy(), torch.arange(4))], Hashing(size=6))
    hashed = featured[0][0]
    np.testing.assert_allclose(hashed.toarray(), Hashing(size=6)(sparse.toarray()), atol=1e-6)
    dataset = torch.utils.data.TensorDataset(images, torch.arange(4))
    inputs, targets = with_features([dataset], Scattering(scales=1))[0]
    np.testing.assert_allclose(inputs, Scattering(scales=1)(images.numpy()), atol=1e-6)
    np.testing.assert_array_equal(targets, np.arange(4))
    np.testing.assert_array_equal(features_of(images, Scattering(scales=1)), Scattering(scales=1)(images.numpy()))


def test_a_chain_of_nothing_leaves_images_images() -> None:
    images = np.random.default_rng(0).random((4, 1, 8, 8), np.float32)
    inputs, _ = with_features([(images, np.arange(4))], Chain())[0]
    np.testing.assert_array_equal(inputs, images)


def test_trainers_take_clients_with_features() -> None:
    rng = np.random.default_rng(0)
    data = [(rng.random((3, 8, 8), np.float32), np.array([0, 1, 2])) for _ in range(2)]
    mapping = Chain((Scattering(scales=2), UnitNorm()))
    head = LinearHead(mapping.width((8, 8)), 3)
    trainer = HeadTrainer(head, with_features(data, mapping), lowkey.FullGradient())
    update = trainer.train(np.zeros(trainer.num_coordinates, np.float32), 1, rng).update
    residuals = np.eye(3) - 1 / 3  # of zero weights; the rate is 1
    expected = residuals @ mapping(data[1][0]) / 3
    np.testing.assert_allclose(update[: expected.size].reshape(3, -1), expected, atol=1e-6)


def test_a_client_without_data_cannot_contribute_as_before() -> None:
    empty = (np.zeros((0, 8, 8), np.float32), np.zeros(0, int))
    trainer = HeadTrainer(LinearHead(4, 3), with_features([empty], Scattering()), lowkey.FullGradient())
    with pytest.raises(CannotContribute, match="empty"):
        trainer.train(np.zeros(15, np.float32), 0, np.random.default_rng(0))


def test_own_maps_are_checked() -> None:
    rows = np.ones((2, 3), np.float32)
    with pytest.raises(InvalidInput, match=r"shape \(2, 3\) of 2 rows; it says that it makes 4 numbers of each"):
        features_of(rows, Counted(width=4))
    with pytest.raises(InvalidInput, match="made NaN or infinite numbers"):
        features_of(rows, Counted(value=float("nan")))


def test_the_client_with_bad_data_is_named() -> None:
    data = clients()
    data[2][0][1, 0] = np.nan
    with pytest.raises(InvalidInput, match="data of client 2: row 1 of the input of the map 'unit-norm' holds nan"):
        with_features(data, UnitNorm()).fill()
    with pytest.raises(InvalidInput, match="the data of a client is a int"):
        with_features([3], UnitNorm())[0]
    with pytest.raises(InvalidInput, match="not 4 parts"):
        with_features([(1, 2, 3, 4)], UnitNorm())[0]


def test_person_ids_stay_with_their_rows() -> None:
    (rows, targets), *_ = clients()
    ids = np.arange(len(targets))
    mapped, labels, persons = with_features([(rows, targets, ids)], UnitNorm())[0]
    np.testing.assert_array_equal(persons, ids)
    np.testing.assert_array_equal(labels, targets)
    np.testing.assert_array_equal(mapped, with_features([(rows, targets)], UnitNorm())[0][0])
