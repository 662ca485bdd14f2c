"""Pieces of models: a dense layer that takes sparse rows, and the first weights that the paper used."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lowkey.learning.datasets import SparseBatch


class SparseLinear(nn.Linear):
    """A dense layer that also takes a :class:`SparseBatch`, and then computes only with numbers that are not zero."""

    def forward(self, inputs: Tensor | SparseBatch) -> Tensor:
        if isinstance(inputs, Tensor):
            return super().forward(inputs)
        starts, columns, values = inputs
        table = self.weight.t().contiguous()
        outputs = F.embedding_bag(
            columns, table, starts, mode="sum", per_sample_weights=values, include_last_offset=True
        )  # a weighted sum of rows of the table: the quickest of three ways, and it needs no MKL
        return outputs if self.bias is None else outputs + self.bias


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
