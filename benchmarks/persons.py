"""Ten hospitals, privacy for every admission: what ε = 1 and ε = 3 cost, and what an attacker achieves.

    python -m benchmarks.persons --data DIRECTORY [--seeds 5] [--out results/persons.json]

The ten largest hospitals of SIH/SUS with the preset ``hospital/sih-sus/private-persons``; the last round counts, never
the best one. A seed decides which patients are held out; noise is secret and never repeats. The rate of the server
follows from public numbers alone: 0.6·persons/(S·z·√(T·M/κ)), so that the noise of all rounds together moves a score by
0.6 logits at one deviation. This rule, T = 50, S = 10 and what a death counts (20) were found on synthetic admissions
and on diabetes130, not on SIH/SUS. So were rate and rounds of the same head without privacy, near the best of a small
grid there. Three of the rounds fit slope and intercept.

The audit attacks rounds of the preset with planted persons, and once more with clipping left out, which it must find.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w

from lowkey.experiments import Config, load_config
from lowkey.simulation import run, run_audit

PRESET = "hospital/sih-sus/private-persons"
OPEN = ("federation.scheme=fl-std", "schedule.rounds=600", "server.rate=6", "schedule.evaluate_every=100")


def private(epsilon: float, changes: list[str]) -> Config:
    """The preset at this ε, with the rate that follows."""
    return load_config(PRESET, [*changes, f"privacy.epsilon={epsilon}"])


def without_privacy(changes: list[str]) -> Config:
    """The same head, hospitals and rows, with updates in the open."""
    table = load_config(PRESET, changes).to_table()
    del table["privacy"]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "open.toml"
        path.write_text(tomli_w.dumps(table), encoding="utf-8")
        return load_config(path, OPEN)


def scores(config: Config) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        result = run(config, Path(directory) / "run")
        last = json.loads((Path(directory) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    return {
        "auroc": last["auroc"],
        "slope": last["calibration_slope"],
        "epsilon": result["epsilon_pld"],
        "epsilon_server": result["epsilon_server_limit"],
    }


def row(name: str, found: list[dict[str, Any]], config: Config) -> dict[str, Any]:
    values, slopes = [one["auroc"] for one in found], [one["slope"] for one in found]
    return {
        "what": name,
        "auroc": round(statistics.mean(values), 4),
        "least": round(min(values), 4),
        "most": round(max(values), 4),
        "each": [round(value, 4) for value in values],
        "calibration_slope": round(statistics.mean(slopes), 4),
        "slopes": [round(value, 4) for value in slopes],
        "rounds": config.schedule.last_round,
        "server_rate": config.server.rate,  # type: ignore[attr-defined]
        "noise_multiplier": None if config.privacy is None else config.privacy.noise_multiplier,
        "epsilon_spent": found[0]["epsilon"],
        "epsilon_at_limit": found[0]["epsilon_server"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="directory of the SIH/SUS file")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path("results/persons.json"))
    options = parser.parse_args()
    changes = [f"data.source={options.data}"]
    cases: dict[str, Callable[[list[str]], Config]] = {
        "without privacy": without_privacy,
        "ε = 3 for every admission": lambda given: private(3.0, given),
        "ε = 1 for every admission": lambda given: private(1.0, given),
    }
    rows = []
    for name, make in cases.items():
        configs = [make([*changes, f"seed={seed}"]) for seed in range(options.seeds)]
        rows.append(row(name, [scores(config) for config in configs], configs[0]))
        print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    for entry in rows[1:]:
        entry["below_without_privacy"] = round(rows[0]["auroc"] - entry["auroc"], 4)
    audits = []
    for defect in (None, "no-clipping"):
        settings = private(1.0, changes).privacy
        assert settings is not None
        found = run_audit(
            settings, members=10, trials=options.trials, defect=defect, workers=os.cpu_count() or 1
        ).to_json()
        kept = ("passed", "epsilon_claimed", "epsilon_lower_bound", "epsilon_lower_bound_one_run", "planted", "unit",
                "rounds", "masked_rounds", "members", "canaries", "noise_multiplier")  # fmt: skip
        audits.append({name: found[name] for name in kept})
        print(json.dumps(audits[-1]), flush=True)
    content = {"command": "python -m benchmarks.persons --data DIRECTORY", "seeds": options.seeds, "rows": rows,
               "audits": audits}  # fmt: skip
    options.out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
