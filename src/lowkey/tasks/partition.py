"""Which examples belong to which client."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lowkey import checks
from lowkey.errors import InvalidInput


@dataclass(frozen=True)
class Partition:
    """Rows of a table, grouped by client: client c holds ``rows[starts[c]:starts[c + 1]]``."""

    rows: NDArray[np.intp] = field(repr=False)
    starts: NDArray[np.intp] = field(repr=False)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, client: int) -> NDArray[np.intp]:
        if not 0 <= client < len(self):
            raise IndexError(f"client is {client}; it must lie in 0 … {len(self) - 1}")
        return self.rows[self.starts[client] : self.starts[client + 1]]

    @property
    def sizes(self) -> NDArray[np.intp]:
        return np.diff(self.starts)


def _from_sizes(rows: NDArray[np.intp], sizes: NDArray[np.intp]) -> Partition:
    return Partition(rows, np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp))


def _check(num_examples: int, num_clients: int) -> None:
    checks.at_least("federation.clients", num_clients, 1)
    if num_clients > num_examples:
        raise InvalidInput(
            f"federation.clients is {num_clients}, but there are only {num_examples} examples; every client needs one"
        )


def iid_shards(num_examples: int, num_clients: int, rng: np.random.Generator) -> Partition:
    """Random shards of equal size (they differ by at most one example)."""
    _check(num_examples, num_clients)
    small, larger = divmod(num_examples, num_clients)
    sizes = np.full(num_clients, small, np.intp)
    sizes[:larger] += 1
    return _from_sizes(rng.permutation(num_examples).astype(np.intp), sizes)


def dirichlet_shards(labels: ArrayLike, num_clients: int, alpha: float, rng: np.random.Generator) -> Partition:
    """Label skew: each class is spread over the clients by fractions drawn from Dirichlet(alpha).

    Small ``alpha`` gives clients of few classes and unequal size; large ``alpha`` approaches IID. Every client gets at
    least one example: an empty client takes one from the largest.

    References
    ----------
    Hsu, Qi and Brown (2019), *Measuring the effects of non-identical data distribution*.
    """
    values = np.asarray(labels)
    _check(len(values), num_clients)
    checks.positive("data.alpha", alpha)
    owner = np.empty(len(values), np.intp)
    for label in np.unique(values):
        members = rng.permutation(np.flatnonzero(values == label))
        fractions = rng.dirichlet(np.full(num_clients, alpha))
        cuts = np.rint(np.cumsum(fractions) * len(members)).astype(np.intp)[:-1]
        owner[members] = np.searchsorted(cuts, np.arange(len(members)), side="right")
    sizes = np.bincount(owner, minlength=num_clients)
    for client in np.flatnonzero(sizes == 0):
        donor = int(sizes.argmax())
        owner[rng.choice(np.flatnonzero(owner == donor))] = client
        sizes[donor] -= 1
        sizes[client] += 1
    return by_ids(owner)


def by_ids(ids: ArrayLike) -> Partition:
    """One client for each distinct id (a hospital, a user), in ascending order of the ids."""
    values = np.asarray(ids)
    if values.ndim != 1 or len(values) == 0:
        raise InvalidInput(f"client ids have shape {values.shape}; they must be a vector with one id per example")
    _, owner, sizes = np.unique(values, return_inverse=True, return_counts=True)
    return _from_sizes(np.argsort(owner, kind="stable").astype(np.intp), sizes.astype(np.intp))
