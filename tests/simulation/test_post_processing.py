"""Optimisers and averages work on released sums: they spend nothing, and what they make is what is judged and kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import lowkey
from lowkey.experiments import RunDirectory
from lowkey.federation import Client, Federation, Schedule, initial_state, released_model
from lowkey.learning import TorchEvaluator, model_vector
from lowkey.privacy import Ledger
from lowkey.protocols import LocalUpdate
from lowkey.rng import ReplaySecrets
from lowkey.server import AVERAGES, OPTIMISERS, Averaging
from lowkey.simulation import InProcess, run
from lowkey.types import Evaluation
from tests.conftest import tiny_config
from tests.simulation.blobs import blobs

NOISE = ("privacy.noise_multiplier=1.0", "schedule.rounds=2")
COMBINED = [(optimiser, average) for optimiser in OPTIMISERS for average in AVERAGES]


@pytest.mark.parametrize(("optimiser", "average"), COMBINED)
def test_post_processing_spends_nothing(tmp_path: Path, optimiser: str, average: str) -> None:
    chosen = (f"server.optimiser={optimiser}", f"averaging.kind={average}")
    for name, changes, secrets in (
        ("usual", (), None),
        ("chosen", chosen, None),
        ("replayed", chosen, ReplaySecrets(3)),
    ):
        run(tiny_config("demo/fl-cs-dp", *NOISE, *changes), tmp_path / name, secrets=secrets)
    usual, *others = (Ledger.read(tmp_path / name / "ledger.jsonl") for name in ("usual", "chosen", "replayed"))
    assert len(usual.events) == 2
    for other in others:
        assert other.events == usual.events
        assert [(e.round, e.attempt, e.state) for e in other.entries] == [(1, 0, "RELEASED"), (2, 0, "RELEASED")]
    spent = [
        {key: line[key] for key in line if key.startswith("epsilon")}
        for line in (RunDirectory.open(tmp_path / name).metrics()[-1] for name in ("usual", "chosen", "replayed"))
    ]
    assert spent[0] == spent[1]
    assert spent[0]["epsilon_pld"] > 0
    assert set(spent[2].values()) == {None}  # replayed secrets: the same price, and no claim


def trained(
    averaging: Averaging, rounds: int = 6
) -> tuple[lowkey.Simulation, nn.Linear, list[np.ndarray], TorchEvaluator]:
    """The result, the model, and every vector that was evaluated on the way."""
    clients, test = blobs(clients=20)
    torch.manual_seed(0)
    model, seen = nn.Linear(5, 2), list[np.ndarray]()
    judge = TorchEvaluator(nn.Linear(5, 2), test)

    def evaluate(weights: np.ndarray) -> Evaluation:
        seen.append(weights.copy())
        return judge(weights)

    scheme = lowkey.scheme("fl-std", clients=20, cohort=10, server=lowkey.Adam(rate=0.05), averaging=averaging)
    result = lowkey.simulate(scheme=scheme, model=model, clients=clients, rounds=rounds, workers=0, evaluate=evaluate)
    return result, model, seen, judge


class Steady:
    """Every client always sends the same update."""

    num_clients, num_coordinates = 4, 3
    update = np.array([1.0, -2.0, 0.5], np.float32)

    def limit_threads(self, threads: int) -> None: ...

    def train(self, weights: np.ndarray, client: int, rng: np.random.Generator) -> LocalUpdate:
        return LocalUpdate(self.update, 1)


def test_an_optimiser_remembers_earlier_rounds() -> None:
    """u grows as 1, 1.5, 1.75 times a steady update; the model moves by half of their sum."""
    scheme = lowkey.scheme("fl-std", clients=4, cohort=4, server=lowkey.Momentum(rate=0.5, momentum=0.5))
    federation = Federation(
        scheme=scheme, ask=InProcess(Client(scheme=scheme, trainer=Steady())), evaluate=lambda weights: {}
    )
    state, _ = federation.run(initial_state(scheme, np.zeros(3, np.float32)), Schedule(rounds=3))
    np.testing.assert_allclose(state.weights, 0.5 * (1 + 1.5 + 1.75) * Steady.update, rtol=1e-6)
    np.testing.assert_allclose(state.optimiser["momentum"], 1.75 * Steady.update, rtol=1e-6)


def test_what_is_evaluated_and_loaded_is_the_average() -> None:
    _, _, iterates, judge = trained(lowkey.LastIterate())
    result, model, seen, _ = trained(lowkey.TailAverage(start=3))
    by_hand = [
        iterates[number] if number < 2 else np.mean(iterates[2 : number + 1], axis=0, dtype=np.float64)
        for number in range(6)
    ]
    np.testing.assert_allclose(seen, by_hand, rtol=1e-5, atol=1e-7)  # clients went on from the same iterates
    assert not np.allclose(seen[-1], iterates[-1], rtol=1e-3)
    for metrics, average in zip(result.metrics, by_hand, strict=True):
        alone = judge(np.asarray(average, np.float32))
        assert metrics["loss"] == pytest.approx(alone["loss"], rel=1e-5)
        assert metrics["accuracy"] == pytest.approx(alone["accuracy"], abs=0.003)
    np.testing.assert_array_equal(result.weights, seen[-1])
    np.testing.assert_array_equal(model_vector(model), seen[-1])


def test_an_exponential_average_is_evaluated_and_loaded() -> None:
    _, _, iterates, _ = trained(lowkey.LastIterate())
    result, model, seen, _ = trained(lowkey.ExponentialAverage(decay=0.75))
    average = iterates[0].astype(np.float64)
    for number, released in enumerate(seen):
        average = 0.75 * average + 0.25 * iterates[number] if number else average
        np.testing.assert_allclose(released, average, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(model_vector(model), result.weights)
    np.testing.assert_array_equal(result.weights, seen[-1])


def test_a_run_in_a_directory_evaluates_the_average_and_keeps_both(run_path: Path) -> None:
    config = tiny_config("demo/fl-std", "averaging.kind=tail", "schedule.rounds=4")
    run(config, run_path)
    directory = RunDirectory.open(run_path)
    state = directory.load_checkpoint(directory.ledger())
    directory.unlock()
    assert state is not None
    study, task = config.study, config.find_task()
    judge = TorchEvaluator(task.model(study), task.test(study), objective=task.objective(study))
    average = released_model(config.scheme(), state)
    assert not np.array_equal(average, state.weights)
    last = directory.metrics()[-1]
    assert last["loss"] == pytest.approx(judge(average)["loss"], rel=1e-6)
    assert last["loss"] != pytest.approx(judge(state.weights)["loss"], rel=1e-4)
