"""A client's data as two tensors, whatever form it came in."""

from __future__ import annotations

from collections.abc import Callable, Sized
from functools import partial
from typing import Any, Protocol, TypeAlias

import scipy.sparse
import torch
from torch import Tensor
from torch.utils.data import default_collate

from lowkey.errors import InvalidInput

Examples: TypeAlias = Any
"""A pair (inputs, targets) of arrays or tensors, whose inputs may be a SciPy sparse array of rows, or a map-style
``torch.utils.data.Dataset`` of such pairs."""


class ClientDatasets(Protocol):
    """One entry per client, such as a list; entries may be made on access, so that clients cost nothing until asked."""

    def __len__(self) -> int: ...

    def __getitem__(self, client: int, /) -> Examples: ...


def as_tensors(examples: Examples, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Inputs and targets, each with one row per example; sparse inputs become dense, so mind their number."""
    inputs, targets = _pair(examples)
    return _tensor(inputs, device), _tensor(targets, device)


def in_batches(examples: Examples, size: int, device: str = "cpu") -> tuple[list[Callable[[], Tensor]], Tensor]:
    """Inputs in batches, each made when it is called for, and all targets: sparse inputs never are dense as a whole."""
    inputs, targets = _pair(examples)
    if not _is_sparse(inputs):
        inputs = _tensor(inputs, device)
    starts = range(0, inputs.shape[0], size)
    return [partial(_rows, inputs, start, size, device) for start in starts], _tensor(targets, device)


def _rows(inputs: Any, start: int, size: int, device: str) -> Tensor:
    return _tensor(inputs[start : start + size], device)


def _tensor(part: Any, device: str) -> Tensor:
    return torch.as_tensor(part.toarray() if _is_sparse(part) else part).to(device)


def _is_sparse(part: Any) -> bool:
    return bool(scipy.sparse.issparse(part))


def _pair(examples: Examples) -> tuple[Any, Any]:
    if not isinstance(examples, (tuple, list)):
        if not isinstance(examples, Sized):
            raise InvalidInput("a dataset must have a length: pass (inputs, targets) or a map-style dataset")
        if len(examples) == 0:
            raise InvalidInput("the dataset is empty; every client needs at least one example")
        examples = default_collate([examples[i] for i in range(len(examples))])  # type: ignore[index]
    if len(examples) != 2:
        raise InvalidInput(f"a dataset must give inputs and targets, not {len(examples)} parts")
    inputs, targets = examples
    count = inputs.shape[0] if _is_sparse(inputs) else len(inputs)
    if count != len(targets):
        raise InvalidInput(f"the dataset has {count} inputs but {len(targets)} targets; they must match")
    if count == 0:
        raise InvalidInput("the dataset is empty; every client needs at least one example")
    return (inputs.tocsr() if _is_sparse(inputs) else inputs), targets
