"""A client's data as two tensors, whatever form it came in."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import default_collate

from lowkey.errors import InvalidInput

Examples: TypeAlias = Any
"""Either a pair (inputs, targets) of arrays or tensors, or a map-style ``torch.utils.data.Dataset`` of such pairs."""


class ClientDatasets(Protocol):
    """One entry per client, such as a list; entries may be made on access, so that clients cost nothing until asked."""

    def __len__(self) -> int: ...

    def __getitem__(self, client: int, /) -> Examples: ...


def as_tensors(examples: Examples, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Inputs and targets, each with one row per example."""
    if not isinstance(examples, (tuple, list)):
        if not isinstance(examples, Sized):
            raise InvalidInput("a dataset must have a length: pass (inputs, targets) or a map-style dataset")
        if len(examples) == 0:
            raise InvalidInput("the dataset is empty; every client needs at least one example")
        examples = default_collate([examples[i] for i in range(len(examples))])  # type: ignore[index]
    if len(examples) != 2:
        raise InvalidInput(f"a dataset must give inputs and targets, not {len(examples)} parts")
    inputs, targets = (torch.as_tensor(part).to(device) for part in examples)
    if len(inputs) != len(targets):
        raise InvalidInput(f"the dataset has {len(inputs)} inputs but {len(targets)} targets; they must match")
    if len(inputs) == 0:
        raise InvalidInput("the dataset is empty; every client needs at least one example")
    return inputs, targets
