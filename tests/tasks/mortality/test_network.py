"""The network and the objective of the task: sparse admissions go through as they are, classes are balanced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lowkey.learning import (
    LocalSGD,
    Objective,
    TorchEvaluator,
    TorchTrainer,
    keras_initialise,
    logistic_loss,
    model_vector,
)
from lowkey.tasks.mortality.mlp import MortalityMLP
from lowkey.tasks.mortality.parts import OBJECTIVE


def patients(size: int = 60, features: int = 30, seed: int = 0) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = scipy.sparse.random_array((size, features), density=0.1, format="csr", dtype=np.float32, rng=rng)
    assert isinstance(rows, scipy.sparse.csr_array)
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
    np.testing.assert_array_equal(updates[0], updates[1])
    found = [
        dict[str, Any](TorchEvaluator(module, (inputs, died), objective=OBJECTIVE, batch_size=7)(weights))
        for inputs in (rows, rows.toarray())
    ]
    np.testing.assert_allclose(found[0].pop("calibration"), found[1].pop("calibration"), rtol=1e-5)
    assert found[0] == pytest.approx(found[1], abs=1e-5)
    assert {"accuracy", "loss", "auroc", "balanced_accuracy", "sensitivity", "specificity"} <= found[0].keys()


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


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that an operation takes or gives."""

    numbers = 0

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in tree_leaves((args, kwargs, result)):
            if isinstance(part, Tensor):
                Largest.numbers = max(Largest.numbers, part.numel())
        return result


class WatchedMLP(MortalityMLP):
    def forward(self, inputs: Any) -> Tensor:
        forward: Any = super().forward
        with Largest():
            outputs: Tensor = forward(inputs)
        return outputs


@pytest.mark.parametrize("sparse", [True, False])
def test_evaluation_never_makes_a_dense_table_of_sparse_rows(monkeypatch: pytest.MonkeyPatch, sparse: bool) -> None:
    """The other case shows that the watch would notice."""
    rows, died = patients(size=1000, features=7280)
    made_dense = watch_dense_rows(monkeypatch)
    monkeypatch.setattr(Largest, "numbers", 0)
    monkeypatch.setattr(WatchedMLP, "takes_sparse_rows", sparse)
    module = WatchedMLP(7280, hidden=8)
    TorchEvaluator(module, (rows, died), objective=OBJECTIVE, batch_size=500)(model_vector(module))
    assert made_dense == ([] if sparse else [500, 500])
    assert (Largest.numbers < 500 * 7280) == sparse


def test_training_makes_chosen_rows_dense_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, died = patients(size=200)
    made_dense = watch_dense_rows(monkeypatch)
    module = MortalityMLP(30, hidden=8)
    trainer = TorchTrainer(module, [(rows, died)], LocalSGD(), objective=OBJECTIVE)
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


def test_classes_are_balanced_anew_in_every_round() -> None:
    rows, died = patients()
    module = MortalityMLP(30, hidden=8)
    trainer = TorchTrainer(module, [(rows, died.astype(np.float32))], LocalSGD(), objective=OBJECTIVE)
    weights = model_vector(module)
    one, other = (trainer.train(weights, 0, np.random.default_rng(seed)).update for seed in (0, 1))
    assert not np.array_equal(one, other)
