"""Frozen modules: their outputs, their digest, and modules whose features would change between clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lowkey.errors import InvalidInput
from lowkey.features import Backbone, Chain, UnitNorm
from lowkey.types import FloatArray


def encoder(seed: int = 0, normalise: bool = True) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4) if normalise else nn.Identity(), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*layers)


def images(count: int, side: int = 6) -> FloatArray:
    return np.random.default_rng(0).random((count, 1, side, side), np.float32)


def test_features_are_the_outputs_in_evaluation_mode_in_batches() -> None:
    module = encoder()
    backbone = Backbone(module, batch_size=3)
    with torch.no_grad():
        expected = module.eval()(torch.from_numpy(images(8))).flatten(1).numpy()
    np.testing.assert_allclose(backbone(images(8)), expected, atol=1e-6)
    assert backbone.width((1, 6, 6)) == expected.shape[1] == 64
    assert backbone(images(0)).shape == (0, 64)
    assert Chain((backbone, UnitNorm())).width((1, 6, 6)) == 64


def test_the_module_is_copied_and_left_as_it_was() -> None:
    module = encoder()
    backbone = Backbone(module)
    before = backbone(images(2))
    assert module.training
    assert all(parameter.requires_grad for parameter in module.parameters())
    nn.init.zeros_(module[0].weight)  # type: ignore[arg-type]
    np.testing.assert_array_equal(backbone(images(2)), before)


def test_digests_follow_classes_settings_and_every_number() -> None:
    one = Backbone(encoder()).digest
    assert one == Backbone(encoder(), batch_size=7).digest == Backbone(encoder().eval()).digest
    others = [encoder(seed=1), encoder(normalise=False), encoder(), encoder(), encoder()]
    with torch.no_grad():
        others[2][0].bias[1] += 1e-6  # type: ignore[index, operator]
        others[3][1].running_var[0] += 1e-6  # type: ignore[index, operator]
    others[4][2] = nn.LeakyReLU()
    assert len({one, *(Backbone(module).digest for module in others)}) == 6


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen: Tensor = self.seen + 1
        return inputs


def test_a_buffer_that_is_not_saved_is_in_the_digest() -> None:
    one, other = Counting(), Counting()
    other.seen = other.seen + 1
    assert Backbone(one).digest != Backbone(other).digest


def test_a_module_that_changes_a_buffer_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidInput, match="backbone Counting changed its parameter or buffer 'seen'"):
        Backbone(Counting())(np.ones((2, 3)))


class Always(nn.BatchNorm1d):
    """Batch normalisation that does not hear of evaluation mode."""

    def train(self, mode: bool = True) -> Always:
        return super().train(True)


def test_a_layer_that_stays_in_training_mode_is_refused() -> None:
    with pytest.raises(InvalidInput, match="layer '1' of the backbone, a Always, stays in training mode after eval"):
        Backbone(nn.Sequential(nn.Linear(3, 3), Always(3)))


def test_batch_normalisation_without_statistics_is_refused() -> None:
    with pytest.raises(InvalidInput, match="a BatchNorm1d without running statistics"):
        Backbone(nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False)))
    Backbone(nn.InstanceNorm1d(3))  # looks at one row alone


class Drops(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return F.dropout(inputs, 0.5, training=True)


class Centres(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs - inputs.mean(0)


@pytest.mark.parametrize("module", [Drops(), Centres()], ids=["random", "of the batch"])
def test_a_row_that_is_another_alone_is_refused(module: nn.Module) -> None:
    torch.manual_seed(0)
    with pytest.raises(InvalidInput, match="gives row 0 other features when it is computed alone"):
        Backbone(module)(np.random.default_rng(0).random((5, 40), np.float32))


class Wrong(nn.Module):
    def __init__(self, outputs: Any) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, inputs: Tensor) -> Any:
        return self.outputs(inputs)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (lambda x: x.sum(), r"made shape \(\) of 1 row"),
        (lambda x: (x, x), r"made tuple of 1 row"),
        (lambda x: x.T, r"made shape \(3, 1\) of 1 row"),
        (lambda x: x / (x - 1), r"row 1 of the output of the map 'backbone' holds inf"),
    ],
    ids=["number", "tuple", "turned", "infinite"],
)
def test_outputs_must_be_finite_rows(outputs: Any, message: str) -> None:
    rows = np.zeros((2, 3), np.float32)
    rows[1, 0] = 1
    with pytest.raises(InvalidInput, match=message):
        Backbone(Wrong(outputs))(rows)


def test_rows_of_a_wrong_shape_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"backbone Linear cannot take rows of shape \(4,\): .*"):
        Backbone(nn.Linear(3, 2))(np.ones((2, 4)))
    with pytest.raises(InvalidInput, match=r"cannot take rows of shape \(4,\)"):
        Backbone(nn.Linear(3, 2)).width(4)


def test_what_cannot_be_a_backbone_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"made of a torch.nn.Module, not of a function"):
        Backbone(encoder)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="'weight' of the backbone has no shape yet"):
        Backbone(nn.LazyLinear(3))
    broken = nn.Linear(2, 2)
    nn.init.constant_(broken.weight, float("nan"))
    with pytest.raises(InvalidInput, match="'weight' of the backbone holds NaN"):
        Backbone(broken)
