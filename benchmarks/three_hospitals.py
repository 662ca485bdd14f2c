"""Three invented hospitals (examples/three_hospitals): how well a head that hides every patient ranks the held out.

    python -m benchmarks.three_hospitals [--out results/three_hospitals.json]

Five runs of study.toml for each row, simulated, each with fresh noise; last round. The AUROC is of all test patients of
the three hospitals together. "pooled" is logistic regression on all training rows in one place, without privacy. The
public upper limit of lactate is changed for the rows "limit ...", at the ε of study.toml.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from examples.three_hospitals.make import write_tables
from lowkey.durable import replace_file
from lowkey.experiments import Config, RunDirectory, build, load_config
from lowkey.federation import released_model
from lowkey.learning import auroc, load_vector
from lowkey.simulation import run
from lowkey.tabular import fit, read_schema
from lowkey.tasks import TABLE

EXAMPLE = Path(__file__).parents[1] / "examples" / "three_hospitals"
RUNS, LIMITS = 5, (3.55, 4.42, 6.66, 20.0, 100.0, 1000.0)


def prepared(limit: float | None = None) -> Config:
    """The study in the working directory, with an encoder of its schema."""
    for name in ("schema.toml", "study.toml"):
        shutil.copy(EXAMPLE / name, ".")
    write_tables(Path())
    if limit is not None:
        text = Path("schema.toml").read_text("utf-8")
        changed, count = re.subn(r"(\[columns\.lactate\][^\[]*?high = )\S+", rf"\g<1>{limit}", text)
        if count != 1:
            raise SystemExit("schema.toml has no upper limit of lactate any more")
        Path("schema.toml").write_text(changed, "utf-8")
    fit(read_schema("schema.toml")).save(Path("encoder.json"))
    return load_config("study.toml", ["runtime.workers=0"])


def side(config: Config, *, tested: bool) -> tuple[Any, Any]:
    """Training or test rows of all hospitals together."""
    clients = TABLE.held_out(config.study) if tested else TABLE.all_clients(config.study)  # type: ignore[misc]
    parts = [clients[client] for client in range(3)]
    return sp.vstack([part[0] for part in parts]), np.concatenate([part[1] for part in parts]) > 0


def learned(config: Config) -> float:
    """The AUROC of a run on the test patients."""
    with tempfile.TemporaryDirectory() as place:
        run(config, Path(place) / "run")
        directory = RunDirectory.open(Path(place) / "run")
        state = directory.load_checkpoint(directory.ledger())
    assert state is not None
    model = TABLE.model(config.study)
    load_vector(model, released_model(build(config).scheme, state))
    rows, died = side(config, tested=True)
    return auroc(np.asarray(rows @ model.weight.detach().double().numpy()[0]), died)


def row(name: str, values: list[float]) -> dict[str, Any]:
    found = {"row": name, "runs": len(values), "auroc": round(float(np.mean(values)), 4)}
    found["range"] = [round(min(values), 4), round(max(values), 4)]
    print(found, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/three_hospitals.json"))
    out = parser.parse_args().out.absolute()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        sys.path.insert(0, place)
        config, rows = prepared(), []
        for epsilon in (1.0, 3.0):
            private = load_config("study.toml", ["runtime.workers=0", f"privacy.epsilon={epsilon}"])
            rows.append(row(f"ε = {epsilon:g}", [learned(private) for _ in range(RUNS)]))
        (inputs, died), (tested, happened) = side(config, tested=False), side(config, tested=True)
        pooled = LogisticRegression(C=100.0, max_iter=5_000).fit(inputs, died)
        rows.append(row("pooled", [auroc(pooled.decision_function(tested), happened)]))
        for limit in LIMITS:
            narrowed = prepared(limit)
            rows.append(row(f"limit {limit:g}", [learned(narrowed) for _ in range(RUNS)]))
        os.chdir("/")
    content = {"command": "python -m benchmarks.three_hospitals", "delta": 1e-5, "rows": rows}
    replace_file(out, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


if __name__ == "__main__":
    main()
