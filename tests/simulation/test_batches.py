"""Clients in batches: the same bits whoever computes them, and errors that name their client."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

import lowkey
from lowkey.errors import CannotContribute, ClientFailed
from lowkey.federation import Federation, Schedule, block_size, initial_state
from lowkey.learning import CLASSIFICATION, FullGradient, LinearHead, LocalSGD, Objective, make_trainer
from lowkey.rng import ReplaySecrets
from lowkey.simulation import InProcess, SimulatedKeys, WorkerPool
from lowkey.timing import StageClock

CLIENTS, FEATURES, CLASSES = 200, 6, 3
SCHEMES = ["fl-std", "fl-cs", "fl-std-dp", "fl-cs-dp", "masked"]
TRAININGS: dict[str, FullGradient | LocalSGD] = {"head": FullGradient(steps=3), "sgd": LocalSGD(steps=2, batch_size=3)}
TASK = '''
"""A task whose client 7 has broken data as soon as there is a file called "broken"."""
from pathlib import Path
import numpy as np
from lowkey.learning import LinearHead
from lowkey.tasks import Task

class Clients:
    def __init__(self, count):
        self.count = count
    def __len__(self):
        return self.count
    def __getitem__(self, client):
        rng = np.random.default_rng(client)
        labels = rng.integers(3, size=4)
        if client == 7 and Path({flag!r}).exists():
            labels = labels + 5
        return rng.standard_normal((4, 6)).astype(np.float32), labels

task = Task(model=lambda study: LinearHead(6, 3), clients=lambda study: Clients(study.clients))
'''


def clients(broken: dict[int, Any] | None = None) -> list[Any]:
    made = []
    for client in range(CLIENTS):
        rng = np.random.default_rng(client)
        size = 3 + client % 4
        made.append((rng.standard_normal((size, FEATURES)).astype(np.float32), rng.integers(CLASSES, size=size)))
    for client, data in (broken or {}).items():
        made[client] = data
    return made


def learned(name: str, training: str, workers: int, at_once: int = 1) -> NDArray[np.float32]:
    """The model after two rounds with replayed secrets."""
    privacy = None
    if name in ("fl-std-dp", "fl-cs-dp", "masked"):
        aggregation: Literal["plain", "masked"] = "masked" if name == "masked" else "plain"
        privacy = lowkey.ClientPrivacy(clip_norm=0.5, noise_multiplier=2.0, aggregation=aggregation)
    codec = lowkey.ChunkedDCT(ratio=0.5, chunks=2) if "cs" in name else None
    cohort = 20 if name == "masked" else CLIENTS
    chosen = "fl-std-dp" if name == "masked" else name
    made = lowkey.scheme(chosen, clients=CLIENTS, cohort=cohort, codec=codec, privacy=privacy).for_layers([18, 3])
    trainer = make_trainer(LinearHead(FEATURES, CLASSES), clients(), TRAININGS[training])
    secrets, clock = ReplaySecrets(1), StageClock()
    keys = SimulatedKeys(CLIENTS, secrets)

    def run(ask: Any) -> NDArray[np.float32]:
        federation = Federation(scheme=made, ask=ask, secrets=secrets, clock=clock, verify_keys=keys.verify_keys)
        first = initial_state(made, np.zeros(trainer.num_coordinates, np.float32))
        return federation.run(first, Schedule(rounds=2))[0].weights

    if workers == 0:
        return run(InProcess(lowkey.Client(scheme=made, trainer=trainer, secrets=secrets, keys=keys, clock=clock)))
    with WorkerPool(
        scheme=made, trainer=trainer, secrets=secrets, workers=workers, clock=clock, keys=keys, blocks_at_once=at_once
    ) as pool:
        return run(pool)


@pytest.mark.parametrize("training", list(TRAININGS))
@pytest.mark.parametrize("name", SCHEMES)
def test_models_do_not_depend_on_workers_or_messages(name: str, training: str) -> None:
    reference = learned(name, training, 0)
    assert np.any(reference)
    for workers, at_once in ((1, 1), (2, 1), (3, 1), (2, 3), (1, 1000)):
        np.testing.assert_array_equal(learned(name, training, workers, at_once), reference)


def test_blocks_follow_from_roster_and_model_alone() -> None:
    assert block_size(6000, 4010) == 65  # updates of a block fit a cache
    assert block_size(410, 1496) == 7  # some dozen blocks at least
    assert block_size(100, 1_663_370) == 1
    assert block_size(1, 1) == 1


def simulated(workers: int, data: list[Any], private: bool, **options: Any) -> lowkey.Simulation:
    privacy = lowkey.ClientPrivacy(clip_norm=0.5, noise_multiplier=2.0) if private else None
    name = "fl-std-dp" if private else "fl-std"
    scheme = lowkey.scheme(name, clients=CLIENTS, cohort=CLIENTS, privacy=privacy)
    return lowkey.simulate(
        scheme=scheme, model=LinearHead(FEATURES, CLASSES), clients=data, rounds=2, workers=workers, **options
    )


NOTHING = (np.empty((0, FEATURES), np.float32), np.empty(0, np.int64))
STRANGE = (np.ones((3, FEATURES), np.float32), np.array([0, 1, 17]))
NOT_A_NUMBER = (np.full((3, FEATURES), np.nan, np.float32), np.array([0, 1, 2]))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("private", [False, True])
def test_who_cannot_contribute_inside_a_batch_is_counted(workers: int, private: bool) -> None:
    result = simulated(workers, clients({5: NOTHING, 6: NOT_A_NUMBER, 70: NOTHING}), private)
    for metrics in result.metrics:
        assert metrics["could_not_contribute"] == 3
        assert metrics["survivors"] == (CLIENTS if private else CLIENTS - 3)


@pytest.mark.parametrize("workers", [0, 2])
def test_half_of_the_clients_without_data_stop_the_run(workers: int) -> None:
    with pytest.raises(CannotContribute, match="100 of the 200 clients that tried to train could not contribute"):
        simulated(workers, clients(dict.fromkeys(range(100), NOTHING)), True)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("client", [0, 6, 199])
def test_any_other_failure_inside_a_batch_names_its_client_and_stage(workers: int, private: bool, client: int) -> None:
    with pytest.raises(ClientFailed, match=f"client {client} failed in stage 'train': .*a label is 17") as raised:
        simulated(workers, clients({client: STRANGE}), private)
    assert (raised.value.client, raised.value.stage) == (client, "train")


def test_a_batch_that_dies_names_a_client_of_it() -> None:
    def die(targets: NDArray[Any], rng: np.random.Generator) -> NDArray[np.intp]:
        import os
        import signal

        if len(targets) == 3 and targets[0] == 2 and rng.integers(10) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.arange(len(targets))

    with pytest.raises(ClientFailed, match=r"client \d+ failed in stage 'train'.*exit code -9"):
        simulated(2, clients(), True, objective=Objective(loss=CLASSIFICATION.loss, choice=die))


def test_a_failure_inside_a_batch_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flag, out = tmp_path / "broken", tmp_path / "run"
    (tmp_path / "breaking_task.py").write_text(TASK.replace("{flag!r}", repr(str(flag))))
    monkeypatch.syspath_prepend(str(tmp_path))
    config = lowkey.experiments.parse(
        {
            "task": "breaking_task",
            "federation": {"scheme": "fl-std-dp", "clients": 128, "cohort": 128},
            "training": {"kind": "full-gradient"},
            "privacy": {"clip_norm": 0.5, "noise_multiplier": 4.0},
            "schedule": {"rounds": 4},
            "runtime": {"workers": 2},
        }
    ).resolve()

    def observe(metrics: Any) -> None:
        if metrics["round"] == 2:
            flag.touch()

    with pytest.raises(ClientFailed, match="client 7 failed in stage 'train'"):
        lowkey.run(config, out, observers=[observe])
    assert [json.loads(line)["round"] for line in (out / "metrics.jsonl").read_text().splitlines()] == [1, 2]
    flag.unlink()
    result = lowkey.run(config, out, resume=True)
    assert result["rounds"] == 4
    sys.modules.pop("breaking_task", None)
