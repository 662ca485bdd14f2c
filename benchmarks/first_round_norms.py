"""How long clients' first updates are: median norm over the first cohort, for several seeds.

    python benchmarks/first_round_norms.py [--seeds 20] [--batches epochs] [--data DIRECTORY]

The paper sets its clip norm S to such a median: 2.15 at ratio 1, 0.47 at ratio 0.05.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from lowkey.experiments import build, load_config
from lowkey.rng import PublicStream, generator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--batches", default="independent", help="how local SGD draws them: independent or epochs")
    parser.add_argument("--data", default="auto")
    options = parser.parse_args()
    torch.set_num_threads(1)
    medians = []
    for seed in range(options.seeds):
        changes = [f"seed={seed}", f"data.source={options.data}", f"training.batches={options.batches}"]
        experiment = build(load_config("fashion-mnist/fl-cs-r0.05", changes))
        scheme, start = experiment.scheme, experiment.initial_weights
        operator = scheme.operator(start.size, 1)
        cohort = scheme.privacy.sampling.draw(PublicStream(seed, "cohort", 1)).contributors
        updates = [
            experiment.trainer.train(start, client, generator(seed, "local training", 1, client)).update
            for client in cohort
        ]
        low, whole, high = np.quantile([np.linalg.norm(u) for u in updates], [0.25, 0.5, 0.75])
        compressed = np.median([np.linalg.norm(operator.forward(u)) for u in updates])
        medians.append((whole, compressed))
        print(
            f"seed {seed:3d}  ratio 1: {whole:.3f} ({low:.3f} to {high:.3f})   ratio 0.05: {compressed:.4f}", flush=True
        )
    for name, column in zip(("ratio 1", "ratio 0.05"), np.array(medians).T, strict=True):
        spread = f"deviation {column.std():.3f}, range {column.min():.3f} to {column.max():.3f}"
        print(f"{name}: mean {column.mean():.3f}, {spread}")


if __name__ == "__main__":
    main()
