"""A client's data as rows, whatever form it came in; sparse rows stay sparse until dense rows are needed."""

from __future__ import annotations

from collections.abc import Callable, Sized
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from lowkey.errors import CannotContribute, InvalidInput

Examples: TypeAlias = Any
"""A pair (inputs, targets) of arrays or tensors, whose inputs may be a SciPy sparse array of rows, or a map-style
``torch.utils.data.Dataset`` of such pairs. A third part, where there is one, says which person each row is about."""


class ClientDatasets(Protocol):
    """One entry per client, such as a list; entries may be made on access, so that clients cost nothing before."""

    def __len__(self) -> int: ...

    def __getitem__(self, client: int, /) -> Examples: ...


class SparseBatch(NamedTuple):
    """Sparse rows as tensors: row i has ``values[starts[i]:starts[i + 1]]`` in the ``columns`` of the same places."""

    starts: Tensor
    columns: Tensor
    values: Tensor


def as_rows(examples: Examples, device: str = "cpu") -> tuple[Any, Tensor]:
    """Inputs and targets, each with one row per example: tensors, but sparse inputs stay a SciPy array.

    Real numbers become float32 and whole targets int64, which models and losses expect, whatever type they come in.
    """
    inputs, targets, _ = _parts(examples)
    labels = _tensor(targets, device)
    if not labels.is_floating_point():
        labels = labels.long()
    return (inputs if _is_sparse(inputs) else _tensor(inputs, device)), labels


def as_arrays(examples: Examples) -> tuple[Any, NDArray[Any]]:
    """The same as NumPy arrays, for computations without PyTorch; sparse inputs stay a SciPy array."""
    inputs, targets, _ = _parts(examples)
    if not _is_sparse(inputs):
        inputs = np.asarray(inputs, np.float32)
    return inputs, np.asarray(targets)


class Persons(NamedTuple):
    """Rows in the order of their persons: person p has ``rows[starts[p]:starts[p + 1]]``."""

    rows: NDArray[np.intp]
    starts: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def blocks(self, size: int) -> list[Persons]:
        """The same persons, as many together as have ``size`` rows at most, but at least one."""
        found, first = [], 0
        while first < (count := len(self.starts) - 1):
            last = int(np.searchsorted(self.starts, self.starts[first] + size, side="right")) - 1
            last = min(max(last, first + 1), count)
            starts = self.starts[first : last + 1]
            found.append(Persons(self.rows[starts[0] : starts[-1]], starts - starts[0]))
            first = last
        return found


def persons_of(examples: Examples, *, by_row: bool) -> Persons:
    """Which rows belong together; each stands alone if ``by_row`` is true, whatever ids there are."""
    _, targets, ids = _parts(examples)
    if by_row:
        return Persons(np.arange(len(targets)), np.arange(len(targets) + 1))
    if ids is None:
        raise InvalidInput(
            "privacy.unit is 'person', but the data does not say which rows are about one person; give (inputs, "
            "targets, person ids), or let every row count by itself, and say what it is: privacy.row = 'admission'"
        )
    _, person, counts = np.unique(np.asarray(ids), return_inverse=True, return_counts=True)
    return Persons(np.argsort(person, kind="stable"), np.concatenate([[0], np.cumsum(counts)]))


def dense(inputs: Any, device: str = "cpu") -> Tensor:
    """Inputs of :func:`as_rows` as one tensor; of sparse inputs choose few rows first."""
    return _tensor(inputs.toarray() if _is_sparse(inputs) else inputs, device)


def in_batches(
    examples: Examples, size: int, device: str = "cpu", *, sparse: bool = False
) -> tuple[list[Callable[[], Tensor | SparseBatch]], Tensor]:
    """Inputs in batches, each made when it is needed, and all targets.

    Sparse inputs become a :class:`SparseBatch` per batch if ``sparse`` is true, and dense batches otherwise.
    """
    try:
        inputs, targets = as_rows(examples, device)
    except (InvalidInput, CannotContribute) as error:
        raise InvalidInput(f"test data: {error}") from error
    make = _sparse_batch if sparse and _is_sparse(inputs) else _dense_batch
    return [partial(make, inputs, start, size, device) for start in range(0, inputs.shape[0], size)], targets


def _dense_batch(inputs: Any, start: int, size: int, device: str) -> Tensor:
    return dense(inputs[start : start + size], device)


def _sparse_batch(inputs: Any, start: int, size: int, device: str) -> SparseBatch:
    rows = inputs[start : start + size]
    return SparseBatch(*(_tensor(part, device) for part in (rows.indptr, rows.indices, rows.data)))


def _tensor(part: Any, device: str) -> Tensor:
    tensor = torch.as_tensor(part).to(device)
    return tensor.float() if tensor.is_floating_point() else tensor


def _is_sparse(part: Any) -> bool:
    return bool(scipy.sparse.issparse(part))


def _parts(examples: Examples) -> tuple[Any, Any, Any]:
    """Inputs, targets, and person ids or None."""
    if isinstance(examples, DataLoader):
        raise InvalidInput("a dataset is a DataLoader, which makes its own batches; pass its .dataset")
    if not isinstance(examples, (tuple, list)):
        if not isinstance(examples, Sized):
            raise InvalidInput("a dataset must have a length: pass (inputs, targets) or a map-style dataset")
        if len(examples) == 0:
            raise CannotContribute("its dataset is empty")
        examples = default_collate([examples[i] for i in range(len(examples))])  # type: ignore[index]
    if len(examples) not in (2, 3):
        raise InvalidInput(
            f"a dataset must give inputs and targets, not {len(examples)} parts; a third may say whose each row is"
        )
    inputs, targets, ids = (*examples, None)[:3]
    count = inputs.shape[0] if _is_sparse(inputs) else len(inputs)
    if count != len(targets):
        raise InvalidInput(f"the dataset has {count} inputs but {len(targets)} targets; they must match")
    if ids is not None and len(ids) != count:
        raise InvalidInput(f"the dataset has {count} rows but {len(ids)} person ids; they must match")
    if count == 0:
        raise CannotContribute("its dataset is empty")
    return (inputs.tocsr() if _is_sparse(inputs) else inputs), targets, ids
