"""Convex heads: softmax and logistic regression, trained in closed form by many clients at once.

A client's gradient is two products of matrices: scores X·Wᵀ, and Rᵀ·X with R the difference of predicted and true
classes. A client with fewer examples than features takes all steps after the first in the space of its examples: there
the weights are W + Aᵀ·X, so the scores follow from those of the first step and X·Xᵀ, and a step costs next to nothing.

Clients with equally many examples are stacked. NumPy multiplies each matrix of a stack by itself, so that a client gets
the same bits whoever is in its batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController
from torch import nn

from lowkey import checks
from lowkey.errors import CannotContribute, InvalidInput
from lowkey.learning.datasets import ClientDatasets, as_arrays, persons_of
from lowkey.learning.flat import layer_sizes
from lowkey.learning.metrics import line_moments, line_of_moments, logistic_loss, row_moments
from lowkey.learning.models import SparseLinear
from lowkey.learning.objective import CLASSIFICATION, Objective, require_labels
from lowkey.learning.settings import FullGradient
from lowkey.protocols import LocalUpdate, ModelShape
from lowkey.types import ClientId, FloatArray

_BLOCK = 2**20  # numbers of the updates of persons that are held at once


class LinearHead(SparseLinear):
    """Softmax regression, or logistic regression where there is one output; its first weights are zeros.

    Parameters
    ----------
    features : int
        Numbers of an example; inputs with more axes are flattened.
    outputs : int
        Number of classes; 1 for a yes or no, whose logit is the output.
    bias : bool
        Whether there is a number for each output that no feature is multiplied by.
    """

    takes_sparse_rows = True

    def __init__(self, features: int, outputs: int, *, bias: bool = True) -> None:
        checks.at_least("features", features, 1)
        checks.at_least("outputs", outputs, 1)
        super().__init__(features, outputs, bias=bias)

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, inputs: Any) -> torch.Tensor:
        return super().forward(inputs.flatten(1) if isinstance(inputs, torch.Tensor) else inputs)


class CentredHead(LinearHead):
    """A head on features that share a mean: it subtracts a centre, gives every row the norm 1, and appends a constant.

    The centre is learned first, as the mean of the clients' features, in a release of its own; then the weights are.

    Parameters
    ----------
    features : int
        Numbers of an example, whose norm is at most 1.
    outputs : int
        Number of classes; 1 for a yes or no.
    constant : float
        What is appended to every row; its weights are the biases.
    """

    takes_sparse_rows = False

    def __init__(self, features: int, outputs: int, *, constant: float = 0.3) -> None:
        super().__init__(features + 1, outputs, bias=False)
        weight = self.weight
        del self.weight
        self.centre, self.weight = nn.Parameter(torch.zeros(features)), weight  # in this order in the model vector
        self.constant = constant

    def forward(self, inputs: Any) -> torch.Tensor:
        rows = F.normalize(inputs.flatten(1) - self.centre)
        return F.linear(F.pad(rows, (0, 1), value=self.constant), self.weight)


class RiskHead(LinearHead):
    """A head for a rare event: its output says which cases stand out, and slope and intercept turn it into a risk.

    The weights may be learned from balanced classes. Slope and intercept fit the classes as they are: rounds of their
    own (``schedule.calibration``) add up what one step of Newton's method needs, see :func:`line_moments`.

    Parameters
    ----------
    features : int
        Numbers of an example.
    bias : bool
        Whether there is a number that no feature is multiplied by.
    frequency : float
        About how often the event happens, as the literature says: calibration starts from there.
    """

    def __init__(self, features: int, *, bias: bool = True, frequency: float = 0.05) -> None:
        super().__init__(features, 1, bias=bias)
        checks.fraction("frequency", frequency, include_one=False)
        self.moments = nn.Parameter(torch.zeros(5))  # the last part of the model vector
        self.start = (1.0, math.log(frequency / (1 - frequency)))

    @property
    def is_calibrated(self) -> bool:
        """Whether slope and intercept were fitted."""
        return bool(self.moments.any())

    @property
    def line(self) -> tuple[float, float]:
        """Slope and intercept."""
        if not self.is_calibrated:
            return self.start
        slope, intercept = line_of_moments(self.moments.detach().double().numpy(force=True), np.array(self.start))
        return float(slope), float(intercept)

    def recalibrated(self, scores: torch.Tensor) -> torch.Tensor:
        """The logits of risks, from the outputs of the head."""
        slope, intercept = self.line
        return slope * scores + intercept

    def risk(self, inputs: Any) -> torch.Tensor:
        """How likely the event is, for every example."""
        return torch.sigmoid(self.recalibrated(self(inputs)))


def model_shape(module: nn.Module) -> ModelShape:
    """Sizes of the parts of a model."""
    return ModelShape(
        tuple(layer_sizes(module)),
        centre=module.centre.numel() if isinstance(module, CentredHead) else 0,
        calibration=module.moments.numel() if isinstance(module, RiskHead) else 0,
    )


class HeadTrainer:
    """Gradient descent on a :class:`LinearHead`; satisfies :class:`lowkey.protocols.BatchTrainer`.

    Parameters
    ----------
    head : LinearHead
        The model; only its shape is used.
    clients : ClientDatasets
        One dataset per client; rows may be a SciPy sparse array.
    training : FullGradient
        Steps, rate and penalty.
    objective : Objective
        Its loss must be cross-entropy, or the logistic loss for one output.
    by_row : bool
        Whether ``train_persons`` takes every row for a person, whatever ids there are.
    """

    def __init__(
        self,
        head: LinearHead,
        clients: ClientDatasets,
        training: FullGradient,
        *,
        objective: Objective = CLASSIFICATION,
        by_row: bool = False,
    ) -> None:
        fitting = logistic_loss if head.out_features == 1 else F.cross_entropy
        if objective.loss is not fitting:
            raise InvalidInput(
                f"a head with {head.out_features} output(s) is trained by {fitting.__name__}, but the objective has "
                f"the loss {getattr(objective.loss, '__name__', objective.loss)!r}; train it by LocalSGD instead"
            )
        self._clients, self._training, self._choice, self._by_row = clients, training, objective.choice, by_row
        self._features, self._outputs, self._bias = head.in_features, head.out_features, head.bias is not None
        shape = model_shape(head)
        self._centre, self._constant = shape.centre, getattr(head, "constant", 0.0)
        self._start = np.array(head.start) if isinstance(head, RiskHead) else None
        self.num_clients = len(clients)
        self._size = self._outputs * (self._features + self._bias)
        self.num_coordinates = shape.size

    def limit_threads(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def train(self, weights: FloatArray, client: ClientId, rng: np.random.Generator) -> LocalUpdate:
        """Change of the model after the local steps, starting from ``weights``."""
        (update,) = self.train_batch(weights, [client], lambda _client: rng)
        if isinstance(update, Exception):
            raise update
        return update

    def train_batch(
        self, weights: FloatArray, clients: Sequence[ClientId], rng_of: Callable[[ClientId], np.random.Generator]
    ) -> list[LocalUpdate | Exception]:
        """What :meth:`train` gives for each of some clients, computed together."""
        results: list[LocalUpdate | Exception | None] = [None] * len(clients)
        centre, weights = weights[: self._centre], weights[self._centre : self._centre + self._size]
        means: dict[int, FloatArray] = {}
        stacks: dict[int, list[tuple[int, NDArray[Any], NDArray[Any], int]]] = {}
        for place, client in enumerate(clients):
            try:
                inputs, targets, count = self._examples(client, rng_of)
            except Exception as error:
                results[place] = error
                continue
            if self._centre:
                means[place] = inputs.mean(0) - centre
                inputs = self._centred(inputs, centre)
            stacks.setdefault(len(targets), []).append((place, inputs, targets, count))
        with _blas().limit(limits=1, user_api="blas"):  # with several threads, sums would depend on their number
            for stack in stacks.values():
                for part in [stack] if not scipy.sparse.issparse(stack[0][1]) else [[one] for one in stack]:
                    updates = self._descend(weights, *_stacked(part))
                    for (place, inputs, targets, count), update in zip(part, updates, strict=True):
                        if self._centre:
                            update = np.concatenate([means[place], update])
                        if self._start is not None:
                            update = np.concatenate([update, self._moments(weights, inputs, targets, self._start)])
                        results[place] = LocalUpdate(update, count)
        return results  # type: ignore[return-value]

    def train_persons(self, weights: FloatArray, client: ClientId, rng: np.random.Generator) -> Iterator[FloatArray]:
        """Minus the rate times the gradient of each person's loss, summed over its rows; see :class:`PersonTrainer`.

        Of a :class:`RiskHead`, also what these rows say about slope and intercept.
        """
        if self._centre:
            raise InvalidInput("a head with a centre learns the mean of clients, not of persons; use a LinearHead")
        examples = self._clients[client]
        inputs, targets = as_arrays(examples)
        if not scipy.sparse.issparse(inputs):
            inputs = inputs.reshape(len(targets), -1)
        if inputs.shape[1] != self._features:
            raise InvalidInput(f"an example has {inputs.shape[1]} numbers; the head takes {self._features}")
        sparse, (W, b) = scipy.sparse.issparse(inputs), self._split(weights[: self._size])
        size = self._outputs * self._features
        for persons in persons_of(examples, by_row=self._by_row).blocks(max(1, _BLOCK // self._size)):
            rows, labels = inputs[persons.rows], targets[persons.rows]
            known = np.isin(labels, np.arange(max(2, self._outputs)))
            scores = (rows @ W.T if b is None else rows @ W.T + b).reshape(-1, self._outputs)
            gradients = self._gradients(scores[None], np.where(known, labels, 0).astype(np.intp)[None])[0]
            moved = np.where(known[:, None], np.float32(-self._training.learning_rate) * gradients, np.float32("nan"))
            updates = np.zeros((len(persons), self.num_coordinates), np.float32)
            for output in range(self._outputs):  # a row of the left matrix has the moves of one person
                places = np.arange(len(labels))
                left = scipy.sparse.csr_array((moved[:, output], places, persons.starts), (len(persons), len(labels)))
                columns = slice(output * self._features, (output + 1) * self._features)
                updates[:, columns] = (left @ rows).toarray() if sparse else left @ rows
                if self._bias:
                    updates[:, size + output] = left.sum(axis=1)
            if self._start is not None:
                moments = row_moments(scores[:, 0].astype(np.float64), labels > 0, self._start)
                moments[~known] = np.nan
                updates[:, self._size :] = np.add.reduceat(moments, persons.starts[:-1])
            yield updates

    def _examples(
        self, client: ClientId, rng_of: Callable[[ClientId], np.random.Generator]
    ) -> tuple[Any, NDArray[np.intp], int]:
        """The rows that a client uses in this round, their classes, and how many examples it has."""
        try:
            inputs, targets = as_arrays(self._clients[client])
            count = len(targets)
            if self._choice is not None:
                chosen = self._choice(targets, rng_of(client))
                inputs, targets = inputs[chosen], targets[chosen]
            if not scipy.sparse.issparse(inputs):
                inputs = inputs.reshape(len(targets), -1)
            taken = self._centre or self._features
            if inputs.shape[1] != taken:
                raise InvalidInput(f"an example has {inputs.shape[1]} numbers; the head takes {taken}")
            if self._centre and scipy.sparse.issparse(inputs):
                raise InvalidInput("its rows are sparse, and a head with a centre takes dense ones; use a LinearHead")
            require_labels(targets, max(1, self._outputs - 1))
            if self._training.balanced:
                self._require_both(targets)
            return inputs, targets.astype(np.intp, copy=False), count
        except CannotContribute:
            raise
        except InvalidInput as error:
            raise InvalidInput(f"data of client {client}: {error}") from error

    def _centred(self, inputs: FloatArray, centre: FloatArray) -> FloatArray:
        """Rows as the head sees them."""
        rows = np.full((len(inputs), self._features), self._constant, np.float32)
        np.subtract(inputs, centre, out=rows[:, :-1])
        norms = np.sqrt(np.einsum("ij,ij->i", rows[:, :-1], rows[:, :-1]))
        rows[:, :-1] /= np.maximum(norms, np.float32(1e-12))[:, None]
        return rows

    def _moments(
        self, weights: FloatArray, inputs: Any, targets: NDArray[np.intp], start: NDArray[np.float64]
    ) -> FloatArray:
        """What this client's examples say about slope and intercept."""
        W, b = self._split(weights)
        scores = np.asarray(inputs @ W[0], np.float64) + (0.0 if b is None else float(b[0]))
        return line_moments(scores, targets > 0, start).astype(np.float32)

    def _require_both(self, targets: NDArray[Any]) -> None:
        if self._outputs == 1 and targets.min() == targets.max():
            raise CannotContribute(
                f"{np.count_nonzero(targets)} of its {len(targets)} examples are positive; training.balanced needs "
                "positives and negatives at every client"
            )

    def _descend(self, weights: FloatArray, inputs: Any, targets: NDArray[np.intp]) -> FloatArray:
        """Updates of a stack of clients, one a row.

        X is ``inputs`` (clients, examples, features), or one client's sparse rows.
        """
        W, b = self._split(weights)
        start = inputs @ W.T if b is None else inputs @ W.T + b
        start = start.reshape(*targets.shape, self._outputs)
        if self._training.steps == 1:
            moved = np.float32(-self._training.learning_rate) * self._residuals(start, targets)
            return self._combine(weights, inputs, moved, 1.0 - self._penalty)
        if inputs.shape[-2] <= self._features:
            return self._in_the_space_of_examples(weights, inputs, targets, start)
        return self._step_by_step(weights, inputs, targets, start)

    @property
    def _penalty(self) -> float:
        """By how much one step shrinks the weights."""
        return self._training.learning_rate * self._training.l2

    def _in_the_space_of_examples(
        self, weights: FloatArray, inputs: Any, targets: NDArray[np.intp], start: FloatArray
    ) -> FloatArray:
        """All steps by X·Xᵀ: after some of them the weights are s·W + Aᵀ·X, and the biases b + Σ R."""
        rate, shrink = np.float32(self._training.learning_rate), np.float32(1.0 - self._penalty)
        gram = inputs @ inputs.swapaxes(-1, -2) if inputs.ndim == 3 else (inputs @ inputs.T).toarray()[None]
        b = self._split(weights)[1]
        linear, scale = start if b is None else start - b, np.float32(1.0)
        moved, bias = np.zeros_like(start), np.zeros((len(start), 1, self._outputs), np.float32)
        for _ in range(self._training.steps):
            scores = scale * linear + gram @ moved
            if b is not None:
                scores += b + bias
            change = -rate * self._residuals(scores, targets)
            moved, scale = shrink * moved + change, scale * shrink
            bias += change.sum(1, keepdims=True)
        return self._combine(weights, inputs, moved, float(scale), bias)

    def _step_by_step(
        self, weights: FloatArray, inputs: Any, targets: NDArray[np.intp], start: FloatArray
    ) -> FloatArray:
        """All steps on the weights themselves, for clients with more examples than features."""
        rate, scores = np.float32(self._training.learning_rate), start
        now = np.repeat(weights[None], len(targets), axis=0)
        for step in range(self._training.steps):
            if step:
                stacked = [self._split(row) for row in now]
                scores = np.stack(
                    [
                        (x @ W.T if b is None else x @ W.T + b).reshape(-1, self._outputs)
                        for x, (W, b) in zip(inputs if inputs.ndim == 3 else [inputs], stacked, strict=True)
                    ]
                )
            change = self._combine(weights, inputs, -rate * self._residuals(scores, targets), 1.0)
            if self._penalty:
                now[:, : self._outputs * self._features] *= np.float32(1.0 - self._penalty)
            now += change
        return now - weights

    def _residuals(self, scores: FloatArray, targets: NDArray[np.intp]) -> FloatArray:
        """The gradient of the mean loss by the scores."""
        gradients = self._gradients(scores, targets)
        gradients *= self._weights(targets)
        return gradients

    def _gradients(self, scores: FloatArray, targets: NDArray[np.intp]) -> FloatArray:
        """Predicted minus true classes, positives times their weight: the gradient of each example's loss."""
        predicted: FloatArray
        if self._outputs == 1:
            predicted = scipy.special.expit(scores)
            predicted -= targets[..., None].astype(np.float32)
            if self._training.positive_weight != 1.0:
                predicted *= np.where(targets[..., None] > 0, np.float32(self._training.positive_weight), np.float32(1))
        else:
            predicted = np.exp(scores - scores.max(-1, keepdims=True))
            predicted /= predicted.sum(-1, keepdims=True)
            predicted -= targets[..., None] == np.arange(self._outputs)
        return predicted

    def _weights(self, targets: NDArray[np.intp]) -> FloatArray | np.float32:
        """What each example counts; a client's examples count 1 together."""
        if not self._training.balanced:
            return np.float32(1 / targets.shape[-1])
        same = targets[:, :, None] == np.arange(max(2, self._outputs))
        counts = same.sum(1, keepdims=True)
        each = same / np.maximum(counts, 1) / np.count_nonzero(counts, axis=2)[..., None]
        weights: FloatArray = each.sum(2, keepdims=True).astype(np.float32)
        return weights

    def _combine(
        self, weights: FloatArray, inputs: Any, moved: FloatArray, scale: float, bias: FloatArray | None = None
    ) -> FloatArray:
        """Rows of Aᵀ·X + (s − 1)·W and the changes of the biases, with A the stack ``moved``."""
        updates = np.empty((len(moved), self._size), np.float32)
        size = self._outputs * self._features
        change = updates[:, :size].reshape(-1, self._outputs, self._features)
        if inputs.ndim == 3:
            np.matmul(moved.swapaxes(-1, -2), inputs, out=change)
        else:
            change[0] = (inputs.T @ moved[0]).T
        if scale != 1.0:
            updates[:, :size] += np.float32(scale - 1.0) * weights[:size]
        if self._bias:
            updates[:, size:] = moved.sum(1) if bias is None else bias[:, 0]
        return updates

    def _split(self, weights: FloatArray) -> tuple[FloatArray, FloatArray | None]:
        """Weights (outputs, features) and biases of a model vector."""
        size = self._outputs * self._features
        return weights[:size].reshape(self._outputs, self._features), weights[size:] if self._bias else None


def _stacked(examples: list[tuple[int, Any, NDArray[np.intp], int]]) -> tuple[Any, NDArray[np.intp]]:
    inputs, targets = [one[1] for one in examples], np.stack([one[2] for one in examples])
    return (inputs[0] if scipy.sparse.issparse(inputs[0]) else np.stack(inputs)), targets


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()
