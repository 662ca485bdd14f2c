"""Private models worth having: every row of docs/private-learning.md, from presets whose settings follow a rule.

    python -m benchmarks.private [fashion small hospital tuned] [--seeds 5] [--out results/private.json]

Each row is one preset with at most a few settings changed, run to its end once for each seed: the seed divides the data
among clients (and into training and test at the hospitals), the noise is fresh. What is reported is the last round,
never the best: mean, smallest and largest. Runs that the file has already are not repeated. The rows of "tuned" have
the server's rate of the rule times a factor: who chose the best of them would choose by test data.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from lowkey.durable import replace_file
from lowkey.experiments import load_config
from lowkey.simulation import run

FACTORS = (0.5, 0.7, 1.4, 2.0)
SOURCES = ("sih-sus", "diabetes130", "synthetic")
KEPT = (
    "accuracy",
    "balanced_accuracy",
    "auroc",
    "brier",
    "calibration_slope",
    "calibration_intercept",
    "epsilon_pld",
    "epsilon_server",
    "epsilon_server_limit",
)


def rows() -> dict[str, dict[str, tuple[str, tuple[str, ...]]]]:
    """By group, name of a row: preset, and what is changed."""
    private = "fashion-mnist/private"
    none = ("privacy.dropouts=0.0", "privacy.colluders=0.0")
    fashion: dict[str, tuple[str, tuple[str, ...]]] = {
        "fashion ε=1": (private, ()),
        "fashion ε=1 tolerance 0": (private, none),
        "fashion ε=0.3": (private, ("privacy.epsilon=0.3",)),
        "fashion ε=3": (private, ("privacy.epsilon=3.0",)),
        "fashion ε=8": (private, ("privacy.epsilon=8.0",)),
        "fashion without privacy": ("fashion-mnist/head", ()),
        "fashion without privacy, 1000 rounds": ("fashion-mnist/head", ("schedule.rounds=1000",)),
    }
    small: dict[str, tuple[str, tuple[str, ...]]] = {"fashion small ε=1": ("fashion-mnist/private-small", ())}
    hospital: dict[str, tuple[str, tuple[str, ...]]] = {}
    for source in SOURCES:
        for epsilon in (1.0, 3.0, 0.3, 8.0) if source != "synthetic" else (1.0,):
            change = () if epsilon == 1.0 else (f"privacy.epsilon={epsilon}",)
            hospital[f"{source} ε={epsilon:g}"] = f"hospital/{source}/private", change
        hospital[f"{source} without privacy"] = f"hospital/{source}/head", ()
    tuned: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, preset in (
        ("fashion small", "fashion-mnist/private-small"),
        ("sih-sus", "hospital/sih-sus/private"),
        ("diabetes130", "hospital/diabetes130/private"),
    ):
        for factor in FACTORS:
            tuned[f"{name} ε=1 rate × {factor:g}"] = preset, (f"rate × {factor:g}",)
    return {"fashion": fashion, "small": small, "hospital": hospital, "tuned": tuned}


def one(preset: str, changes: tuple[str, ...], seed: int) -> dict[str, Any]:
    """The last round of one run."""
    factors = [float(change.removeprefix("rate × ")) for change in changes if change.startswith("rate × ")]
    config = load_config(preset, [*(c for c in changes if not c.startswith("rate")), f"seed={seed}"])
    rates = [f"server.rate={factor * config.to_table()['server']['rate']}" for factor in factors]
    config = load_config(config, [*rates, "schedule.evaluate_every=100000"])
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        run(config, Path(directory) / "run")
        last = (Path(directory) / "run" / "metrics.jsonl").read_text("utf-8").splitlines()[-1]
    metrics = json.loads(last)
    clients = config.federation.clients
    return {
        "seed": seed,
        "rounds": metrics["round"],
        "rate": getattr(config.server, "rate", None),
        "noise_multiplier": None if config.privacy is None else config.privacy.noise_multiplier,
        "megabits_up_per_client": round(8e-6 * metrics["bytes_up_total"] / clients, 4),
        "seconds": round(time.perf_counter() - started, 1),
        **{name: round(metrics[name], 5) for name in KEPT if metrics.get(name) is not None},
    }


def summary(runs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Mean, smallest and largest of every metric."""
    found = {}
    for name in KEPT:
        values = [each[name] for each in runs if name in each]
        if values:
            found[name] = [round(sum(values) / len(values), 4), round(min(values), 4), round(max(values), 4)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", default=list(rows()), help="which rows: fashion, small, hospital, tuned")
    parser.add_argument("--only", help="only rows whose name contains this")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/private.json"))
    arguments = parser.parse_args()
    for group in arguments.groups:
        for name, (preset, changes) in rows()[group].items():
            if arguments.only and arguments.only not in name:
                continue
            for seed in range(arguments.seeds):
                results = json.loads(arguments.out.read_text("utf-8")) if arguments.out.exists() else {}
                row = results.setdefault(name, {"preset": preset, "changes": list(changes), "runs": []})
                if any(each["seed"] == seed for each in row["runs"]):
                    continue
                row["runs"].append(one(preset, changes, seed))
                row["mean, least, most"] = summary(row["runs"])
                replace_file(arguments.out, (json.dumps(results, indent=1, ensure_ascii=False) + "\n").encode())
                print(name, row["runs"][-1], flush=True)
            print(name, json.loads(arguments.out.read_text("utf-8"))[name]["mean, least, most"], flush=True)


if __name__ == "__main__":
    main()
