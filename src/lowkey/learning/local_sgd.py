"""Local training: a few steps of plain SGD on one client's data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from lowkey.errors import InvalidInput
from lowkey.learning.datasets import ClientDatasets, as_rows, dense, persons_of
from lowkey.learning.flat import FlatModel, layer_sizes, require_fixed_buffers
from lowkey.learning.objective import CLASSIFICATION, Objective
from lowkey.learning.settings import LocalSGD
from lowkey.protocols import LocalUpdate
from lowkey.types import ClientId, FloatArray

_BLOCK = 2**24  # numbers of the gradients of rows that are held at once


class TorchTrainer:
    """Local SGD for any ``torch.nn.Module`` and any data; satisfies :class:`lowkey.protocols.Trainer`.

    Parameters
    ----------
    module : torch.nn.Module
        The model; it is copied, never changed. Modules that keep statistics of the data they see are refused.
    clients : ClientDatasets
        One dataset per client.
    sgd : LocalSGD
        Steps, batch size and rate.
    objective : Objective
        Loss, and which examples a round uses; by default cross-entropy on all examples.
    device : str
        Where to compute, such as "cpu" or "cuda".
    by_row : bool
        Whether ``train_persons`` takes every row for a person, whatever ids there are.
    """

    def __init__(
        self,
        module: nn.Module,
        clients: ClientDatasets,
        sgd: LocalSGD,
        *,
        objective: Objective = CLASSIFICATION,
        device: str = "cpu",
        by_row: bool = False,
    ) -> None:
        require_fixed_buffers(module)
        if not hasattr(clients, "__len__") or not hasattr(clients, "__getitem__"):
            raise InvalidInput(
                f"clients is a {type(clients).__name__}; it must have a length and give the dataset of each client by "
                "its number: pass a list"
            )
        self._module, self._clients, self._sgd, self._objective, self._device = module, clients, sgd, objective, device
        self._by_row = by_row
        self._model: FlatModel | None = None  # made on first use, since each worker process has its own
        self.num_clients = len(clients)
        self.num_coordinates = sum(layer_sizes(module))

    def limit_threads(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def train(self, weights: FloatArray, client: ClientId, rng: np.random.Generator) -> LocalUpdate:
        """Change of the model after the local steps, starting from ``weights``.

        Raises
        ------
        CannotContribute
            When the client has no data, or lacks examples of one class that it must balance.
        """
        model = self._flat
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
        first = True
        with _seeded(int(rng.integers(2**63)), self._device):
            for batch in _batches(len(inputs), self._sgd, rng):
                whole = batch is None
                outputs = model.module(model.arranged(inputs if whole else inputs[batch]))
                if first:
                    self._objective.check(outputs, targets)
                    first = False
                loss = self._objective.loss(outputs, targets if whole else targets[batch])
                gradients = torch.autograd.grad(loss, model.parameters, allow_unused=True)
                with torch.no_grad():
                    for parameter, gradient in zip(model.parameters, gradients, strict=True):
                        if gradient is not None:
                            parameter.sub_(gradient, alpha=self._sgd.learning_rate)
        model.require_unchanged_buffers()
        update = model.vector.cpu().numpy() - weights
        return LocalUpdate(update, num_examples)

    def train_persons(self, weights: FloatArray, client: ClientId, rng: np.random.Generator) -> Iterator[FloatArray]:
        """Minus the rate times the gradient of each person's loss, summed over its rows; see :class:`PersonTrainer`.

        The loss of a row is that of a batch of this row alone.
        """
        model, examples = self._flat, self._clients[client]
        inputs, targets = as_rows(examples, self._device)
        model.load(weights)
        model.module.train()
        parameters = {name: p.detach() for name, p in model.module.named_parameters()}
        learned = {name for name, p in model.module.named_parameters() if p.requires_grad}
        fixed = {name: p for name, p in parameters.items() if name not in learned} | dict(model.module.named_buffers())

        def loss(chosen: dict[str, Tensor], row: Tensor, target: Tensor) -> Tensor:
            outputs = torch.func.functional_call(model.module, chosen | fixed, (row[None],))
            return self._objective.loss(outputs, target[None])

        one_by_one = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0), randomness="different")
        start = {name: parameters[name] for name in parameters if name in learned}
        seed, at_once = int(rng.integers(2**63)), max(1, _BLOCK // self.num_coordinates)
        with torch.no_grad():
            largest = self._objective.largest_label(model.module.eval()(dense(inputs[:1], self._device)))
            model.module.train()
        for number, persons in enumerate(persons_of(examples, by_row=self._by_row).blocks(at_once)):
            rows, labels = dense(inputs[persons.rows], self._device), targets[torch.from_numpy(persons.rows)]
            known = torch.ones(len(labels), dtype=torch.bool) if largest is None else _known(labels, largest)
            with _seeded((seed + number) % 2**63, self._device):
                gradients = one_by_one(start, rows, torch.where(known, labels, torch.zeros_like(labels)))
            each = torch.cat([gradients[name].reshape(len(rows), -1) for name in start], 1)
            each[~known] = torch.nan
            updates = np.add.reduceat(each.cpu().numpy(), persons.starts[:-1], axis=0)
            yield np.float32(-self._sgd.learning_rate) * updates
        model.require_unchanged_buffers()

    @property
    def _flat(self) -> FlatModel:
        if self._model is None:
            self._model = FlatModel(self._module, self._device)
        return self._model


def _known(labels: Tensor, largest: int) -> Tensor:
    """Which labels lie in 0 … ``largest``."""
    return (labels >= 0) & (labels <= largest) & (labels == labels.round())


@contextmanager
def _seeded(seed: int, device: str) -> Iterator[None]:
    """Make dropout repeat with the seed, without touching the caller's random stream.

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
