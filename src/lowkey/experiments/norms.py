"""Norms of first updates: they give a clip norm from public data, before any private data is touched."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lowkey import checks
from lowkey.experiments.building import Experiment
from lowkey.rng import PublicStream, generator, subset


def first_norms(experiment: Experiment, clients: int) -> NDArray[np.float64]:
    """Norms of the compressed first updates of this many random clients.

    The result is not private: use public, synthetic or your own data, and choose the clip norm from it.
    """
    scheme, start, trainer = experiment.scheme, experiment.initial_weights, experiment.trainer
    checks.at_least("clients", clients, 1)
    operator = scheme.operator(start.size, 1)
    chosen = subset(PublicStream(scheme.seed, "norms"), trainer.num_clients, min(clients, trainer.num_clients))
    norms = []
    for client in chosen.tolist():
        local = trainer.train(start, client, generator(scheme.seed, "local training", 1, client))
        norms.append(checks.finite_norm("update", operator.forward(local.update)))
    return np.array(norms)
