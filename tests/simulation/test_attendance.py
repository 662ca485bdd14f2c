"""Clients that have nothing to send: counted, left out or hidden in noise; half of a cohort of them stops the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lowkey
from lowkey.errors import CannotContribute, ClientFailed
from lowkey.experiments import RunDirectory
from lowkey.federation import Federation, Schedule, Scheme, initial_state
from lowkey.learning import LocalSGD, TorchTrainer, layer_sizes, model_vector
from lowkey.privacy import Ledger
from lowkey.protocols import LocalUpdate, Trainer
from lowkey.rng import OSSecrets
from lowkey.simulation import SimulatedKeys, open_runtime, run
from lowkey.timing import StageClock
from tests.conftest import tiny_config
from tests.simulation.blobs import Rows, blobs

CLIENTS = 20
PRIVACY = lowkey.ClientPrivacy(clip_norm=0.5, noise_multiplier=1.0, delta=1e-3, dropouts=0.0, colluders=0.0)
EMPTY = (np.zeros((0, 5), np.float32), np.zeros(0, np.int64))


def everybody(name: str, **privacy: Any) -> Scheme:
    """All clients take part in every round."""
    codec = lowkey.ChunkedDCT(ratio=0.5, chunks=2) if name.startswith("fl-cs") else None
    settings = replace(PRIVACY, **privacy) if name.endswith("-dp") else None
    return lowkey.scheme(name, clients=CLIENTS, cohort=CLIENTS, codec=codec, privacy=settings)


def learned(scheme: Scheme, clients: list[Rows], *, rounds: int = 2, **others: Any) -> lowkey.Simulation:
    torch.manual_seed(0)
    model = nn.Linear(5, 2)
    return lowkey.simulate(scheme=scheme, model=model, clients=clients, test=blobs()[1], rounds=rounds, **others)


def run_rounds(scheme: Scheme, trainer: Trainer, weights: np.ndarray, *, ledger: Ledger, workers: int) -> None:
    """Two rounds with a ledger that can be looked at afterwards."""
    clock, secrets = StageClock(), OSSecrets()
    keys = SimulatedKeys(CLIENTS, secrets)
    with open_runtime(scheme=scheme, trainer=trainer, secrets=secrets, clock=clock, workers=workers, keys=keys) as ask:
        federation = Federation(
            scheme=scheme, ask=ask, evaluate=lambda w: {}, ledger=ledger, secrets=secrets, verify_keys=keys
        )
        federation.run(initial_state(scheme, weights), Schedule(rounds=2))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["fl-std-dp", "fl-cs-dp"])
def test_a_client_without_data_is_counted_and_a_private_run_goes_on(name: str, workers: int) -> None:
    clients, _ = blobs(clients=CLIENTS)
    clients[4] = EMPTY
    result = learned(everybody(name), clients, rounds=3, workers=workers)
    assert [metrics["could_not_contribute"] for metrics in result.metrics] == [1, 1, 1]
    assert [metrics["survivors"] for metrics in result.metrics] == [CLIENTS] * 3  # it has sent noise like all others
    assert result.epsilon is not None


@pytest.mark.parametrize("workers", [0, 2])
def test_under_secure_aggregation_it_is_counted_once_a_round(workers: int) -> None:
    clients, _ = blobs(clients=CLIENTS)
    clients[4] = EMPTY
    result = learned(everybody("fl-std-dp", aggregation="masked"), clients, workers=workers)
    assert [metrics["could_not_contribute"] for metrics in result.metrics] == [1, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_open_scheme_leaves_it_out(workers: int) -> None:
    """The mean is that of the others, as if it did not exist."""
    clients, _ = blobs(clients=CLIENTS)
    others = clients[:-1]
    clients[-1] = EMPTY
    result = learned(everybody("fl-std"), clients, workers=workers)
    assert [(m["survivors"], m["could_not_contribute"]) for m in result.metrics] == [(CLIENTS - 1, 1)] * 2
    alone = learned(lowkey.scheme("fl-std", clients=CLIENTS - 1, cohort=CLIENTS - 1), others, workers=workers)
    np.testing.assert_allclose(result.weights, alone.weights, rtol=1e-5, atol=1e-7)


def test_metrics_say_nothing_where_everybody_contributes() -> None:
    clients, _ = blobs(clients=CLIENTS)
    for name in ("fl-std", "fl-std-dp"):
        assert "could_not_contribute" not in learned(everybody(name), clients, workers=0).metrics[-1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("empty", "stops"), [(9, False), (10, True)])
@pytest.mark.parametrize("name", ["fl-std", "fl-std-dp"])
def test_half_of_a_cohort_stops_the_run(name: str, empty: int, stops: bool, workers: int) -> None:
    clients = blobs(clients=CLIENTS)[0][empty:] + [EMPTY] * empty
    if not stops:
        assert learned(everybody(name), clients, workers=workers).metrics[-1]["could_not_contribute"] == empty
        return
    with pytest.raises(CannotContribute, match=r"10 of the 20 clients.*reason of the last one: its dataset is empty"):
        learned(everybody(name), clients, workers=workers)


def no_features(clients: list[Rows]) -> tuple[list[Rows], LocalSGD]:
    return [(np.full_like(inputs, np.nan), targets) for inputs, targets in clients], LocalSGD()


def wild_steps(clients: list[Rows]) -> tuple[list[Rows], LocalSGD]:
    return clients, LocalSGD(learning_rate=1e20, steps=9)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("aggregation", ["plain", "masked"])
@pytest.mark.parametrize("spoil", [no_features, wild_steps])
def test_updates_that_are_no_numbers_stop_a_private_run_and_release_nothing(
    spoil: Callable[[list[Rows]], tuple[list[Rows], LocalSGD]], aggregation: str, workers: int
) -> None:
    clients, sgd = spoil(blobs(clients=CLIENTS)[0])
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
    scheme = everybody("fl-cs-dp", aggregation=aggregation).for_layers(layer_sizes(model))
    ledger = Ledger(None, run="test")
    with pytest.raises(CannotContribute, match=r"20 of the 20 clients.*NaN or infinite.*lower the learning rate"):
        run_rounds(scheme, TorchTrainer(model, clients, sgd), model_vector(model), ledger=ledger, workers=workers)
    assert [entry.state for entry in ledger.entries] == ["INTENT"]  # vectors were asked for, and no sum was known


def test_a_diverging_run_has_paid_for_one_attempt(run_path: Path) -> None:
    wild = tiny_config("demo/fl-cs-dp", "privacy.noise_multiplier=1.0", "training.learning_rate=1e20")
    with pytest.raises(CannotContribute, match="NaN or infinite"):
        run(wild, run_path)
    assert [entry.state for entry in Ledger.read(run_path / "ledger.jsonl").entries] == ["INTENT"]
    assert RunDirectory.open(run_path).metrics() == []


class Careless:
    """Trains in float64, as NumPy does unless told otherwise."""

    num_clients, num_coordinates = CLIENTS, 12

    def limit_threads(self, threads: int) -> None: ...

    def train(self, weights: np.ndarray, client: int, rng: np.random.Generator) -> LocalUpdate:
        return LocalUpdate(rng.normal(size=12).astype(np.float64 if client == 7 else np.float32), 1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["fl-std-dp", "fl-cs-dp", "fl-std"])
def test_a_trainer_that_returns_float64_is_a_defect_and_names_the_client(name: str, workers: int) -> None:
    """It must not pass for a client without data, whose zeros would hide the defect in the noise."""
    ledger = Ledger(None, run="test")
    with pytest.raises(ClientFailed, match=r"client 7 failed in stage 'compress'.*float64; it must be float32"):
        run_rounds(everybody(name), Careless(), np.zeros(12, np.float32), ledger=ledger, workers=workers)
    assert [entry.state for entry in ledger.entries] == (["INTENT"] if name.endswith("-dp") else [])
