"""What noise costs a client, relative to its local training in the same process.

    python -m benchmarks.noise [--clients 20] [--data DIRECTORY] [--json FILE]

The paper's Fashion-MNIST client: 5 SGD steps on 10 images, 83,200 measurements (r = 0.05), one thread. Training,
bounding and noise of one client take turns, so that a busy machine disturbs them alike; read the ratios, not the
seconds, which are scaled to a round of 100 clients. Goal: sampling noise takes less than 15 % of training.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from lowkey.experiments import build, load_config
from lowkey.privacy import Encoding, Measurement
from lowkey.rng import OSSecrets, generator
from lowkey.timing import StageClock

COHORT, CLIP_NORM = 100, 0.47


def measure(clients: int, data: str) -> tuple[int, dict[str, float]]:
    """Length of a vector, and seconds of a cohort in each stage."""
    experiment = build(load_config("fashion-mnist/fl-cs-r0.05", [f"data.source={data}"]))
    start, trainer = experiment.initial_weights, experiment.trainer
    operator = experiment.scheme.operator(start.size, 1)
    encoding = Encoding(length=operator.num_measurements, members=COHORT, honest=80, noise_multiplier=1.54)
    clock = StageClock()
    for client in range(-2, clients):
        if client == 0:
            clock.take()  # what came before compiled loops and filled caches
        source, rng = OSSecrets().source(), generator(0, "local training", 1, client)
        with clock.stage("train"):
            update = trainer.train(start, client % trainer.num_clients, rng).update
        measurement = Measurement(operator.forward(update))
        with clock.stage("bound"):
            bounded = encoding.bound(measurement, CLIP_NORM, source)
        with clock.stage("noise"):
            encoding.add_noise(bounded, source)
    return encoding.length, {stage: taken * COHORT / clients for stage, taken in clock.take().items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--data", default="auto")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    length, seconds = measure(options.clients, options.data)
    ratios = {stage: taken / seconds["train"] for stage, taken in seconds.items()}
    print(f"{COHORT} clients, {length:,} measurements each, one thread")
    for stage, taken in seconds.items():
        print(f"{stage:>6}  {taken:7.3f} s  {ratios[stage]:7.2%} of training")
    if options.json:
        result = {"command": "python -m benchmarks.noise", "length": length, "seconds": seconds, "ratios": ratios}
        options.json.write_text(json.dumps(result, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
