"""Data in any form, and what cannot be learned from or learned together, in plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from lowkey.errors import CannotContribute, InvalidInput, LowkeyError
from lowkey.learning import FlatModel, LocalSGD, TorchEvaluator, TorchTrainer, model_vector


def data(size: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(size, 3)).astype(np.float32), rng.integers(0, 2, size)


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def update_of(examples: object, module: nn.Module | None = None) -> np.ndarray:
    module = module or linear()
    trainer = TorchTrainer(module, [examples], LocalSGD(steps=2, batch_size=50))
    return trainer.train(model_vector(module), 0, np.random.default_rng(0)).update


class Stream(IterableDataset[tuple[Tensor, int]]):
    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        yield torch.zeros(3), 0


def test_any_dataset_form() -> None:
    x, y = data()
    x64 = x.astype(np.float64)
    forms = [
        [torch.from_numpy(x), torch.from_numpy(y)],
        TensorDataset(torch.from_numpy(x), torch.from_numpy(y)),
        (x64, y),
        (x, y.astype(np.int32)),
        (x, y.astype(np.uint8)),
        (x, y.astype(bool)),
        TensorDataset(torch.from_numpy(x64), torch.from_numpy(y.astype(np.int32))),
        (x.tolist(), y.tolist()),
    ]
    expected = update_of((x, y))
    assert expected.any()
    for form in forms:
        np.testing.assert_array_equal(update_of(form), expected)


def test_any_type_of_numbers_evaluates_alike() -> None:
    x, y = data()
    one, other = (
        TorchEvaluator(linear(), examples)(model_vector(linear()))
        for examples in ((x, y), (x.astype(np.float64), y.astype(np.int32)))
    )
    assert one == other


@pytest.mark.parametrize(
    ("examples", "refused", "named"),
    [
        ((np.zeros((0, 3), np.float32), np.zeros(0, np.int64)), CannotContribute, "its dataset is empty"),
        (TensorDataset(torch.zeros(0, 3), torch.zeros(0)), CannotContribute, "its dataset is empty"),
        ((np.zeros((2, 3), np.float32), np.zeros(3, np.int64)), InvalidInput, "of client 0.*2 inputs but 3 targets"),
        ((np.zeros((2, 3), np.float32),), InvalidInput, "of client 0: .*inputs and targets, not 1"),
        (iter([1]), InvalidInput, "of client 0: .*length"),
        (Stream(), InvalidInput, "of client 0: .*map-style"),
        (DataLoader(TensorDataset(torch.zeros(2, 3), torch.zeros(2))), InvalidInput, r"DataLoader.*pass its \.dataset"),
    ],
)
def test_bad_datasets_are_refused(examples: object, refused: type[LowkeyError], named: str) -> None:
    with pytest.raises(refused, match=named):
        update_of(examples)


@pytest.mark.parametrize("examples", [(np.zeros((0, 3), np.float32), np.zeros(0)), (np.zeros((2, 3)), np.zeros(3))])
def test_test_data_that_cannot_be_used_is_the_callers_mistake(examples: object) -> None:
    with pytest.raises(InvalidInput, match="test data: "):
        TorchEvaluator(linear(), examples)


@pytest.mark.parametrize(
    ("clients", "called"),
    [
        (DataLoader(TensorDataset(torch.zeros(2, 3), torch.zeros(2))), "DataLoader"),
        ((data(seed=seed) for seed in range(3)), "generator"),
        ({0, 1}, "set"),
    ],
)
def test_clients_without_a_number_each_are_refused(clients: Any, called: str) -> None:
    with pytest.raises(InvalidInput, match=f"clients is a {called}; it must have a length.*pass a list"):
        TorchTrainer(linear(), clients, LocalSGD())


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm1d(3), nn.SyncBatchNorm(3), nn.InstanceNorm1d(3, track_running_stats=True)]
)
def test_running_statistics_are_refused_before_anybody_trains(layer: nn.Module) -> None:
    named = rf"'1' .* is a {type(layer).__name__}.*torch\.nn\.GroupNorm"
    with pytest.raises(InvalidInput, match=named):
        TorchTrainer(nn.Sequential(nn.Linear(3, 3), layer, nn.Linear(3, 2)), [data()], LocalSGD())
    with pytest.raises(InvalidInput, match=f"'itself' .* is a {type(layer).__name__}"):
        TorchTrainer(layer, [data()], LocalSGD())


@pytest.mark.parametrize("layer", [nn.GroupNorm(1, 3), nn.BatchNorm1d(3, track_running_stats=False), nn.LayerNorm(3)])
def test_normalisation_without_memory_is_learned(layer: nn.Module) -> None:
    assert update_of(data(), nn.Sequential(layer, linear())).any()


def in_place(module: Remembers, inputs: Tensor) -> None:
    module.seen += inputs.mean(0).detach()


def anew(module: Remembers, inputs: Tensor) -> None:
    module.seen = module.seen + inputs.mean(0).detach()


def of_another_shape(module: Remembers, inputs: Tensor) -> None:
    module.seen = inputs.detach()


def of_another_type(module: Remembers, inputs: Tensor) -> None:
    module.seen = module.seen.long()


class Remembers(nn.Module):
    """A layer of one's own that notes something of the data in a buffer."""

    seen: Tensor

    def __init__(self, note: Callable[[Remembers, Tensor], None]) -> None:
        super().__init__()
        self.layer, self.note = linear(), note
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(inputs - self.seen)
        if self.training:
            self.note(self, inputs)
        return outputs


@pytest.mark.parametrize("note", [in_place, anew, of_another_shape, of_another_type])
def test_buffers_that_training_changes_are_refused(note: Callable[[Remembers, Tensor], None]) -> None:
    module = nn.Sequential(Remembers(note))
    trainer = TorchTrainer(module, [data()], LocalSGD(steps=1))
    for _ in range(2):  # also a second time, when the buffer would be as the first left it
        with pytest.raises(InvalidInput, match=r"changes the buffer '0\.seen'.*torch\.nn\.GroupNorm"):
            trainer.train(model_vector(module), 0, np.random.default_rng(0))


def test_power_iterations_in_buffers_are_refused() -> None:
    with pytest.raises(InvalidInput, match="changes the buffer"):
        update_of(data(), nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2)))


@pytest.mark.parametrize("note", [in_place, anew, of_another_shape, of_another_type])
def test_buffers_carry_nothing_from_client_to_client(note: Callable[[Remembers, Tensor], None]) -> None:
    """What was noted of one client's data is gone when the next starts, though the first was refused."""
    model = FlatModel(Remembers(note))
    assert isinstance(model.module, Remembers)
    weights = model.vector.numpy().copy()
    model.module(torch.ones(2, 3))
    assert not torch.equal(model.module.seen, torch.zeros(3)) or model.module.seen.dtype != torch.float32
    model.load(weights)
    assert model.module.seen.dtype == torch.float32
    assert torch.equal(model.module.seen, torch.zeros(3))


def test_buffers_that_stay_are_no_hindrance() -> None:
    def nothing(module: Remembers, inputs: Tensor) -> None:
        module.seen = module.seen.clone()

    assert update_of(data(), Remembers(nothing)).any()
