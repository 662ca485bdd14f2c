"""Clients' data with features in place of inputs: computed once by every client, and kept."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, Protocol

import numpy as np

from lowkey.errors import InvalidInput
from lowkey.features.maps import FeatureMap, Rows, is_sparse


class Datasets(Protocol):
    """One entry per client, (inputs, targets) or a map-style dataset of such pairs, as trainers take them."""

    def __len__(self) -> int: ...

    def __getitem__(self, client: int, /) -> Any: ...


def features_of(inputs: Rows, mapping: FeatureMap) -> Rows:
    """Features of rows, with a check of what the map gave.

    Parameters
    ----------
    inputs : array, tensor or SciPy sparse array
        One row per example.
    mapping : FeatureMap
        The map; your own maps are checked as ours are.

    Returns
    -------
    array or SciPy sparse array
        float32, one row per row of ``inputs``.
    """
    if hasattr(inputs, "detach"):  # a tensor
        inputs = inputs.detach().cpu().numpy()
    elif not is_sparse(inputs):
        inputs = np.asarray(inputs)
    width, mapped = mapping.width(inputs.shape[1:]), mapping(inputs)
    mapped = mapped.astype(np.float32, copy=False) if is_sparse(mapped) else np.asarray(mapped, np.float32)
    if mapped.shape[0] != inputs.shape[0] or int(np.prod(mapped.shape[1:])) != width:
        raise InvalidInput(
            f"the feature map made an array of shape {mapped.shape} of {inputs.shape[0]} rows; it says that it makes "
            f"{width} numbers of each"
        )
    if not np.isfinite(mapped.data if is_sparse(mapped) else mapped).all():
        raise InvalidInput("the feature map made NaN or infinite numbers; clean the data, or scale it first")
    return mapped


class FeaturedClients:
    """A lazy sequence of clients whose inputs are features; satisfies :class:`lowkey.learning.ClientDatasets`.

    A client's features are computed when they are first asked for. Worker processes that are forked have what was
    computed before, and keep what they compute themselves.

    Parameters
    ----------
    clients : Datasets
        The clients' data.
    mapping : FeatureMap
        The map.
    keep : bool
        Keep the features of every client that was asked for; without, they are computed each time and cost no memory.
    """

    def __init__(self, clients: Datasets, mapping: FeatureMap, *, keep: bool = True) -> None:
        self.mapping = mapping
        self._clients, self._keep = clients, keep
        self._kept: dict[int, tuple[Any, ...]] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def __getitem__(self, client: int, /) -> tuple[Any, ...]:
        if client in self._kept:
            return self._kept[client]
        inputs, targets, *ids = _parts(self._clients[client])
        mapped = (features_of(inputs, self.mapping) if len(targets) else inputs), targets, *ids
        if self._keep:
            self._kept[client] = mapped
        return mapped

    def fill(self) -> None:
        """Compute and keep the features of all clients now, so that worker processes started later have them."""
        if not self._keep:
            raise InvalidInput("these features are not kept, so that nothing can be computed ahead; set keep=True")
        for client in range(len(self)):
            try:
                self[client]
            except InvalidInput as error:
                raise InvalidInput(f"data of client {client}: {error}") from error


def with_features(clients: Datasets, mapping: FeatureMap, *, keep: bool = True) -> FeaturedClients:
    """The same clients with features in place of their inputs; see :class:`FeaturedClients`."""
    return FeaturedClients(clients, mapping, keep=keep)


def _parts(examples: Any) -> tuple[Any, ...]:
    """Inputs and targets of a client, and person ids if it has any, each with one row per example."""
    if isinstance(examples, (tuple, list)):
        if len(examples) not in (2, 3):
            raise InvalidInput(f"a dataset must give inputs and targets, not {len(examples)} parts")
        return tuple(examples)
    if not isinstance(examples, Sized) or not hasattr(examples, "__getitem__"):
        raise InvalidInput(
            f"the data of a client is a {type(examples).__name__}; pass (inputs, targets) or a map-style dataset"
        )
    rows = [examples[place] for place in range(len(examples))]
    return tuple(np.array([np.asarray(one) for one in part]) for part in zip(*rows, strict=True))
