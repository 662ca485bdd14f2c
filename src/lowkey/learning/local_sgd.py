"""Local training: a few steps of plain SGD on one client's data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor, nn

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.learning.datasets import ClientDatasets, as_rows, dense
from lowkey.learning.flat import FlatModel, layer_sizes
from lowkey.learning.objective import CLASSIFICATION, Objective
from lowkey.protocols import LocalUpdate
from lowkey.types import ClientId, FloatArray

Batches: TypeAlias = Literal["epochs", "independent"]


@dataclass(frozen=True, kw_only=True)
class LocalSGD:
    """What a client does with the common model in a round.

    Parameters
    ----------
    steps : SGD steps, T_gd.
    batch_size : examples per step; a client with fewer uses all it has in every step.
    learning_rate : η.
    batches : "epochs" goes through the data in random order before any example repeats; "independent" draws every
        batch anew, with replacement, which reproduces the norms that the paper clips to.
    """

    steps: int = 5
    batch_size: int = 10
    learning_rate: float = 0.1
    batches: Batches = "epochs"

    def __post_init__(self) -> None:
        if self.batches not in get_args(Batches):
            raise InvalidInput(
                f"training.batches is {self.batches!r}; it must be one of {', '.join(get_args(Batches))}"
            )
        checks.at_least("training.local_steps", self.steps, 1)
        checks.at_least("training.batch_size", self.batch_size, 1)
        checks.positive("training.learning_rate", self.learning_rate)


class TorchTrainer:
    """Local SGD for any ``torch.nn.Module`` and any data; satisfies :class:`lowkey.protocols.Trainer`.

    Parameters
    ----------
    module : the model; it is copied, never changed.
    clients : one dataset per client.
    sgd : steps, batch size and rate.
    objective : loss, and which examples a round uses; by default cross-entropy of all.
    device : where to compute, such as "cpu" or "cuda".
    """

    def __init__(
        self,
        module: nn.Module,
        clients: ClientDatasets,
        sgd: LocalSGD,
        *,
        objective: Objective = CLASSIFICATION,
        device: str = "cpu",
    ) -> None:
        self._module, self._clients, self._sgd, self._objective, self._device = module, clients, sgd, objective, device
        self._model: FlatModel | None = None  # made where it is used: each worker process has its own
        self.num_clients = len(clients)
        self.num_coordinates = sum(layer_sizes(module))

    def limit_threads(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def train(self, weights: FloatArray, client: ClientId, rng: np.random.Generator) -> LocalUpdate:
        """Change of the model after the local steps, starting from ``weights``."""
        if self._model is None:
            self._model = FlatModel(self._module, self._device)
        model = self._model
        try:
            inputs, targets = as_rows(self._clients[client], self._device)
        except InvalidInput as error:
            raise InvalidInput(f"data of client {client}: {error}") from error
        num_examples = len(targets)
        if self._objective.choice is not None:
            chosen = self._objective.choice(targets.cpu().numpy(), rng)
            inputs, targets = inputs[chosen], targets[chosen]
        inputs = dense(inputs, self._device)
        model.load(weights)
        model.module.train()
        with _seeded(int(rng.integers(2**63)), self._device):
            for batch in _batches(len(inputs), self._sgd, rng):
                whole = batch is None
                outputs = model.module(inputs if whole else inputs[batch])
                loss = self._objective.loss(outputs, targets if whole else targets[batch])
                gradients = torch.autograd.grad(loss, model.parameters, allow_unused=True)
                with torch.no_grad():
                    for parameter, gradient in zip(model.parameters, gradients, strict=True):
                        if gradient is not None:
                            parameter.sub_(gradient, alpha=self._sgd.learning_rate)
        update = model.vector.cpu().numpy() - weights
        return LocalUpdate(update, num_examples)


@contextmanager
def _seeded(seed: int, device: str) -> Iterator[None]:
    """Dropout repeats with the seed and leaves the caller's stream alone.

    On the CPU its one generator is seeded: ``torch.manual_seed`` would also note the call for every other device, with
    a stack trace, which takes as long as a step of a small model.
    """
    before = torch.get_rng_state()
    (torch.default_generator.manual_seed if device == "cpu" else torch.manual_seed)(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)


def _batches(size: int, sgd: LocalSGD, rng: np.random.Generator) -> list[Tensor | None]:
    """Index of each step's examples; None stands for all of them."""
    if sgd.batches == "independent":
        drawn = rng.integers(size, size=(sgd.steps, min(size, sgd.batch_size)))
        return list(torch.from_numpy(drawn))
    if size <= sgd.batch_size:
        return [None] * sgd.steps
    per_epoch = size // sgd.batch_size
    epochs = -(-sgd.steps // per_epoch)
    orders = [rng.permutation(size)[: per_epoch * sgd.batch_size] for _ in range(epochs)]
    index = torch.from_numpy(np.concatenate(orders)).reshape(-1, sgd.batch_size)
    return list(index[: sgd.steps])
