"""Networks of the paper, with the initial weights it used."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lowkey.learning.datasets import SparseBatch


class FashionCNN(nn.Module):
    """Two 5×5 convolutions, each with ReLU and 2×2 max pooling, and two dense layers; for 28×28 images in [0, 1].

    With the default widths it is the paper's network of exactly 1,663,370 parameters.
    """

    def __init__(self, filters: tuple[int, int] = (32, 64), hidden: int = 512, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, filters[0], 5, padding=2)
        self.conv2 = nn.Conv2d(filters[0], filters[1], 5, padding=2)
        self.dense1 = nn.Linear(filters[1] * 7 * 7, hidden)
        self.dense2 = nn.Linear(hidden, classes)

    def forward(self, images: Tensor) -> Tensor:
        # Channels last, the faster layout on CPU; with one channel PyTorch tells it by the strides alone.
        x = images.reshape(-1, 28, 28, 1).permute(0, 3, 1, 2)
        x = F.relu(F.max_pool2d(self.conv1(x), 2))  # ReLU and maximum commute; this way round is cheaper
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.dense1(x.flatten(1)))
        logits: Tensor = self.dense2(x)
        return logits


class SparseLinear(nn.Linear):
    """A dense layer that also takes a :class:`SparseBatch`, and then does work for what is not zero alone."""

    def forward(self, inputs: Tensor | SparseBatch) -> Tensor:
        if isinstance(inputs, Tensor):
            return super().forward(inputs)
        starts, columns, values = inputs
        table = self.weight.t().contiguous()
        outputs = F.embedding_bag(
            columns, table, starts, mode="sum", per_sample_weights=values, include_last_offset=True
        )  # a weighted sum of rows of the table: of three ways the quickest, and needs no MKL
        return outputs if self.bias is None else outputs + self.bias


class MortalityMLP(nn.Sequential):
    """Two hidden layers with ReLU and dropout, and the logit of dying in hospital; takes sparse rows as they are.

    With the paper's 7,280 inputs it has exactly 1,496,601 parameters.
    """

    takes_sparse_rows = True

    def __init__(self, inputs: int, hidden: int = 200, dropout: float = 0.5) -> None:
        super().__init__(
            SparseLinear(inputs, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, 1),
        )


def keras_initialise(module: nn.Module, rng: np.random.Generator) -> nn.Module:
    """Glorot-uniform weights and zero biases in every convolution and dense layer, as Keras starts them.

    References
    ----------
    Glorot and Bengio (2010), Eq. (16). The paper's clipping norms follow from this choice: with PyTorch's own
    initial weights first updates are of another size.
    """
    for layer in module.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            weight = layer.weight.data
            receptive = weight[0, 0].numel() if weight.ndim > 2 else 1
            limit = np.sqrt(6.0 / (receptive * (weight.shape[0] + weight.shape[1])))
            weight.copy_(torch.from_numpy(rng.uniform(-limit, limit, tuple(weight.shape)).astype(np.float32)))
            if layer.bias is not None:
                layer.bias.data.zero_()
    return module
