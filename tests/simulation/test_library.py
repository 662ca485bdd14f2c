"""The library's front door, and the example of the README as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import lowkey
from lowkey.errors import InvalidInput
from lowkey.rng import ReplaySecrets

README = Path(__file__).parents[2] / "README.md"


def blobs(
    clients: int = 60, each: int = 8
) -> tuple[list[tuple[np.ndarray, np.ndarray]], tuple[np.ndarray, np.ndarray]]:
    """Two clouds of points that a linear model tells apart."""
    rng = np.random.default_rng(0)

    def draw(size: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.integers(0, 2, size)
        return (rng.normal(size=(size, 5)) + 1.5 * labels[:, None]).astype(np.float32), labels

    return [draw(each) for _ in range(clients)], draw(400)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", lowkey.SCHEMES)
def test_every_scheme_learns(name: str, workers: int) -> None:
    clients, test = blobs()
    private = {"clip_norm": 0.5, "noise_multiplier": 0.8, "delta": 1e-3} if name.endswith("-dp") else {}
    ratio = 1.0 if name.startswith("fl-std") else 0.5
    scheme = lowkey.make_scheme(
        name, num_clients=60, cohort=20, ratio=ratio, chunks=2, server_rate=1.0, momentum=0.0, **private
    )
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
    result = lowkey.simulate(
        scheme=scheme, model=model, clients=clients, test=test, rounds=25, workers=workers,
        sgd=lowkey.LocalSGD(steps=3, batch_size=8, learning_rate=0.3),
    )  # fmt: skip
    assert result.accuracy > 0.8
    assert len(result.metrics) == 25
    assert (result.epsilon is None) is (not name.endswith("-dp"))
    with torch.no_grad():  # the model holds what was learned
        correct = (model(torch.from_numpy(test[0])).argmax(1).numpy() == test[1]).mean()
    assert correct == pytest.approx(result.accuracy, abs=1e-6)


def test_replay_gives_the_same_private_model_with_and_without_workers() -> None:
    clients, test = blobs()
    scheme = lowkey.make_scheme(
        "fl-cs-dp", num_clients=60, cohort=20, ratio=0.5, chunks=2, clip_norm=0.5, noise_multiplier=1.0
    )
    weights = []
    for workers in (0, 2):
        torch.manual_seed(0)
        result = lowkey.simulate(
            scheme=scheme, model=nn.Linear(5, 2), clients=clients, test=test, rounds=3, workers=workers,
            secrets=ReplaySecrets(0),
        )  # fmt: skip
        assert result.epsilon is None
        weights.append(result.weights)
    np.testing.assert_array_equal(*weights)


def test_own_metrics_and_target() -> None:
    clients, test = blobs()
    scheme = lowkey.make_scheme("fl-std-dp", num_clients=60, cohort=20, clip_norm=0.5, noise_multiplier=2.0, delta=1e-3)
    result = lowkey.simulate(
        scheme=scheme, model=nn.Linear(5, 2), clients=clients, test=test, rounds=100, epsilon=2.0, workers=0,
        evaluate=lambda weights: {"accuracy": 0.25, "loss": 0.0, "norm": float(np.linalg.norm(weights))},
    )  # fmt: skip
    assert result.stopped == "privacy target"
    assert result.epsilon is not None
    assert result.epsilon.pld <= 2.0
    assert result.metrics[0]["norm"] > 0


def test_wrong_number_of_clients_is_refused() -> None:
    clients, test = blobs()
    scheme = lowkey.make_scheme("fl-std", num_clients=61, cohort=20)
    with pytest.raises(InvalidInput, match="num_clients=len"):
        lowkey.simulate(scheme=scheme, model=nn.Linear(5, 2), clients=clients, test=test, rounds=1)


def test_empty_client_is_named() -> None:
    clients, test = blobs(clients=20)
    clients[4] = (clients[4][0][:0], clients[4][1][:0])
    scheme = lowkey.make_scheme("fl-std", num_clients=20, cohort=20)
    with pytest.raises(lowkey.LowkeyError, match=r"client 4 failed in stage 'train'.*empty"):
        lowkey.simulate(scheme=scheme, model=nn.Linear(5, 2), clients=clients, test=test, rounds=1, workers=0)


def test_readme_example(capsys: pytest.CaptureFixture[str]) -> None:
    """The Python block of the README runs as printed, in about 20 lines."""
    block = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    assert len(block[1].strip().splitlines()) <= 25
    exec(compile(block[1], "README.md", "exec"), {"__name__": "readme"})
    assert "ε" in capsys.readouterr().out
