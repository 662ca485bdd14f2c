"""Norms of first updates: they give a clip norm from public data, before any private data is touched."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from lowkey import checks
from lowkey.experiments.building import Experiment
from lowkey.protocols import PersonTrainer
from lowkey.rng import PublicStream, generator, subset


def first_norms(experiment: Experiment, clients: int) -> NDArray[np.float64]:
    """Norms of the compressed first updates of this many random clients, or of their persons where those are protected.

    The result is not private: use public, synthetic or your own data, and choose the clip norm from it.
    """
    scheme, start, trainer = experiment.scheme, experiment.initial_weights, experiment.trainer
    checks.at_least("clients", clients, 1)
    operator = scheme.operator(start.size, 1)
    chosen = subset(PublicStream(scheme.seed, "norms"), trainer.num_clients, min(clients, trainer.num_clients))
    norms: list[float] = []
    for client in chosen.tolist():
        rng = generator(scheme.seed, "local training", 1, client)
        if scheme.privacy.by_person:
            blocks = cast(PersonTrainer, trainer).train_persons(start, client, rng)
            updates = [row for block in blocks for row in block]
        else:
            updates = [trainer.train(start, client, rng).update]
        norms += [checks.finite_norm("update", operator.forward(update)) for update in updates]
    return np.array(norms)
