"""How time and memory of a private round grow: with clients, with the cohort, with the model, with workers.

    python -m benchmarks.growth [--out results/growth.json] [--figure docs/images/growth.png]

Each line is measured in a process of its own: clients of 10 examples take one full gradient of softmax regression with
10 classes, clip it and add their share of noise; FL-STD-DP, everybody or a padded cohort, plain sums. Clients are held
in memory, or virtual: then a client's examples are made when it is asked. Seconds are medians over rounds. ``clients``
is what clients computed, by all workers together; ``server`` is the processor time of the parent process, which hands
out requests, adds up and takes the step. With W workers a round takes about the longer of clients / W and server.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.small_round import CLIP_NORM, NOISE

EXAMPLES, CLASSES = 10, 10
Example = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Case:
    """What is measured."""

    curve: str
    clients: int = 6000
    cohort: int | None = None
    features: int = 401
    workers: int = 2
    virtual: bool = False

    @property
    def size(self) -> int:
        return self.features * CLASSES


CASES = (
    *(Case("clients", clients=n) for n in (1000, 6000, 30_000, 100_000)),
    *(Case("population", clients=n, cohort=1000, virtual=True) for n in (10_000, 100_000, 1_000_000)),
    *(Case("cohort", clients=1_000_000, cohort=n, virtual=True) for n in (100, 1000, 10_000)),
    *(Case("model", clients=1000, cohort=100, features=n) for n in (40, 401, 4010, 40_100)),
    *(Case("workers", workers=n) for n in (0, 1, 2)),
)


class Virtual(Sequence[Example]):
    """Clients whose examples are made when they are asked."""

    def __init__(self, clients: int, features: int) -> None:
        self._clients, self._features = clients, features

    def __len__(self) -> int:
        return self._clients

    def __getitem__(self, client: Any) -> Any:
        rng = np.random.default_rng(client)
        inputs = rng.standard_normal((EXAMPLES, self._features), np.float32) / np.float32(self._features**0.5)
        return inputs, rng.integers(0, CLASSES, EXAMPLES)


def held(clients: int, features: int) -> list[Example]:
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((clients, EXAMPLES, features), np.float32)
    inputs /= np.float32(features**0.5)
    return list(zip(inputs, rng.integers(0, CLASSES, (clients, EXAMPLES)), strict=True))


def measure(case: Case, rounds: int) -> dict[str, Any]:
    from lowkey.federation import Federation, RoundRecord, Schedule, initial_state
    from lowkey.federation import scheme as make_scheme
    from lowkey.learning import FullGradient, HeadTrainer, LinearHead
    from lowkey.privacy import ClientPrivacy
    from lowkey.rng import OSSecrets
    from lowkey.simulation import open_runtime
    from lowkey.timing import StageClock

    data = (Virtual if case.virtual else held)(case.clients, case.features)
    cohort = case.cohort or case.clients
    scheme = make_scheme(
        "fl-std-dp",
        clients=case.clients,
        cohort=cohort,
        privacy=ClientPrivacy(
            clip_norm=CLIP_NORM, noise_multiplier=NOISE, delta=1e-7, bits=24 if cohort < 20_000 else 28
        ),
    )
    trainer = HeadTrainer(LinearHead(case.features, CLASSES, bias=False), data, FullGradient())
    clock, secrets, records = StageClock(), OSSecrets(), list[RoundRecord]()
    walls, busy = [time.perf_counter()], [time.process_time()]
    with open_runtime(scheme=scheme, trainer=trainer, secrets=secrets, clock=clock, workers=case.workers) as ask:
        federation = Federation(scheme=scheme, ask=ask, secrets=secrets, clock=clock)

        def save(_state: Any, record: RoundRecord) -> None:
            records.append(record)
            walls.append(time.perf_counter())
            busy.append(time.process_time())

        first = initial_state(scheme, np.zeros(trainer.num_coordinates, np.float32))
        federation.run(first, Schedule(rounds=rounds + 1), save=save)
    members = scheme.privacy.sampling.roster_size
    stages = [sum(r.seconds.get(name, 0.0) for name in ("train", "compress", "protect")) for r in records[1:]]
    seconds = statistics.median(np.diff(walls)[1:])
    own, children = (
        round(resource.getrusage(who).ru_maxrss / 1024) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    examples = 0 if case.virtual else case.clients * EXAMPLES * (case.features * 4 + 8)
    return {
        **asdict(case),
        "numbers": case.size,
        "members": members,
        "seconds": round(float(seconds), 4),
        "seconds_of_clients": round(statistics.median(stages), 4),
        "seconds_of_server": round(float(statistics.median(np.diff(busy)[1:])), 4) if case.workers else None,
        "microseconds_per_member": round(1e6 * float(seconds) / members, 2),
        "megabytes_of_server": own,
        "megabytes_of_largest_worker": children,
        "megabytes_of_data": round(examples / 2**20),
    }


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = (
        ("clients", "members", "everybody takes part: clients, held in memory"),
        ("population", "clients", "1,000 of this many virtual clients take part"),
        ("cohort", "members", "members of a round, of a million virtual clients"),
        ("model", "numbers", "numbers of the model; 100 of 1,000 clients"),
    )
    figure, axes = plt.subplots(1, len(panels), figsize=(15, 3.6), layout="constrained")
    for axis, (curve, key, label) in zip(axes, panels, strict=True):
        chosen = [row for row in rows if row["curve"] == curve]
        axis.loglog([row[key] for row in chosen], [row["seconds"] for row in chosen], "o-", color="#0072b2")
        axis.set(xlabel=label, ylim=(1e-3, 30))
        axis.grid(visible=True, which="major", alpha=0.3)
    axes[0].set_ylabel("seconds a round, 2 workers")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each, after one that is not")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measure(CASES[options.one], options.rounds)))
        return
    rows = []
    for number in range(len(CASES)):
        command = [sys.executable, "-m", "benchmarks.growth", "--one", str(number), "--rounds", str(options.rounds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(json.dumps(rows[-1]), flush=True)
    if options.out:
        result = {"command": "python -m benchmarks.growth", "cores": os.cpu_count(), "rows": rows}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if options.figure:
        draw(rows, options.figure)


if __name__ == "__main__":
    main()
