"""The same rounds in Apple's pfl, through its public API, in two processes; started by other benchmarks.

    PYTHON -m benchmarks.pfl_rounds small --clients 6000 --rounds 5
    PYTHON -m benchmarks.pfl_rounds paper --data FILE.npz --rounds 5

PYTHON is that of an environment that has ``pfl[pytorch]``; Lowkey need not be there.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

RANK, PROCESSES = "PFL_WORKER_RANK", 2


def measure(python: str, what: str, **options: object) -> list[float]:
    """Seconds of each round, the first left out."""
    with socket.socket() as free:  # the first address is the meeting point, the rest only count
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    common = {
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
        "GLOO_SOCKET_IFNAME": "lo",
        "PFL_WORKER_ADDRESSES": ",".join([address] * PROCESSES),
    }
    more = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    started = [
        subprocess.Popen(
            [python, "-m", "benchmarks.pfl_rounds", what, *more],
            env={**os.environ, **common, RANK: str(rank)},
            cwd=Path(__file__).parents[1],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in reversed(range(PROCESSES))
    ]
    output = [process.communicate()[0] for process in started][-1]
    if not output:  # pfl's processes may abort at their end, after they have told
        raise SystemExit("pfl failed")
    seconds: list[float] = json.loads(output.splitlines()[-1])
    return seconds


def plain_network() -> Any:
    """The paper's network as anybody would write it."""
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, 10)),
    )


def run(
    module: Any, inputs: Any, targets: Any, *, cohort: int, rounds: int, steps: int, rate: float, noise: Any
) -> Any:
    """Seconds at which rounds ended."""
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel
    from pfl.privacy.gaussian_mechanism import GaussianMechanism
    from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism

    class Wrapped(torch.nn.Module):
        """What PyTorchModel asks of a module."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def loss(self, inputs: Any, targets: Any) -> Any:
            return torch.nn.functional.cross_entropy(self.inner(inputs), targets)

        @torch.no_grad()
        def metrics(self, inputs: Any, targets: Any) -> Any:
            return {"loss": Weighted(self.loss(inputs, targets).item() * len(targets), len(targets))}

    ends: list[float] = []

    class Ends(TrainingProcessCallback):  # type: ignore[misc]
        def after_central_iteration(self, *_given: Any, **_named: Any) -> Any:
            ends.append(time.perf_counter())
            return False, Metrics()

    torch.set_num_threads(1)
    users = FederatedDataset(
        lambda user: Dataset([inputs[user], targets[user]], user_id=user),
        get_user_sampler("minimize_reuse", list(range(len(inputs)))),
    )
    wrapped = Wrapped()
    added = [] if noise is None else [CentrallyAppliedPrivacyMechanism(GaussianMechanism(*noise))]
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds + 1,
            evaluation_frequency=10**9,  # pfl still evaluates in its first iteration, which is not timed
            train_cohort_size=cohort,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=users, val_data=users, postprocessors=added),
        model=PyTorchModel(
            wrapped,
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(wrapped.parameters(), lr=1.0),
        ),
        model_train_params=NNTrainHyperParams(local_num_epochs=steps, local_learning_rate=rate, local_batch_size=None),
        callbacks=[Ends()],
        send_metrics_to_platform=False,
    )
    return ends


def small(clients: int, rounds: int) -> Any:
    import torch

    from benchmarks.small_round import CLASSES, CLIP_NORM, FEATURES, NOISE, data

    inputs, targets = map(torch.from_numpy, data(clients))
    module = torch.nn.Linear(FEATURES, CLASSES, bias=False)
    torch.nn.init.zeros_(module.weight)
    return run(
        module, inputs, targets, cohort=clients, rounds=rounds, steps=1, rate=1.0, noise=(CLIP_NORM, NOISE)
    )  # fmt: skip


def paper(data: Path, rounds: int) -> Any:
    import torch

    with np.load(data) as stored:
        inputs, targets = torch.from_numpy(stored["inputs"]), torch.from_numpy(stored["targets"])
    return run(plain_network(), inputs, targets, cohort=100, rounds=rounds, steps=5, rate=0.215, noise=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["small", "paper"])
    parser.add_argument("--clients", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    ends = small(options.clients, options.rounds) if options.what == "small" else paper(options.data, options.rounds)
    if os.environ.get(RANK, "0") == "0":
        print(json.dumps(np.diff(ends).tolist()), flush=True)


if __name__ == "__main__":
    main()
