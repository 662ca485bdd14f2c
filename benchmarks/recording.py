"""Aggregated updates of real training, recorded once and used by several benchmarks.

    python benchmarks/recording.py [--rounds 30] [--data DIRECTORY]

Runs the preset fashion-mnist/fl-std (seed 0, nothing compressed, nothing private) and keeps the mean update of every
round, 6.7 MB each, in build/recording.npy. Compression is linear, so what FL-CS would have received in a round follows
from it exactly.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from lowkey.experiments import build, load_config
from lowkey.federation import drive, initial_state, round_flow
from lowkey.privacy import Ledger
from lowkey.rng import OSSecrets
from lowkey.simulation import open_runtime
from lowkey.timing import StageClock
from lowkey.types import FloatArray

PATH = Path(__file__).parents[1] / "build" / "recording.npy"
ROUNDS = 30
LAYERS = (800, 32, 51_200, 64, 1_605_632, 512, 5_120, 10)  # parameters of each tensor of the paper's network


def recorded(rounds: int = ROUNDS, data: str = "auto") -> FloatArray:
    """Mean updates, shape (rounds, n); run first when there is no recording that is long enough."""
    updates: FloatArray
    if PATH.exists() and len(updates := np.load(PATH, mmap_mode="r")) >= rounds:
        return updates[:rounds]
    experiment = build(load_config("fashion-mnist/fl-std", [f"data.source={data}"]))
    scheme, clock = experiment.scheme, StageClock()
    if scheme.layers != LAYERS:
        raise SystemExit(f"the network has layers {scheme.layers} instead of {LAYERS}; correct them here")
    state = initial_state(scheme, experiment.initial_weights)
    updates = np.empty((rounds, state.weights.size), np.float32)
    with open_runtime(
        scheme=scheme, trainer=experiment.trainer, secrets=OSSecrets(), clock=clock, workers="auto"
    ) as ask:
        for number in range(rounds):
            before = state.weights
            state = drive(
                round_flow(scheme, state, secrets=OSSecrets(), ledger=Ledger(None, run="benchmark"), clock=clock), ask
            ).state
            updates[number] = state.weights - before
            print(f"recorded round {number + 1} of {rounds}", flush=True)
    PATH.parent.mkdir(exist_ok=True)
    part = PATH.with_suffix(".part")
    with part.open("wb") as file:
        np.save(file, updates)
    part.replace(PATH)
    return updates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--data", default="auto")
    options = parser.parse_args()
    recorded(options.rounds, options.data)


if __name__ == "__main__":
    main()
