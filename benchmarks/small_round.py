"""The round of private learning with everybody, beside other ways to run it, in one run, as ratios.

    python -m benchmarks.small_round [--passes 3] [--rounds 5] [--pfl PYTHON] [--json FILE]
    python -m benchmarks.small_round --clients 100000 --only fl-std-dp

6,000 clients of 10 examples, 401 features, 10 classes: each takes one full gradient of softmax regression (4,010
numbers), which is clipped; the sum gets noise. Lowkey draws every client's own share of it, 24 million numbers, as in a
deployment; the others add one noise to the sum. ``vectorised`` is the same mathematics in NumPy over all clients at
once, with neither clients nor messages: a lower bound. ``pfl`` is Apple's pfl in two processes; PYTHON is that of an
environment that has ``pfl[pytorch]``. All take turns, so that a busy machine disturbs them alike; read the ratios.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import pfl_rounds

EXAMPLES, FEATURES, CLASSES, CLIP_NORM, NOISE = 10, 401, 10, 0.05, 24.2
RATIO = 0.1  # of fl-cs-dp


def data(clients: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((FEATURES, CLASSES), np.float32)
    inputs = rng.standard_normal((clients * EXAMPLES, FEATURES), np.float32)
    inputs /= np.float32(FEATURES**0.5)
    targets = (inputs @ truth).argmax(1)
    return inputs.reshape(clients, EXAMPLES, FEATURES), targets.reshape(clients, EXAMPLES)


def vectorised(clients: int, rounds: int) -> dict[str, Any]:
    """All clients as one array, one noise, no messages."""
    inputs, targets = data(clients)
    rows, true = inputs.reshape(-1, FEATURES), np.eye(CLASSES, dtype=np.float32)[targets]
    gram, rng = inputs @ inputs.transpose(0, 2, 1), np.random.default_rng(1)
    weights, walls = np.zeros((FEATURES, CLASSES), np.float32), []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        scores = (rows @ weights).reshape(clients, EXAMPLES, CLASSES)
        predicted = np.exp(scores - scores.max(2, keepdims=True))
        residuals = (true - predicted / predicted.sum(2, keepdims=True)) / EXAMPLES
        norms = np.sqrt(np.maximum((residuals * (gram @ residuals)).sum((1, 2)), 1e-12))
        clipped = residuals * np.minimum(1, CLIP_NORM / norms)[:, None, None]
        total = rows.T @ clipped.reshape(-1, CLASSES)
        total += NOISE * CLIP_NORM * rng.standard_normal(total.shape, np.float32)
        weights += total / clients
        walls.append(time.perf_counter() - began)
    return {"seconds": walls[1:]}


def lowkey(scheme: str, clients: int, rounds: int, workers: int) -> dict[str, Any]:
    from lowkey.codec import ChunkedDCT
    from lowkey.federation import Federation, RoundRecord, Schedule, initial_state
    from lowkey.federation import scheme as make_scheme
    from lowkey.learning import FullGradient, HeadTrainer, LinearHead
    from lowkey.privacy import ClientPrivacy
    from lowkey.rng import OSSecrets
    from lowkey.simulation import open_runtime
    from lowkey.timing import StageClock

    inputs, targets = data(clients)
    made = make_scheme(
        scheme,
        clients=clients,
        cohort=clients,
        codec=ChunkedDCT(ratio=RATIO, chunks=10) if scheme == "fl-cs-dp" else None,
        privacy=ClientPrivacy(
            clip_norm=CLIP_NORM, noise_multiplier=NOISE, delta=1e-6, bits=24 if clients < 20_000 else 28
        ),
    )
    trainer = HeadTrainer(
        LinearHead(FEATURES, CLASSES, bias=False), list(zip(inputs, targets, strict=True)), FullGradient()
    )
    clock, secrets, ends, records = StageClock(), OSSecrets(), list[float](), list[RoundRecord]()
    with open_runtime(scheme=made, trainer=trainer, secrets=secrets, clock=clock, workers=workers) as ask:
        federation = Federation(scheme=made, ask=ask, secrets=secrets, clock=clock)

        def save(_state: Any, record: RoundRecord) -> None:
            ends.append(time.perf_counter())
            records.append(record)

        first = initial_state(made, np.zeros(trainer.num_coordinates, np.float32))
        federation.run(first, Schedule(rounds=rounds + 1), save=save)
    children, own = (
        resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)
    )
    return {
        "seconds": np.diff(ends).tolist(),
        "stages": {
            name: statistics.median(r.seconds.get(name, 0.0) for r in records[1:]) for name in records[-1].seconds
        },
        "numbers": made.wire(trainer.num_coordinates).length * clients,
        "megabytes": {"server": round(own), "largest worker": round(children), "data": round(inputs.nbytes / 2**20)},
    }


def one(name: str, options: argparse.Namespace) -> None:
    """Measure one of them in this process, and print it as JSON."""
    if name == "vectorised":
        measured = vectorised(options.clients, options.rounds)
    else:
        measured = lowkey(name, options.clients, options.rounds, options.workers)
    print(json.dumps(measured))


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one of them in processes of its own."""
    if name == "pfl":
        return {"seconds": pfl_rounds.measure(options.pfl, "small", clients=options.clients, rounds=options.rounds)}
    numbers = ["--clients", options.clients, "--rounds", options.rounds, "--workers", options.workers]
    command = [sys.executable, "-m", "benchmarks.small_round", "--one", name, *map(str, numbers)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    measured: dict[str, Any] = json.loads(output.splitlines()[-1])
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=6000)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pfl", help="python of an environment that has pfl[pytorch]")
    parser.add_argument("--only", nargs="+", help="which of vectorised, fl-std-dp, fl-cs-dp, pfl")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return one(options.one, options)
    names = options.only or ["vectorised", "fl-std-dp", "fl-cs-dp", *(["pfl"] if options.pfl else [])]
    passes: list[dict[str, dict[str, Any]]] = []
    for number in range(options.passes):
        passes.append({name: measure(name, options) for name in names})
        for name, measured in passes[-1].items():
            wall = statistics.median(measured["seconds"])
            print(f"pass {number + 1}  {name:<10}  {wall:7.3f} s a round  {json.dumps(measured.get('stages', {}))}")
    reference = names[-1]
    for name in names:
        ratios = [
            statistics.median(one[reference]["seconds"]) / statistics.median(one[name]["seconds"]) for one in passes
        ]
        print(f"{name:<10}  {statistics.median(ratios):6.2f} times as fast as {reference} "
              f"({min(ratios):.2f} to {max(ratios):.2f})")  # fmt: skip
    if options.json:
        said = ["PYTHON" if options.pfl and word == str(options.pfl) else word for word in sys.argv[1:]]
        result = {"command": "python " + " ".join(["-m benchmarks.small_round", *said]), "passes": passes}
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
