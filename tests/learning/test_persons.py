"""Updates of persons: closed form and automatic differentiation, rows of one id together, and what is refused."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import nn

from lowkey.errors import InvalidInput
from lowkey.learning import (
    CLASSIFICATION,
    FullGradient,
    HeadTrainer,
    LinearHead,
    LocalSGD,
    Objective,
    RiskHead,
    TorchTrainer,
    balanced_rows,
    logistic_loss,
    make_trainer,
)
from lowkey.learning.datasets import persons_of
from lowkey.protocols import PersonTrainer

FEATURES = 6
IDS = np.array(["c", "a", "b", "a", "c", "a", "d"])
RNG = np.random.default_rng(0)


def examples(outputs: int) -> tuple[NDArray[np.float32], NDArray[Any]]:
    rng = np.random.default_rng(3)
    return rng.standard_normal((7, FEATURES)).astype(np.float32), rng.integers(max(2, outputs), size=7)


def objective(outputs: int) -> Objective:
    return Objective(loss=logistic_loss) if outputs == 1 else CLASSIFICATION


def start(size: int) -> NDArray[np.float32]:
    return np.random.default_rng(9).standard_normal(size).astype(np.float32)


def rows(trainer: PersonTrainer) -> NDArray[np.float32]:
    return np.concatenate(list(trainer.train_persons(start(trainer.num_coordinates), 0, RNG)))


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("by_row", [False, True])
def test_the_closed_form_of_a_head_is_what_torch_func_computes(
    outputs: int, bias: bool, sparse: bool, by_row: bool
) -> None:
    head, (inputs, targets) = LinearHead(FEATURES, outputs, bias=bias), examples(outputs)
    given = scipy.sparse.csr_array(inputs) if sparse else inputs
    closed = HeadTrainer(
        head, [(given, targets, IDS)], FullGradient(learning_rate=0.3), objective=objective(outputs), by_row=by_row
    )
    sgd = LocalSGD(steps=1, learning_rate=0.3)
    network = TorchTrainer(head, [(given, targets, IDS)], sgd, objective=objective(outputs), by_row=by_row)
    assert isinstance(closed, PersonTrainer)
    found = rows(closed)
    assert found.shape == (7 if by_row else 4, closed.num_coordinates)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, rows(network), rtol=1e-4, atol=1e-6)


def test_persons_add_up_to_the_gradient_of_the_client() -> None:
    """The mean over all rows is what a client sends where clients are protected."""
    head, data = LinearHead(FEATURES, 1), (*examples(1), IDS)
    training = FullGradient(learning_rate=0.7, positive_weight=4.0)
    trainer = HeadTrainer(head, [data], training, objective=objective(1))
    whole = trainer.train(start(trainer.num_coordinates), 0, RNG)
    assert whole.num_examples == 7
    np.testing.assert_allclose(rows(trainer).sum(0) / 7, whole.update, rtol=1e-4, atol=1e-6)


def test_positives_count_as_much_as_is_said() -> None:
    head, (inputs, targets) = LinearHead(FEATURES, 1), examples(1)
    plain, weighted = (
        rows(HeadTrainer(head, [(inputs, targets)], training, objective=objective(1), by_row=True))
        for training in (FullGradient(), FullGradient(positive_weight=5.0))
    )
    assert set(targets) == {0, 1}
    np.testing.assert_allclose(weighted, plain * np.where(targets > 0, 5.0, 1.0)[:, None], rtol=1e-5)


@pytest.mark.parametrize("kind", ["head", "network"])
def test_all_rows_of_one_id_are_one_person(kind: Literal["head", "network"]) -> None:
    head, data = LinearHead(FEATURES, 3), (*examples(3), IDS)

    def trained(by_row: bool) -> NDArray[np.float32]:
        if kind == "head":
            return rows(HeadTrainer(head, [data], FullGradient(), by_row=by_row))
        return rows(TorchTrainer(head, [data], LocalSGD(steps=1, learning_rate=1.0), by_row=by_row))

    each, together = trained(True), trained(False)
    for person, place in zip(together, (name == IDS for name in "abcd"), strict=True):
        np.testing.assert_allclose(person, each[place].sum(0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_persons_add_up_to_what_a_client_says_of_slope_and_intercept(sparse: bool) -> None:
    """A client's five numbers have norm 1; those of its persons are bounded later, each by itself."""
    head, (inputs, targets) = RiskHead(FEATURES), examples(1)
    given = scipy.sparse.csr_array(inputs) if sparse else inputs
    trainer = HeadTrainer(head, [(given, targets, IDS)], FullGradient(), objective=objective(1))
    whole = trainer.train(start(trainer.num_coordinates), 0, RNG).update[-5:]
    total = rows(trainer)[:, -5:].sum(0)
    np.testing.assert_allclose(total / np.linalg.norm(total), whole, rtol=1e-4, atol=1e-6)
    targets[2] = 7
    strange = rows(trainer)
    assert np.isnan(strange[1]).all()  # b has row 2, and only that
    assert np.isfinite(np.delete(strange, 1, axis=0)).all()


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("strange", ["label", "nan"])
def test_what_is_wrong_with_one_person_touches_no_other(network: bool, strange: str) -> None:
    """A hospital that sent zeros because of one person's data would tell of that person."""
    head, (inputs, targets) = LinearHead(FEATURES, 3), examples(3)

    def trained() -> NDArray[np.float32]:
        if network:
            return rows(TorchTrainer(head, [(inputs, targets, IDS)], LocalSGD(steps=1, learning_rate=1.0)))
        return rows(HeadTrainer(head, [(inputs, targets, IDS)], FullGradient()))

    before = trained()
    if strange == "label":
        targets[2] = 7
    else:
        inputs[2, 1] = np.nan
    after = trained()
    assert not np.isfinite(after[1]).all()  # b has row 2, and only that
    np.testing.assert_array_equal(np.delete(after, 1, axis=0), np.delete(before, 1, axis=0))


def test_networks_without_a_closed_form() -> None:
    """Two layers, a frozen parameter and dropout that repeats with the generator."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, 3))
    module[0].bias.requires_grad_(False)
    inputs, targets = examples(3)
    trainer = TorchTrainer(module, [(inputs, targets)], LocalSGD(steps=1, learning_rate=1.0), by_row=True)
    found, weights = rows(trainer), start(trainer.num_coordinates)
    for row, (x, y) in enumerate(zip(inputs, targets, strict=True)):
        alone = TorchTrainer(module, [(x[None], np.array([y]))], LocalSGD(steps=1, learning_rate=1.0))
        np.testing.assert_allclose(found[row], alone.train(weights, 0, RNG).update, rtol=1e-3, atol=1e-5)
    dropped = nn.Sequential(nn.Dropout(0.5), nn.Linear(FEATURES, 3))
    trainer = TorchTrainer(dropped, [(inputs, targets)], LocalSGD(steps=1), by_row=True)
    weights = start(trainer.num_coordinates)
    one, same, other = (
        np.concatenate(list(trainer.train_persons(weights, 0, np.random.default_rng(seed)))) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_blocks_keep_persons_whole(size: int) -> None:
    inputs, targets = examples(3)
    blocks = persons_of((inputs, targets, IDS), by_row=False).blocks(size)
    found = [
        sorted(set(IDS[block.rows[block.starts[p] : block.starts[p + 1]]]))
        for block in blocks
        for p in range(len(block))
    ]
    assert found == [["a"], ["b"], ["c"], ["d"]]
    assert all(len(block) == 1 or len(block.rows) <= size for block in blocks)
    np.testing.assert_array_equal(np.sort(np.concatenate([block.rows for block in blocks])), np.arange(7))


@pytest.mark.parametrize(
    ("training", "choice", "named"),
    [
        (FullGradient(steps=2), None, r"training\.steps is 2"),
        (FullGradient(balanced=True), None, r"set training\.positive_weight"),
        (FullGradient(l2=0.1), None, r"training\.l2 is not for"),
        (LocalSGD(), None, r"training\.steps is 5"),
        (FullGradient(), balanced_rows, "depends on others"),
    ],
)
def test_training_in_which_persons_depend_on_each_other_is_refused(training: Any, choice: Any, named: str) -> None:
    head, wanted = LinearHead(FEATURES, 1), Objective(loss=logistic_loss, choice=choice)
    make_trainer(head, [examples(1)], training, objective=wanted)
    with pytest.raises(InvalidInput, match=named):
        make_trainer(head, [examples(1)], training, objective=wanted, persons_by="ids")


def test_rows_without_ids_are_not_taken_for_persons() -> None:
    head = LinearHead(FEATURES, 3)
    with pytest.raises(InvalidInput, match=r"which rows are about one person.*privacy\.row = 'admission'"):
        rows(HeadTrainer(head, [examples(3)], FullGradient()))
    with pytest.raises(InvalidInput, match="7 rows but 6 person ids"):
        rows(HeadTrainer(head, [(*examples(3), IDS[1:])], FullGradient()))


def test_one_weight_of_classes_at_a_time() -> None:
    with pytest.raises(InvalidInput, match="choose one"):
        FullGradient(balanced=True, positive_weight=3.0)
    with pytest.raises(InvalidInput, match=r"training\.positive_weight is 0"):
        FullGradient(positive_weight=0.0)
