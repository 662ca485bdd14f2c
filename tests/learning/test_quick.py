"""What makes a copy of a module quicker computes the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lowkey.learning import FlatModel, LocalSGD, TorchTrainer, model_vector
from lowkey.learning.quick import FastLinear, channels_last, quicken


def dense_layers() -> tuple[nn.Linear, FastLinear]:
    torch.manual_seed(0)
    plain, fast = nn.Linear(300, 40), FastLinear(300, 40)
    fast.load_state_dict(plain.state_dict())
    return plain, fast


@pytest.mark.parametrize("rows", [0, 1, 10, 500])
@pytest.mark.parametrize("bias", [True, False])
def test_the_fast_layer_and_its_gradients_are_those_of_torch(rows: int, bias: bool) -> None:
    plain, fast = dense_layers()
    if not bias:
        plain.bias, fast.bias = None, None  # type: ignore[assignment]
    inputs = torch.randn(rows, 300, requires_grad=True)
    weights_of_outputs = torch.randn(rows, 40)
    found = []
    for layer in (plain, fast):
        outputs = layer(inputs)
        gradients = torch.autograd.grad((outputs * weights_of_outputs).sum(), [inputs, *layer.parameters()])
        found.append([outputs, *gradients])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-4)


def test_the_fast_layer_is_the_plain_one_in_transforms_and_for_other_shapes() -> None:
    plain, fast = dense_layers()
    inputs = torch.randn(6, 300)

    def loss(layer: nn.Linear) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
        return lambda parameters, row: torch.func.functional_call(layer, parameters, (row[None],)).square().sum()

    one, other = (
        torch.func.vmap(torch.func.grad(loss(layer)), in_dims=(None, 0))(dict(layer.named_parameters()), inputs)
        for layer in (plain, fast)
    )
    torch.testing.assert_close(other, one)
    for shaped in (inputs.reshape(2, 3, 300), inputs.t().contiguous().t()):
        torch.testing.assert_close(fast(shaped), plain(shaped))
    torch.testing.assert_close(fast.double()(inputs.double()), plain.double()(inputs.double()))


def test_the_fast_layer_refuses_second_derivatives() -> None:
    _, fast = dense_layers()
    inputs = torch.randn(2, 300, requires_grad=True)
    (gradient,) = torch.autograd.grad(fast(inputs).square().sum(), inputs, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


class Convolutions(nn.Module):
    """Two layers; ``flat`` makes rows of images."""

    def __init__(self, flat: Callable[[Tensor], Tensor], channels: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        self.flat, self.dropout, self.seen = flat, dropout, list[tuple[int, ...]]()
        self.convolution, self.dense = nn.Conv2d(channels, 8, 3), nn.Linear(8 * 36, 2)

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append(images.stride())
        inner = F.dropout(F.relu(self.convolution(images)), self.dropout, self.training)
        outputs: Tensor = self.dense(self.flat(inner))
        return outputs


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_last_changes_strides_only(channels: int) -> None:
    images = torch.randn(4, channels, 8, 6)
    arranged = channels_last(images)
    assert torch.equal(arranged, images)
    assert arranged.stride() == (48 * channels, 1, 6 * channels, channels)
    assert nn.Conv2d(channels, 8, 3)(arranged).is_contiguous(memory_format=torch.channels_last)


def flattened(images: Tensor) -> Tensor:
    return images.flatten(1)


def viewed(images: Tensor) -> Tensor:
    return images.view(len(images), -1)


def updates(module: Convolutions, channels: int) -> tuple[list[np.ndarray], tuple[int, ...]]:
    """What clients 0, 1 and again 0 learn, and the strides of the last images that the module saw."""
    rng = np.random.default_rng(0)
    clients = [(rng.random((10, channels, 8, 8), np.float32), rng.integers(0, 2, 10)) for _ in range(2)]
    trainer = TorchTrainer(module, clients, LocalSGD(steps=2, batch_size=10, learning_rate=0.1))
    weights = model_vector(module)
    found = [trainer.train(weights, client, np.random.default_rng(1)).update for client in (0, 1, 0)]
    assert trainer._model is not None
    copy: Convolutions = trainer._model.module  # type: ignore[assignment]
    return found, copy.seen[-1]


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_arranged_where_the_module_can_take_it(channels: int) -> None:
    """A module that calls ``view`` gets images as they are, and learns the same."""
    one, other = Convolutions(flattened, channels), Convolutions(viewed, channels)
    other.load_state_dict(one.state_dict())
    (arranged, strides), (plain, others) = updates(one, channels), updates(other, channels)
    assert strides == (64 * channels, 1, 8 * channels, channels) != others
    np.testing.assert_allclose(arranged, plain, rtol=1e-3, atol=1e-5)


def test_finding_out_takes_nothing_from_the_seeded_stream() -> None:
    first, _, again = updates(Convolutions(flattened, dropout=0.5), 3)[0]
    np.testing.assert_array_equal(first, again)


def test_only_large_plain_layers_of_the_copy_are_exchanged() -> None:
    class Mine(nn.Linear):
        pass

    module = nn.Sequential(nn.Linear(10, 10), nn.Linear(1000, 200), Mine(1000, 200))
    copy = FlatModel(module).module
    assert [type(layer) for layer in copy.children()] == [nn.Linear, FastLinear, Mine]
    assert [type(layer) for layer in module.children()] == [nn.Linear, nn.Linear, Mine]
    assert quicken(module) is module
