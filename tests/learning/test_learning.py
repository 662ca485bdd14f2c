"""Local SGD, models as vectors, and evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lowkey.errors import InvalidInput
from lowkey.learning import (
    FlatModel,
    LocalSGD,
    Objective,
    TorchEvaluator,
    TorchTrainer,
    keras_initialise,
    load_vector,
    model_vector,
)
from lowkey.learning.local_sgd import _batches


def data(size: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(size, 3)).astype(np.float32), rng.integers(0, 2, size)


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def test_keras_initialisation() -> None:
    """Uniform on ±√(6 / (fan in + fan out)), biases zero; false alarm of the bounds nil, of the spread below 1e-6."""
    convolutions, dense = (nn.Conv2d(1, 32, 5), nn.Conv2d(32, 64, 5)), (nn.Linear(3136, 512), nn.Linear(512, 10))
    module: Any = keras_initialise(nn.Sequential(*convolutions, *dense), np.random.default_rng(0))
    for layer, fan in zip(module, (25 * (1 + 32), 25 * (32 + 64), 3136 + 512, 512 + 10), strict=True):
        limit = (6 / fan) ** 0.5
        assert layer.weight.abs().max() <= limit
        assert layer.weight.std().item() == pytest.approx(limit / 3**0.5, rel=0.1)
        assert not layer.bias.any()


def test_local_sgd_equals_plain_torch() -> None:
    module, (x, y) = linear(), data()
    trainer = TorchTrainer(module, [(x, y)], LocalSGD(steps=4, batch_size=50, learning_rate=0.3))
    weights = model_vector(module)
    update = trainer.train(weights, 0, np.random.default_rng(0))
    reference = linear()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.3)
    for _ in range(4):
        optimizer.zero_grad()
        F.cross_entropy(reference(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        optimizer.step()
    np.testing.assert_allclose(weights + update.update, model_vector(reference), atol=1e-6)
    assert update.num_examples == 12
    np.testing.assert_array_equal(model_vector(module), weights)


def test_batches_cover_an_epoch_before_any_example_repeats() -> None:
    seen: list[int] = []

    class Spy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.extend(x[:, 0].int().tolist())
            outputs: torch.Tensor = self.layer(x * 0)
            return outputs

    x, y = np.arange(12, dtype=np.float32)[:, None], np.zeros(12, np.int64)
    module = Spy()
    TorchTrainer(module, [(x, y)], LocalSGD(steps=4, batch_size=4)).train(
        model_vector(module), 0, np.random.default_rng(0)
    )
    assert sorted(seen[:12]) == list(range(12))
    assert len(seen) == 16
    assert seen[:12] != list(range(12))


def test_independent_batches_are_drawn_with_replacement() -> None:
    """Ten draws of ten out of ten miss a third of the examples; never missing one has odds below 1e-30."""
    sgd = LocalSGD(steps=10, batch_size=10, batches="independent")
    drawn = [batch for batch in _batches(10, sgd, np.random.default_rng(0)) if batch is not None]
    assert [len(batch) for batch in drawn] == [10] * 10
    distinct = [len(set(batch.tolist())) for batch in drawn]
    assert 5.0 < np.mean(distinct) < 7.6  # 10 (1 − 0.9¹⁰) = 6.5 on average
    of_three = _batches(3, sgd, np.random.default_rng(0))[0]
    assert of_three is not None
    assert len(of_three) == 3
    wrong: Any = "magic"
    with pytest.raises(InvalidInput, match="batches"):
        LocalSGD(batches=wrong)


def test_training_repeats_with_its_generator_and_leaves_torchs_alone() -> None:
    module = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    trainer = TorchTrainer(module, [data()], LocalSGD(steps=3, batch_size=4))
    weights = model_vector(module)
    torch.manual_seed(1)
    first = trainer.train(weights, 0, np.random.default_rng(5)).update
    after = torch.rand(1)
    again = trainer.train(weights, 0, np.random.default_rng(5)).update
    other = trainer.train(weights, 0, np.random.default_rng(6)).update
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    torch.manual_seed(1)
    assert torch.rand(1) == after


def test_frozen_and_unused_parameters() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.frozen, self.unused = nn.Linear(3, 2), nn.Linear(2, 2), nn.Linear(4, 4)
            self.frozen.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            outputs: torch.Tensor = self.frozen(self.used(x))
            return outputs

    module = Odd()
    trainer = TorchTrainer(module, [data()], LocalSGD(steps=2))
    update = trainer.train(model_vector(module), 0, np.random.default_rng(0)).update
    assert trainer.num_coordinates == update.size == 8 + 20
    assert update[:8].all()
    assert not update[8:].any()


def test_unusable_models_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no trainable"):
        FlatModel(nn.ReLU())
    with pytest.raises(InvalidInput, match="float32"):
        FlatModel(nn.Linear(2, 2).double())
    with pytest.raises(InvalidInput, match="8 trainable"):
        load_vector(linear(), np.zeros(7, np.float32))


@pytest.mark.parametrize("device", ["abacus", "cuda:99"])
def test_unusable_device_is_refused(device: str) -> None:
    with pytest.raises(InvalidInput, match=r"runtime\.device"):
        FlatModel(linear(), device)


def test_evaluation_by_hand() -> None:
    module = nn.Linear(1, 2, bias=False)
    load_vector(module, np.array([1.0, -1.0], np.float32))  # class 0 for positive inputs
    x, y = np.array([[2.0], [-3.0], [1.0], [-1.0]], np.float32), np.array([0, 1, 1, 1])
    found = TorchEvaluator(module, (x, y), batch_size=3)(model_vector(module))
    assert found["accuracy"] == 0.75
    losses = np.log1p(np.exp([-4.0, -6.0, 2.0, -2.0]))
    assert found["loss"] == pytest.approx(losses.mean(), rel=1e-5)


def test_evaluation_of_a_single_logit() -> None:
    module = nn.Linear(1, 1, bias=False)
    x, y = np.array([[1.0], [-1.0]], np.float32), np.array([[1.0], [1.0]], np.float32)
    evaluator = TorchEvaluator(module, (x, y), objective=Objective(loss=F.binary_cross_entropy_with_logits))
    assert evaluator(np.array([1.0], np.float32))["accuracy"] == 0.5
