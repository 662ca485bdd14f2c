"""Accuracy and loss of a model vector on held-out data."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lowkey.learning.datasets import Examples, as_tensors
from lowkey.learning.flat import FlatModel
from lowkey.learning.local_sgd import Loss
from lowkey.types import FloatArray


class TorchEvaluator:
    """Satisfies :class:`lowkey.protocols.Evaluator` for classifiers.

    Outputs with one column per class are compared by their largest; a single column is taken as the logit of class 1.
    On the CPU, batches go to one thread per core, each computing alone: quicker than cores that share every batch, and
    kind to a busy machine, on which the latter wait for each other.
    """

    def __init__(
        self,
        module: nn.Module,
        test: Examples,
        *,
        loss: Loss = F.cross_entropy,
        device: str = "cpu",
        batch_size: int = 50,
    ) -> None:
        self._model, self._loss, self._batch_size = FlatModel(module, device), loss, batch_size
        self._inputs, self._targets = as_tensors(test, device)
        self._threads = (os.cpu_count() or 1) if device == "cpu" else 1

    def __call__(self, weights: FloatArray) -> dict[str, float]:
        self._model.load(weights)
        self._model.module.eval()
        batches = torch.split(self._inputs, self._batch_size)
        with ThreadPoolExecutor(self._threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            outputs = torch.cat(list(pool.map(self._outputs, batches)))
        correct = (_predicted(outputs) == self._targets.reshape(len(outputs))).float().mean()
        return {"accuracy": float(correct), "loss": float(self._loss(outputs, self._targets))}

    @torch.inference_mode()
    def _outputs(self, batch: Tensor) -> Tensor:
        outputs: Tensor = self._model.module(batch)
        return outputs


def _predicted(outputs: Tensor) -> Tensor:
    if outputs.ndim == 2 and outputs.shape[1] > 1:
        return outputs.argmax(1)
    return (outputs.reshape(-1) > 0).long()
