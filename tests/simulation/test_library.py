"""The library's front door, and the example of the README as it stands there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lowkey
from lowkey.errors import InvalidInput
from lowkey.protocols import Codec
from lowkey.rng import ReplaySecrets
from tests.simulation.blobs import blobs

README = Path(__file__).parents[2] / "README.md"
PRIVACY = lowkey.ClientPrivacy(clip_norm=0.5, noise_multiplier=0.8, delta=1e-3)
CODECS: dict[str, Codec] = {
    "fl-std": lowkey.WholeUpdate(),
    "fl-rnd": lowkey.RandomSubset(ratio=0.5),
    "fl-freq": lowkey.LowPassDCT(ratio=0.5),
    "fl-cs": lowkey.ChunkedDCT(ratio=0.5, chunks=2),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", lowkey.SCHEMES)
def test_every_scheme_learns(name: str, workers: int) -> None:
    clients, test = blobs()
    family, private = name.removesuffix("-dp"), name.endswith("-dp")
    gather = lowkey.ErrorFeedback(rate=1.0, momentum=0.0) if family == "fl-cs" else None
    scheme = lowkey.scheme(
        name, clients=60, cohort=20, codec=CODECS[family], gather=gather, privacy=PRIVACY if private else None
    )
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
    result = lowkey.simulate(
        scheme=scheme, model=model, clients=clients, test=test, rounds=25, workers=workers,
        training=lowkey.LocalSGD(steps=3, batch_size=8, learning_rate=0.3),
    )  # fmt: skip
    assert result.accuracy > 0.8
    assert len(result.metrics) == 25
    assert (result.epsilon is None) is (not private)
    with torch.no_grad():  # the model holds what was learned
        correct = (model(torch.from_numpy(test[0])).argmax(1).numpy() == test[1]).mean()
    assert correct == pytest.approx(result.accuracy, abs=1e-6)


def test_replay_gives_the_same_private_model_with_and_without_workers() -> None:
    clients, test = blobs()
    privacy = lowkey.ClientPrivacy(clip_norm=0.5, noise_multiplier=1.0)
    scheme = lowkey.scheme("fl-cs-dp", clients=60, cohort=20, codec=CODECS["fl-cs"], privacy=privacy)
    weights = []
    for workers in (0, 2):
        torch.manual_seed(0)
        result = lowkey.simulate(
            scheme=scheme, model=nn.Linear(5, 2), clients=clients, test=test, rounds=3, workers=workers,
            secrets=ReplaySecrets(0),
        )  # fmt: skip
        assert result.epsilon is None
        weights.append(result.weights)
    np.testing.assert_array_equal(weights[0], weights[1])


def test_own_metrics_and_target() -> None:
    clients, test = blobs()
    privacy = lowkey.ClientPrivacy(clip_norm=0.5, noise_multiplier=2.0, delta=1e-3, epsilon=2.0)
    scheme = lowkey.scheme("fl-std-dp", clients=60, cohort=20, privacy=privacy)
    seen: list[int] = []
    result = lowkey.simulate(
        scheme=scheme, model=nn.Linear(5, 2), clients=clients, test=test, rounds=100, workers=0,
        evaluate=lambda weights: {"accuracy": 0.25, "loss": 0.0, "norm": float(np.linalg.norm(weights))},
        observers=[lambda metrics: seen.append(metrics["round"])],
    )  # fmt: skip
    assert result.stopped == "privacy target"
    assert result.epsilon is not None
    assert result.epsilon.pld <= 2.0
    assert result.metrics[0]["norm"] > 0
    assert seen == [metrics["round"] for metrics in result.metrics] == list(range(1, len(seen) + 1))


def test_noise_that_is_not_given_is_calibrated() -> None:
    clients, _ = blobs()
    privacy = lowkey.ClientPrivacy(clip_norm=0.5, delta=1e-3, epsilon=3.0, rounds=4)
    scheme = lowkey.scheme("fl-std-dp", clients=60, cohort=20, privacy=privacy)
    result = lowkey.simulate(scheme=scheme, model=nn.Linear(5, 2), clients=clients, rounds=9, workers=0)
    assert (len(result.metrics), result.stopped) == (5, "privacy target")  # the spare attempt was not needed
    assert result.epsilon is not None
    assert 2.9 < result.epsilon.pld <= 3.0


def test_without_test_data_nothing_is_measured() -> None:
    clients, _ = blobs(clients=10)
    scheme = lowkey.scheme("fl-std", clients=10, cohort=5)
    result = lowkey.simulate(scheme=scheme, model=nn.Linear(5, 2), clients=clients, rounds=2, workers=0)
    assert not {"accuracy", "loss"} & result.metrics[-1].keys()
    assert len(result.metrics) == 2


def test_wrong_number_of_clients_is_refused() -> None:
    clients, test = blobs()
    scheme = lowkey.scheme("fl-std", clients=61, cohort=20)
    with pytest.raises(InvalidInput, match="made for 61 clients, but there are 60 datasets; pass clients=len"):
        lowkey.simulate(scheme=scheme, model=nn.Linear(5, 2), clients=clients, test=test, rounds=1)


def simulated(**changes: Any) -> lowkey.Simulation:
    clients, test = blobs(clients=10)
    setting: dict[str, Any] = {"model": nn.Linear(5, 2), "clients": clients, "test": test, "rounds": 1, "workers": 0}
    setting["scheme"] = lowkey.scheme("fl-std", clients=10, cohort=5)
    return lowkey.simulate(**(setting | changes))


def made(name: str, **setting: Any) -> lowkey.Scheme:
    return lowkey.scheme(name, **setting)


def chunked(ratio: float) -> lowkey.Scheme:
    return lowkey.scheme("fl-cs", clients=10, cohort=5, codec=lowkey.ChunkedDCT(ratio=ratio, chunks=2))


def private(**changes: Any) -> lowkey.Scheme:
    settings = lowkey.ClientPrivacy(**({"clip_norm": 0.5, "noise_multiplier": 1.0, "delta": 1e-3} | changes))
    return lowkey.scheme("fl-std-dp", clients=10, cohort=5, privacy=settings)


@pytest.mark.parametrize(
    ("mistake", "named"),
    [
        (lambda: simulated(clients=(blob for blob in blobs(clients=10)[0])), "clients is a generator.*pass a list"),
        (lambda: simulated(rounds=2.5), r"schedule\.rounds is 2\.5; it must be a whole number"),
        (lambda: simulated(rounds=0), r"schedule\.rounds is 0"),
        (lambda: simulated(rounds="auto"), r"schedule\.rounds is 'auto'"),
        (lambda: simulated(training=lowkey.LocalSGD(steps=0)), r"training\.steps is 0"),
        (lambda: simulated(scheme=chunked(1e-9)), r"codec\.ratio is 1e-09"),
        (lambda: simulated(scheme=chunked(1e-9), workers=2), r"codec\.ratio is 1e-09"),
        (lambda: simulated(model=nn.Sequential(nn.Linear(5, 2), nn.BatchNorm1d(2))), "BatchNorm1d"),
        (lambda: made("fl-std", clients=10, cohort=None), r"cohort is None"),
        (lambda: made("fl-std", clients=10, cohort=2.5), r"cohort is 2\.5"),
        (lambda: made("fl-std", clients=None, cohort=5), r"is None"),
        (lambda: lowkey.scheme("fl-std", clients=10, cohort=5, seed=-1), r"seed is -1; it must be at least 0"),
        (lambda: lowkey.scheme("fl-sdt", clients=10, cohort=5), r"federation\.scheme is 'fl-sdt'"),
        (lambda: lowkey.scheme("fl-std-dp", clients=10, cohort=5), "needs privacy settings"),
        (lambda: lowkey.scheme("fl-std", clients=10, cohort=5, privacy=PRIVACY), "promises no privacy"),
        (lambda: made("fl-std-dp", clients=10, cohort=None, privacy=PRIVACY), "cohort"),
        (lambda: private(noise_multiplier=0), r"noise_multiplier is 0, which protects nobody"),
        (lambda: private(noise_multiplier=-1.0), r"noise_multiplier is -1\.0"),
        (lambda: private(noise_multiplier="auto"), "needs privacy.epsilon and the number of rounds"),
        (lambda: private(clip_norm=1e12), r"clip_norm is 1e\+12; it must be at most 1e\+06"),
        (lambda: private(clip_norm=None), r"clip_norm is None, that is missing"),
    ],
)  # fmt: skip
def test_mistakes_are_one_clear_line(mistake: Callable[[], object], named: str) -> None:
    with pytest.raises(InvalidInput, match=named) as caught:
        mistake()
    assert "\n" not in str(caught.value)


def test_readme_example(capsys: pytest.CaptureFixture[str]) -> None:
    """The Python block of the README runs as printed, in about 20 lines."""
    block = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    assert len(block[1].strip().splitlines()) <= 25
    exec(compile(block[1], "README.md", "exec"), {"__name__": "readme"})
    assert "ε" in capsys.readouterr().out
