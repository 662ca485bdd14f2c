"""Loss and metrics of a model vector on held-out data."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from lowkey.learning.datasets import Examples, SparseBatch, in_batches
from lowkey.learning.flat import FlatModel
from lowkey.learning.heads import RiskHead
from lowkey.learning.metrics import risk_metrics
from lowkey.learning.objective import CLASSIFICATION, Objective
from lowkey.types import Evaluation, FloatArray

_EXAMPLES, _SPARSE_ROWS = 50, 4000  # per batch, by measurement: of images and convolutions, of rows and dense layers


class TorchEvaluator:
    """Satisfies :class:`lowkey.protocols.Evaluator` for classifiers.

    By default it measures accuracy and cross-entropy; ``objective`` may have others. On the CPU, batches go to one
    thread per core, each computing alone: quicker than cores that share every batch, and kind to a busy machine, on
    which the latter wait for each other.

    Parameters
    ----------
    module : torch.nn.Module
        The model; it is copied, never changed. A module whose attribute ``takes_sparse_rows`` is true gets sparse
        inputs as :class:`SparseBatch`; any other module gets tensors.
    test : Examples
        Held-out data.
    objective : Objective
        Loss and metrics.
    device : str
        Where to compute, such as "cpu" or "cuda".
    batch_size : int or None
        Examples per batch. None takes 4,000 for a module that takes sparse rows, 50 for others, where an example may be
        an image.
    """

    def __init__(
        self,
        module: nn.Module,
        test: Examples,
        *,
        objective: Objective = CLASSIFICATION,
        device: str = "cpu",
        batch_size: int | None = None,
    ) -> None:
        self._model, self._objective = FlatModel(module, device), objective
        sparse = bool(getattr(module, "takes_sparse_rows", False))
        size = (_SPARSE_ROWS if sparse else _EXAMPLES) if batch_size is None else batch_size
        self._batches, self._targets = in_batches(test, size, device, sparse=sparse)
        self._threads = (os.cpu_count() or 1) if device == "cpu" else 1

    def __call__(self, weights: FloatArray) -> Evaluation:
        self._model.load(weights)
        self._model.module.eval()
        with ThreadPoolExecutor(self._threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            outputs = torch.cat(list(pool.map(self._outputs, self._batches)))
        self._objective.check(outputs, self._targets)
        loss = float(self._objective.loss(outputs, self._targets))
        found = {**self._objective.metrics(outputs, self._targets), "loss": loss}
        head = self._model.module
        if isinstance(head, RiskHead) and head.is_calibrated:
            found |= risk_metrics(outputs, head.recalibrated(outputs).detach(), self._targets)
        return found

    @torch.inference_mode()
    def _outputs(self, batch: Callable[[], Tensor | SparseBatch]) -> Tensor:
        outputs: Tensor = self._model.module(self._model.arranged(batch()))
        return outputs
