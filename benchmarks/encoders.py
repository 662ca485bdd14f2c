"""What private ranges of numbers cost a model, within the same ε, beside public limits and what is fitted to all rows.

    python -m benchmarks.encoders [--out results/encoders.json]

``hospital/SOURCE/private`` at a total of ε = 1 for everything, with each ``data.encoding``; AUROC of the last round on
the server's test data, five seeds (LOWKEY_HOSPITAL_DATA tells where the files are). Limits that were found are compared
with the 5 % and 95 % quantiles of all training rows.

Where one looked: a first design (16 bins, 5 % and 95 % quantiles, ages up to 150, wide limits where an answer drowned)
lost 0.05 of AUROC on diabetes130, seed 0, of which the figures here are therefore not free. Bins and the way from
quartiles to limits were then chosen by the error of limits on diabetes130 and on 400 synthetic hospitals, and ages end
at 120. The share of ε is the default of ``privacy.asking``. SIH/SUS chose nothing; its seed 0 was run once before.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from lowkey.durable import replace_file
from lowkey.experiments import RunDirectory, load_config
from lowkey.simulation import run
from lowkey.tasks import MORTALITY

ENCODINGS = ("fitted", "public", "private")
SOURCES = ("sih-sus", "diabetes130")


def measured(source: str, encoding: str, seed: int) -> dict[str, Any]:
    """The figures of one run."""
    config = load_config(f"hospital/{source}/private", [f'data.encoding="{encoding}"', f"seed={seed}"])
    with tempfile.TemporaryDirectory() as place:
        result = run(config, Path(place) / "run")
        done = RunDirectory.open(Path(place) / "run").config
    found = {name: result[name] for name in ("final_auroc", "epsilon_pld", "epsilon_server_limit", "seconds")}
    if encoding == "private":
        assert MORTALITY.tables is not None
        tables = MORTALITY.tables(done.study)
        found["limits"] = {}
        for name, low, high, _ in done.study.data.ranges:
            values = np.concatenate([tables[client].columns[name] for client in range(len(tables))])
            true = np.nanquantile(values, (0.05, 0.95)).tolist()
            found["limits"][name] = {"found": [low, high], "quantiles of all rows": true}
    return found


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and range over the seeds, and the mean absolute error of the limits."""
    values = [one["final_auroc"] for one in runs]
    found = {"auroc": float(np.mean(values)), "range": [min(values), max(values)]}
    found["epsilon_pld"] = max(one["epsilon_pld"] for one in runs)
    for name in runs[0].get("limits", {}):
        pairs = [one["limits"][name] for one in runs]
        errors = [np.subtract(pair["found"], pair["quantiles of all rows"]) for pair in pairs]
        found[f"error of {name}"] = np.abs(errors).mean(axis=0).tolist()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/encoders.json"))
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    figures: dict[str, Any] = {}
    for source in SOURCES:
        figures[source] = {}
        for encoding in ENCODINGS:
            runs = [measured(source, encoding, seed) for seed in range(arguments.seeds)]
            figures[source][encoding] = {**summary(runs), "runs": runs}
            print(source, encoding, summary(runs), flush=True)
    replace_file(arguments.out, (json.dumps(figures, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
