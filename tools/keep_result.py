"""Keep a finished run under results/: its summary, its curve and the command that repeats it.

    python tools/keep_result.py RUN_DIRECTORY NAME "lowkey run PRESET ..."

Writes results/NAME.json; for names that begin with fashion-mnist_ also draws results/fashion-mnist.png anew from all
such curves there. Of binary outcomes it keeps the confusion matrix and the calibration of the last round as well.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lowkey.experiments import RunDirectory

COUNTS = ("true_positives", "false_negatives", "false_positives", "true_negatives")
RESULTS = Path(__file__).parents[1] / "results"


def keep(run: Path, name: str, command: str) -> None:
    directory = RunDirectory.open(run)
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    scores = [score.name for score in directory.config.find_task().scores]
    evaluated = [line for line in directory.metrics() if line.get(scores[0]) is not None]
    last = evaluated[-1]
    curve = {key: [round(r[key], 4) for r in evaluated] for key in ("round", *scores, "loss")}
    kept = {"command": command, **result, "curve": curve}
    if "true_positives" in last:
        kept["confusion"] = {key: int(last[key]) for key in COUNTS}
    if "calibration" in last:
        kept["calibration"] = [[round(value, 6) for value in row] for row in last["calibration"]]
    kept.pop("seconds", None)  # of a machine that did other things too
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in kept.items())
    (RESULTS / f"{name}.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def draw() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, constrained_layout=True)
    for path in sorted(RESULTS.glob("fashion-mnist_*.json")):
        kept = json.loads(path.read_text(encoding="utf-8"))
        curve = kept.get("curve")
        if curve is None:
            continue
        private = kept["epsilon_pld"] is not None
        label = path.stem.removeprefix("fashion-mnist_").replace("_", " ")
        axes[int(private)].plot(curve["round"], curve["accuracy"], label=label)
    axes[0].set(title="without privacy", xlabel="round", ylabel="test accuracy", ylim=(0, 0.95))
    axes[1].set(title="client-level differential privacy", xlabel="round")
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, loc="lower right", fontsize=8)
    figure.savefig(RESULTS / "fashion-mnist.png", dpi=110)


def main() -> None:
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    keep(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
    if sys.argv[2].startswith("fashion-mnist_"):
        draw()


if __name__ == "__main__":
    main()
