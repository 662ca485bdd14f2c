"""What is learned for: which examples a round uses, and labels that no class of the model has."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lowkey.errors import CannotContribute, InvalidInput
from lowkey.learning import (
    CLASSIFICATION,
    LocalSGD,
    Objective,
    TorchEvaluator,
    TorchTrainer,
    balanced_rows,
    logistic_loss,
    model_vector,
)

LOGISTIC = Objective(loss=logistic_loss)


def test_a_round_uses_the_chosen_examples_and_counts_all() -> None:
    rng = np.random.default_rng(0)
    rows, died = rng.normal(size=(60, 30)).astype(np.float32), rng.integers(0, 2, 60)
    module = nn.Sequential(nn.Linear(30, 8), nn.Dropout(), nn.Linear(8, 1))
    first = np.arange(5)
    chosen_objective = Objective(loss=logistic_loss, choice=lambda _t, _rng: first)
    chosen = TorchTrainer(module, [(rows, died)], LocalSGD(), objective=chosen_objective)
    alone = TorchTrainer(module, [(rows[:5], died[:5])], LocalSGD(), objective=LOGISTIC)
    ours, theirs = (t.train(model_vector(module), 0, np.random.default_rng(0)) for t in (chosen, alone))
    np.testing.assert_array_equal(ours.update, theirs.update)
    assert (ours.num_examples, theirs.num_examples) == (60, 5)


def test_balanced_rows_keep_every_death_and_redraw_survivors() -> None:
    died = np.arange(50) % 10 == 0
    rng = np.random.default_rng(0)
    one, other = balanced_rows(died, rng), balanced_rows(died, rng)
    for rows in (one, other):
        assert len(rows) == len(set(rows)) == 10
        assert set(np.flatnonzero(died)) <= set(rows)
    assert set(one) != set(other)
    mostly_dead = np.arange(50) % 10 != 0
    assert sorted(balanced_rows(mostly_dead, rng)) == list(range(50))


@pytest.mark.parametrize("died", [np.zeros(3, bool), np.ones(1, bool)])
def test_one_class_cannot_be_balanced(died: np.ndarray) -> None:
    with pytest.raises(CannotContribute, match=f"{died.sum()} of its {died.size} examples.*needs positives"):
        balanced_rows(died, np.random.default_rng(0))
    module, rows = nn.Linear(2, 1), np.zeros((died.size, 2), np.float32)
    objective = Objective(loss=logistic_loss, choice=balanced_rows)
    trainer = TorchTrainer(module, [(rows, died)], LocalSGD(), objective=objective)
    with pytest.raises(CannotContribute, match="needs positives"):
        trainer.train(model_vector(module), 0, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("objective", "outputs", "label", "said"),
    [
        (CLASSIFICATION, 3, 3, "a label is 3; it must lie in 0 … 2"),
        (CLASSIFICATION, 3, -1, "a label is -1; it must lie in 0 … 2"),
        (CLASSIFICATION, 3, -100, "a label is -100; it must lie in 0 … 2"),  # which PyTorch would ignore
        (LOGISTIC, 1, 2, "a label is 2; it must lie in 0 … 1"),  # which PyTorch would take as a target
        (LOGISTIC, 1, -1, "a label is -1; it must lie in 0 … 1"),
        (LOGISTIC, 1, 1.5, "a label is 1.5; it must lie in 0 … 1"),
        (LOGISTIC, 1, np.nan, "a label is nan; it must lie in 0 … 1"),
    ],
)
def test_labels_that_no_class_has_are_refused(objective: Objective, outputs: int, label: float, said: str) -> None:
    """In training though it is in a batch that the only step does not use, and in evaluation."""
    module, rows = nn.Linear(2, outputs), np.zeros((20, 2), np.float32)
    targets = np.zeros(20, type(label))
    for place in range(20):
        wrong = targets.copy()
        wrong[place] = label
        trainer = TorchTrainer(module, [(rows, wrong)], LocalSGD(steps=1, batch_size=2), objective=objective)
        with pytest.raises(InvalidInput, match=said):
            trainer.train(model_vector(module), 0, np.random.default_rng(0))
    with pytest.raises(InvalidInput, match=said):
        TorchEvaluator(module, (rows, wrong), objective=objective)(model_vector(module))
    TorchEvaluator(module, (rows, targets), objective=objective)(model_vector(module))


def test_losses_of_ones_own_may_have_labels_of_their_own() -> None:
    Objective(loss=F.mse_loss).check(torch.zeros(3, 1), torch.tensor([5, -7, 2]))
    CLASSIFICATION.check(torch.zeros(2, 3), torch.tensor([[0.1, 0.1, 0.8], [2.0, 0.0, -1.0]]))  # of every class
