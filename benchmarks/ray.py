"""What a round costs on Flower's own simulation engine (Ray), beside Lowkey's simulation of the same round.

    python -m benchmarks.ray [--nodes 20] [--rounds 4] [--json results/ray.json]

FL-CS-DP with plain sums on the bundled sample: the same app, the same clients, the same model. Ray starts actors, and
every message to a client goes through Flower's server. Needs Ray: pip install -c constraints.txt 'flwr[simulation]'.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

from lowkey.experiments import load_config
from lowkey.simulation import run
from tests.flower.ray_engine import on_ray


def median_round(run_directory: Path) -> float:
    """Median seconds of a round, the first left out."""
    rounds = [json.loads(line) for line in (run_directory / "metrics.jsonl").read_text().splitlines()]
    seconds: list[float] = [line["seconds"]["round"] - line["seconds"]["evaluate"] for line in rounds[1:]]
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    changes = [f"schedule.rounds={options.rounds}", "privacy.noise_multiplier=1.0", "privacy.epsilon=90",
               "privacy.max_contributions=9"]  # fmt: skip
    config = load_config("demo/fl-cs-dp", changes, nodes=options.nodes)
    with TemporaryDirectory() as place:
        ray = median_round(on_ray(config, Path(place), nodes=options.nodes, seconds=600))
        run(config, Path(place) / "own")
        own = median_round(Path(place) / "own")
    members = config.scheme().privacy.sampling.roster_size
    result = {"command": "python -m benchmarks.ray", "members": members, "seconds_on_ray": round(ray, 3),
              "seconds_in_lowkey": round(own, 4), "milliseconds_per_member_on_ray": round(1000 * ray / members, 1),
              "milliseconds_per_member_in_lowkey": round(1000 * own / members, 2)}  # fmt: skip
    print(json.dumps(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
