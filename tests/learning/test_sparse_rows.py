"""Sparse rows: dense where a model wants it, batch by batch, and never as a whole."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor, nn

from lowkey.errors import CannotContribute, InvalidInput, LowkeyError
from lowkey.learning import Objective, SparseBatch, SparseLinear, TorchEvaluator, logistic_loss, model_vector
from lowkey.learning.datasets import as_rows, in_batches


def patients(size: int = 60, features: int = 30, seed: int = 0) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = scipy.sparse.random_array((size, features), density=0.1, format="csr", dtype=np.float32, rng=rng)
    assert isinstance(rows, scipy.sparse.csr_array)
    return rows, (rng.random(size) < 0.2).astype(np.int64)


def test_batches_of_sparse_rows_are_made_when_they_are_needed() -> None:
    rows, died = patients(size=10)
    batches, targets = in_batches((rows, died), 4)
    made = [batch() for batch in batches]
    assert [len(batch) for batch in made] == [4, 4, 2]
    dense = [batch for batch in made if isinstance(batch, Tensor)]
    assert len(dense) == 3
    np.testing.assert_array_equal(torch.cat(dense), rows.toarray())
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


def test_other_modules_get_dense_batches_of_sparse_rows() -> None:
    rows, died = patients()
    seen: list[torch.Size] = []

    class Unaware(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            seen.append(inputs.shape)
            return super().forward(inputs)

    module = Unaware(30, 1)
    found = TorchEvaluator(module, (rows, died), objective=Objective(loss=logistic_loss))(model_vector(module))
    assert sorted(seen) == [(10, 30), (50, 30)]
    with torch.no_grad():
        logits = module(torch.from_numpy(rows.toarray()))
    assert found["loss"] == pytest.approx(float(logistic_loss(logits, torch.from_numpy(died))), abs=1e-6)


@pytest.mark.parametrize("sparse", [True, False])
def test_sparse_rows_of_float64_become_float32(sparse: bool) -> None:
    rows, died = patients(size=10)
    [batch], _ = in_batches((rows.astype(np.float64), died), 10, sparse=sparse)
    [expected], _ = in_batches((rows, died), 10, sparse=sparse)
    assert SparseLinear(30, 8)(batch()).dtype == torch.float32
    for found, known in zip(batch(), expected(), strict=True):
        assert found.dtype == known.dtype
        assert torch.equal(found, known)


@pytest.mark.parametrize(
    ("examples", "refused", "reason"),
    [
        ((scipy.sparse.csr_array((3, 2), dtype=np.float32), np.zeros(2)), InvalidInput, "3 inputs but 2 targets"),
        ((scipy.sparse.csr_array((0, 2), dtype=np.float32), np.zeros(0)), CannotContribute, "empty"),
    ],
)
def test_unusable_sparse_data_is_refused(examples: object, refused: type[LowkeyError], reason: str) -> None:
    with pytest.raises(refused, match=reason):
        as_rows(examples)
