"""The network, data and metrics of the mortality task."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lowkey.errors import InvalidInput
from lowkey.learning import (
    MORTALITY,
    LocalSGD,
    MortalityMLP,
    Objective,
    SparseBatch,
    SparseLinear,
    TorchEvaluator,
    TorchTrainer,
    auroc,
    balanced_rows,
    calibration,
    keras_initialise,
    logistic_loss,
    model_vector,
    mortality,
)
from lowkey.learning.datasets import as_rows, in_batches


def patients(size: int = 60, features: int = 30, seed: int = 0) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = scipy.sparse.random_array((size, features), density=0.1, format="csr", dtype=np.float32, rng=rng)
    return rows, (rng.random(size) < 0.2).astype(np.int64)


def test_the_papers_network_has_exactly_its_parameters() -> None:
    assert model_vector(MortalityMLP(7280)).size == 1_496_601


def test_sparse_inputs_learn_and_evaluate_as_dense_ones() -> None:
    rows, died = patients()
    module = MortalityMLP(30, hidden=8)
    weights = model_vector(module)
    updates = [
        TorchTrainer(module, [(inputs, died)], LocalSGD(steps=3), objective=Objective(loss=logistic_loss))
        .train(weights, 0, np.random.default_rng(0))
        .update
        for inputs in (rows, rows.toarray())
    ]
    np.testing.assert_array_equal(*updates)
    found = [
        TorchEvaluator(module, (inputs, died), objective=MORTALITY, batch_size=7)(weights)
        for inputs in (rows, rows.toarray())
    ]
    np.testing.assert_allclose(*(metrics.pop("calibration") for metrics in found), rtol=1e-5)
    assert found[0] == pytest.approx(found[1], abs=1e-5)
    assert {"accuracy", "loss", "auroc", "balanced_accuracy", "sensitivity", "specificity"} <= found[0].keys()


def test_batches_of_sparse_rows_are_made_when_they_are_needed() -> None:
    rows, died = patients(size=10)
    batches, targets = in_batches((rows, died), 4)
    made = [batch() for batch in batches]
    assert [len(batch) for batch in made] == [4, 4, 2]
    np.testing.assert_array_equal(torch.cat(made), rows.toarray())
    np.testing.assert_array_equal(targets, died)


def test_a_sparse_layer_gives_what_a_dense_one_gives() -> None:
    rows, _ = patients(size=10)
    rows.data[rows.indptr[3] : rows.indptr[4]] = 0  # a row without anything
    rows.eliminate_zeros()
    torch.manual_seed(0)
    layer = SparseLinear(30, 8)
    [batch], _ = in_batches((rows, np.zeros(10)), 10, sparse=True)
    sparse = batch()
    assert isinstance(sparse, SparseBatch)
    expected = layer(torch.from_numpy(rows.toarray()))
    torch.testing.assert_close(layer(sparse), expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(layer(sparse)[3], layer.bias)
    torch.manual_seed(0)
    unbiased = SparseLinear(30, 8, bias=False)
    torch.testing.assert_close(unbiased(sparse), expected - layer.bias, atol=1e-6, rtol=1e-5)


def test_the_sparse_layer_changes_neither_parameters_nor_initial_weights() -> None:
    plain = nn.Sequential(
        nn.Linear(30, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 1)
    )
    ours, theirs = (
        keras_initialise(module, np.random.default_rng(0)).state_dict()
        for module in (MortalityMLP(30, hidden=8), plain)
    )
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        assert torch.equal(ours[name], value)


def test_other_modules_get_dense_batches_of_sparse_rows() -> None:
    rows, died = patients()
    seen: list[torch.Size] = []

    class Unaware(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            seen.append(inputs.shape)
            return super().forward(inputs)

    module = Unaware(30, 1)
    found = TorchEvaluator(module, (rows, died), objective=MORTALITY)(model_vector(module))
    assert sorted(seen) == [(10, 30), (50, 30)]
    with torch.no_grad():
        logits = module(torch.from_numpy(rows.toarray()))
    assert found["loss"] == pytest.approx(float(logistic_loss(logits, torch.from_numpy(died))), abs=1e-6)


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that an operation takes or gives."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in tree_leaves((args, kwargs, result)):
            if isinstance(part, Tensor):
                Largest.numbers = max(Largest.numbers, part.numel())
        return result


class WatchedMLP(MortalityMLP):
    def forward(self, inputs: Any) -> Tensor:
        with Largest():
            return super().forward(inputs)


@pytest.mark.parametrize("sparse", [True, False])
def test_evaluation_never_makes_a_dense_table_of_sparse_rows(monkeypatch: pytest.MonkeyPatch, sparse: bool) -> None:
    """The other case shows that the watch would notice."""
    rows, died = patients(size=1000, features=7280)
    made_dense = watch_dense_rows(monkeypatch)
    monkeypatch.setattr(Largest, "numbers", 0)
    monkeypatch.setattr(WatchedMLP, "takes_sparse_rows", sparse)
    module = WatchedMLP(7280, hidden=8)
    TorchEvaluator(module, (rows, died), objective=MORTALITY, batch_size=500)(model_vector(module))
    assert made_dense == ([] if sparse else [500, 500])
    assert (Largest.numbers < 500 * 7280) == sparse


def test_training_makes_chosen_rows_dense_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, died = patients(size=200)
    made_dense = watch_dense_rows(monkeypatch)
    module = MortalityMLP(30, hidden=8)
    trainer = TorchTrainer(module, [(rows, died)], LocalSGD(), objective=MORTALITY)
    assert trainer.train(model_vector(module), 0, np.random.default_rng(0)).num_examples == 200
    assert made_dense == [2 * died.sum()]


def watch_dense_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of rows of every sparse array that is made dense from now on."""
    made: list[int] = []
    toarray = scipy.sparse.csr_array.toarray

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        made.append(self.shape[0])
        return toarray(self, *args, **kwargs)

    monkeypatch.setattr(scipy.sparse.csr_array, "toarray", watched)
    return made


@pytest.mark.parametrize(
    ("examples", "reason"),
    [
        ((scipy.sparse.csr_array((3, 2), dtype=np.float32), np.zeros(2)), "3 inputs but 2 targets"),
        ((scipy.sparse.csr_array((0, 2), dtype=np.float32), np.zeros(0)), "empty"),
    ],
)
def test_unusable_sparse_data_is_refused(examples: object, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        as_rows(examples)


def test_a_round_uses_the_chosen_examples_and_counts_all() -> None:
    rows, died = patients()
    module, weights = MortalityMLP(30, hidden=8), model_vector(MortalityMLP(30, hidden=8))
    first = np.arange(5)
    chosen_objective = Objective(loss=logistic_loss, choice=lambda _t, _rng: first)
    chosen = TorchTrainer(module, [(rows, died)], LocalSGD(), objective=chosen_objective)
    alone = TorchTrainer(module, [(rows[:5], died[:5])], LocalSGD(), objective=Objective(loss=logistic_loss))
    ours, theirs = (t.train(weights, 0, np.random.default_rng(0)) for t in (chosen, alone))
    np.testing.assert_array_equal(ours.update, theirs.update)
    assert (ours.num_examples, theirs.num_examples) == (60, 5)


def test_classes_are_balanced_anew_in_every_round() -> None:
    rows, died = patients()
    module = MortalityMLP(30, hidden=8)
    trainer = TorchTrainer(module, [(rows, died.astype(np.float32))], LocalSGD(), objective=MORTALITY)
    weights = model_vector(module)
    one, other = (trainer.train(weights, 0, np.random.default_rng(seed)).update for seed in (0, 1))
    assert not np.array_equal(one, other)


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
    with pytest.raises(InvalidInput, match="needs positives"):
        balanced_rows(died, np.random.default_rng(0))


@pytest.mark.parametrize("seed", range(5))
def test_metrics_agree_with_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    died = rng.random(300) < 0.1
    logits = np.round(rng.normal(size=300) + died, 1)  # with ties
    found = mortality(torch.from_numpy(logits)[:, None], torch.from_numpy(died.astype(np.int64)))
    assert found["auroc"] == pytest.approx(roc_auc_score(died, logits))
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(died, logits > 0))
    assert found["true_positives"] + found["false_negatives"] == died.sum()
    counts = ("true_positives", "false_negatives", "false_positives", "true_negatives")
    assert sum(found[name] for name in counts) == 300


def test_without_deaths_auroc_says_nothing() -> None:
    assert auroc(np.arange(3.0), np.zeros(3, np.bool_)) == 0.5


def test_calibration_by_hand() -> None:
    """One of four died, odds 1/3: a probability of 3/4 has odds 3 and becomes 1/2, one of 1/2 becomes 1/4."""
    logits, died = torch.tensor([np.log(3.0), 0.0, 0.0, np.log(3.0)]), torch.tensor([1, 0, 0, 0])
    found = calibration(logits[:, None], died, bins=2)
    assert found == [pytest.approx([1 / 2, 1 / 4, 0, 2]), pytest.approx([3 / 4, 1 / 2, 1 / 2, 2])]
    whole = mortality(logits[:, None], died)["calibration"]
    assert [row[3] for row in whole] == [1, 1, 1, 1]  # fewer patients than bins
    assert json.loads(json.dumps(whole)) == whole


def test_odds_of_every_example_are_corrected_and_not_of_the_mean() -> None:
    logits = torch.tensor([-2.0, 4.0, 1.0, 0.0])
    ((_, corrected, _, _),) = calibration(logits, torch.tensor([1, 0, 0, 0]), bins=1)
    assert corrected == pytest.approx(float(torch.sigmoid(logits - np.log(3)).mean()))


@pytest.mark.parametrize(("bias", "holds"), [(0.0, True), (0.5, False)])
def test_a_forecast_learned_from_balanced_classes_is_right_once_corrected(bias: float, holds: bool) -> None:
    """Observed shares lie within 5 standard deviations of the corrected ones: false alarm below 1e-5."""
    rng = np.random.default_rng(0)
    logits = rng.normal(-4, 1.5, 200_000)
    died = rng.random(200_000) < 1 / (1 + np.exp(-logits))
    balanced = logits - np.log(died.mean() / (1 - died.mean())) + bias
    rows = calibration(torch.from_numpy(balanced), torch.from_numpy(died))
    assert [row[3] for row in rows] == [20_000] * 10
    near = [abs(seen - right) < 5 * (right * (1 - right) / count) ** 0.5 for _, right, seen, count in rows]
    assert all(near) is holds
    assert all(raw > 2 * seen for raw, _, seen, _ in rows)


@pytest.mark.parametrize("died", [np.zeros(3), np.ones(3)])
def test_no_calibration_where_all_are_alike(died: np.ndarray) -> None:
    assert calibration(torch.zeros(3), torch.from_numpy(died)) == []
