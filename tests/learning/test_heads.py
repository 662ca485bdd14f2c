"""Convex heads: against PyTorch's own gradients, alone and in batches, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from numpy.typing import NDArray

import lowkey
from lowkey.errors import CannotContribute, InvalidInput
from lowkey.learning import (
    CLASSIFICATION,
    FullGradient,
    HeadTrainer,
    LinearHead,
    LocalSGD,
    Objective,
    TorchTrainer,
    balanced_rows,
    logistic_loss,
    make_trainer,
)
from lowkey.protocols import BatchTrainer, LocalUpdate

FEATURES = 7
Examples = tuple[Any, NDArray[Any]]


def examples(count: int, outputs: int, seed: int = 0) -> Examples:
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((count, FEATURES)).astype(np.float32)
    return inputs, rng.integers(max(2, outputs), size=count)


def objective(outputs: int) -> Objective:
    return Objective(loss=logistic_loss) if outputs == 1 else CLASSIFICATION


def start(head: LinearHead) -> NDArray[np.float32]:
    size = sum(p.numel() for p in head.parameters())
    return np.random.default_rng(9).standard_normal(size).astype(np.float32)


def by_torch(head: LinearHead, data: Examples, training: FullGradient, weights: NDArray[np.float32]) -> Any:
    """The same steps by automatic differentiation, in float64."""
    vector = torch.from_numpy(weights.astype(np.float64))
    size = head.out_features * head.in_features
    inputs, targets = torch.from_numpy(data[0].astype(np.float64)), torch.from_numpy(data[1])
    for _ in range(training.steps):
        vector = vector.detach().requires_grad_()
        W = vector[:size].reshape(head.out_features, head.in_features)
        scores = inputs @ W.T + (0 if head.bias is None else vector[size:])
        loss = objective(head.out_features).loss(scores, targets) + training.l2 / 2 * (W**2).sum()
        (gradient,) = torch.autograd.grad(loss, vector)
        vector = vector - training.learning_rate * gradient
    return vector.detach().numpy() - weights


@pytest.mark.parametrize("outputs", [1, 2, 4])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("count", [1, 3, 30])  # fewer examples than features, and more
@pytest.mark.parametrize(("steps", "l2"), [(1, 0.0), (1, 0.3), (6, 0.0), (6, 0.3)])
@pytest.mark.parametrize("sparse", [False, True])
def test_steps_are_those_of_automatic_differentiation(
    outputs: int, bias: bool, count: int, steps: int, l2: float, sparse: bool
) -> None:
    head, training = LinearHead(FEATURES, outputs, bias=bias), FullGradient(steps=steps, learning_rate=0.7, l2=l2)
    data, weights = examples(count, outputs), start(head)
    given = (scipy.sparse.csr_array(data[0]), data[1]) if sparse else data
    trained = HeadTrainer(head, [given], training, objective=objective(outputs)).train(
        weights, 0, np.random.default_rng(0)
    )
    assert trained.num_examples == count
    assert trained.update.dtype == np.float32
    np.testing.assert_allclose(trained.update, by_torch(head, data, training, weights), rtol=2e-4, atol=2e-6)


def test_one_step_is_what_sgd_does_with_all_examples() -> None:
    head, data = LinearHead(FEATURES, 4), examples(20, 4)
    weights = start(head)
    one = HeadTrainer(head, [data], FullGradient(learning_rate=0.3)).train(weights, 0, np.random.default_rng(0))
    sgd = LocalSGD(steps=1, batch_size=20, learning_rate=0.3)
    other = TorchTrainer(head, [data], sgd).train(weights, 0, np.random.default_rng(0))
    np.testing.assert_allclose(one.update, other.update, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_client_gets_the_same_bits_in_every_batch(steps: int, sparse: bool) -> None:
    head = LinearHead(FEATURES, 3)
    sizes = [5, 2, 5, 40, 1, 5, 40, 2]
    clients = [examples(size, 3, seed) for seed, size in enumerate(sizes)]
    if sparse:
        clients = [(scipy.sparse.csr_array(inputs), targets) for inputs, targets in clients]
    trainer = HeadTrainer(head, clients, FullGradient(steps=steps, l2=0.1))
    weights = start(head)
    alone = [trainer.train(weights, client, np.random.default_rng(0)).update for client in range(len(clients))]
    for batch in ([0, 1, 2, 3, 4, 5, 6, 7], [5, 3, 0], [7, 6]):
        together = trainer.train_batch(weights, batch, lambda _client: np.random.default_rng(0))
        for client, result in zip(batch, together, strict=True):
            assert isinstance(result, LocalUpdate)
            np.testing.assert_array_equal(result.update, alone[client])


def test_examples_are_chosen_by_each_clients_own_generator() -> None:
    head = LinearHead(FEATURES, 1)
    clients = [examples(30, 1, seed) for seed in range(4)]
    chosen = Objective(loss=logistic_loss, choice=balanced_rows)
    trainer = HeadTrainer(head, clients, FullGradient(), objective=chosen)

    def updates(seed: int) -> list[NDArray[np.float32]]:
        batch = trainer.train_batch(start(head), [0, 1, 2, 3], lambda client: np.random.default_rng([seed, client]))
        return [one.update for one in batch if isinstance(one, LocalUpdate)]

    first, again, other = updates(1), updates(1), updates(2)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_what_one_client_does_wrong_stands_in_its_own_place() -> None:
    good = examples(5, 3)
    clients = [good, (good[0][:0], good[1][:0]), (good[0][:, :3], good[1]), (good[0], good[1] + 3), good]
    trainer = HeadTrainer(LinearHead(FEATURES, 3), clients, FullGradient())
    results = trainer.train_batch(start(LinearHead(FEATURES, 3)), range(5), lambda _client: np.random.default_rng(0))
    assert [type(result) for result in results] == [
        LocalUpdate, CannotContribute, InvalidInput, InvalidInput, LocalUpdate,
    ]  # fmt: skip
    assert "data of client 2: an example has 3 numbers; the head takes 7" in str(results[2])
    assert "data of client 3: a label is" in str(results[3])


def test_heads_start_from_zeros_and_take_images() -> None:
    head = LinearHead(6, 3)
    assert all((parameter == 0).all() for parameter in head.parameters())
    assert head(torch.ones(5, 2, 3)).shape == (5, 3)
    images = np.ones((4, 2, 3), np.float32), np.array([0, 1, 2, 0])
    trained = HeadTrainer(head, [images], FullGradient()).train(np.zeros(21, np.float32), 0, np.random.default_rng(0))
    assert trained.update.shape == (21,)


def test_trainers_that_do_not_fit_are_refused() -> None:
    data = [examples(5, 2)]
    with pytest.raises(
        InvalidInput, match="the model is a Linear, and training by 'full-gradient' is for a LinearHead"
    ):
        make_trainer(torch.nn.Linear(FEATURES, 2), data, FullGradient())
    with pytest.raises(InvalidInput, match=r"1 output.*trained by logistic_loss, but the objective.*cross_entropy"):
        make_trainer(LinearHead(FEATURES, 1), data, FullGradient())
    assert isinstance(make_trainer(LinearHead(FEATURES, 2), data, FullGradient()), BatchTrainer)
    assert not isinstance(make_trainer(LinearHead(FEATURES, 2), data, LocalSGD()), BatchTrainer)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_library_trains_heads_by_their_usual_settings(outputs: int) -> None:
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((FEATURES, max(2, outputs)))
    rows = rng.standard_normal((400, FEATURES)).astype(np.float32)
    classes = (rows @ truth).argmax(1)
    clients = [(rows[i::40], classes[i::40]) for i in range(40)]
    result = lowkey.simulate(
        scheme=lowkey.scheme("fl-std", clients=40, cohort=40), model=LinearHead(FEATURES, outputs), clients=clients,
        test=(rows, classes), rounds=30, workers=0,
    )  # fmt: skip
    assert result.accuracy > 0.9


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("steps", [1, 4])
def test_balanced_classes_count_alike(outputs: int, steps: int) -> None:
    """Two of a class and eight of another weigh as if each example of the first stood there four times."""
    inputs, _ = examples(10, outputs)
    targets = np.array([1, 1, 0, 0, 0, 0, 0, 0, 0, 0])
    rows = np.concatenate([np.repeat([0, 1], 4), np.arange(2, 10)])
    head = LinearHead(FEATURES, outputs)
    training = FullGradient(steps=steps, learning_rate=0.7, balanced=True)
    clients = [(inputs, targets), (inputs[rows], targets[rows])]
    weights = start(head)
    balanced = HeadTrainer(head, clients, training, objective=objective(outputs))
    plain = HeadTrainer(head, clients, FullGradient(steps=steps, learning_rate=0.7), objective=objective(outputs))
    found = balanced.train(weights, 0, np.random.default_rng(0)).update
    np.testing.assert_allclose(found, plain.train(weights, 1, np.random.default_rng(0)).update, rtol=2e-4, atol=1e-6)
    assert not np.allclose(found, plain.train(weights, 0, np.random.default_rng(0)).update, rtol=1e-2)


def test_a_client_with_one_class_cannot_balance_a_yes_or_no() -> None:
    inputs, _ = examples(4, 1)
    trainer = HeadTrainer(
        LinearHead(FEATURES, 1), [(inputs, np.zeros(4))], FullGradient(balanced=True), objective=objective(1)
    )
    with pytest.raises(CannotContribute, match="0 of its 4 examples are positive"):
        trainer.train(np.zeros(FEATURES + 1, np.float32), 0, np.random.default_rng(0))
