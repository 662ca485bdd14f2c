"""A consortium of hospitals asks what ε ≤ 1 would cost: five ways to train one network, side by side.

    python examples/consortium.py [--source sih-sus] [--data DIRECTORY] [--out consortium]     about ten minutes
    python examples/consortium.py --curve    AUROC against ε and the number of hospitals: about an hour

The first trains on all data in one place, then in a federation without privacy and with ε ≤ 1, each with whole and with
compressed updates; it prints a table and writes a report with pictures. The second deals the same patients to more and
more hospitals. Both go on where they were stopped. docs/hospital.md tells what to make of the results.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import lowkey
from lowkey.figures import human_bytes, human_epsilon

ROWS = ("central", "fl-std", "fl-cs-r0.05", "fl-std-dp", "fl-cs-dp-r0.05")
PRIVATE = ("fl-std-dp", "fl-cs-dp-r0.05")
STEPS = {  # setting of the server's rate, rate times noise multiplier, largest rate
    "fl-std-dp": ("server.rate", 0.925, 1.0),
    "fl-cs-dp-r0.05": ("gather.rate", 1.85, 2.0),
}
HOSPITALS = {"sih-sus": (100, 700, 5000), "diabetes130": (60, 227, 700)}
EPSILONS = (1, 3, 8)
COLOURS = ("#e69f00", "#009e73", "#0072b2")


def finished(preset: str, directory: Path, *changes: str) -> dict[str, Any]:
    """The summary of a run, which is run first, or to its end, if need be."""
    if (directory / "result.json").exists():
        return lowkey.RunDirectory.open(directory).summary()
    print(f"{directory.name}:", flush=True)
    begun = (directory / "config.toml").exists()
    return lowkey.run(lowkey.load_config(preset, changes), directory, resume=begun, observers=[show])


def show(metrics: Mapping[str, Any]) -> None:
    """Now and then a line about the round that has just ended."""
    if metrics["round"] % 10 == 0 and "auroc" in metrics:
        print(f"  round {metrics['round']}: AUROC {metrics['auroc']:.3f}", flush=True)


def compare(source: str, out: Path, changes: Sequence[str]) -> None:
    """All ways to train on one source."""
    directories = [out / row for row in ROWS]
    for row, directory in zip(ROWS, directories, strict=True):
        finished(f"hospital/{source}/{row}", directory, *changes)
    summaries, _ = lowkey.write_report(directories, out, title=f"What ε ≤ 1 costs a consortium: {source}")
    print(f"\n{'':>16}  {'AUROC':>6}  {'balanced accuracy':>17}  {'ε':>6}  {'upload of a round':>17}")
    for row, found in zip(ROWS, summaries, strict=True):
        scores = f"{found['final_auroc']:6.3f}  {found['final_balanced_accuracy']:17.3f}"
        sent = "–" if row == "central" else human_bytes(found["bytes_up_per_client"])
        print(f"{row:>16}  {scores}  {human_epsilon(found['epsilon_pld'], 3):>6}  {sent:>17}")
    print(f"\nreport: {out / 'report.html'}")


def curve(source: str, out: Path, changes: Sequence[str]) -> list[dict[str, Any]]:
    """AUROC of private schemes against ε and the number of virtual hospitals that the same patients are dealt to."""
    points = []
    for clients in HOSPITALS[source]:
        cohort = min(100, clients)
        dealt = ["data.division=iid", f"federation.clients={clients}", f"federation.cohort={cohort}"]
        dealt += ["schedule.evaluate_every=10", *changes]
        runs: list[tuple[str, int | None, Sequence[str]]] = [("fl-std", None, ())]
        runs += [
            (row, epsilon, at(f"hospital/{source}/{row}", epsilon, dealt)) for row in PRIVATE for epsilon in EPSILONS
        ]
        for row, epsilon, settings in runs:
            directory = out / f"{row}_{clients}-hospitals_{f'epsilon-{epsilon}' if epsilon else 'open'}"
            found = finished(f"hospital/{source}/{row}", directory, *dealt, *settings)
            kept = ("epsilon_pld", "epsilon_server", "final_auroc", "final_balanced_accuracy", "bytes_up_per_client")
            points.append({"row": row, "hospitals": clients} | {key: found[key] for key in kept})
    return points


def at(preset: str, epsilon: float, changes: Sequence[str]) -> tuple[str, str]:
    """Settings for an ε: more noise, smaller steps, so that the noise that adds up in the model stays the same."""
    target = f"privacy.epsilon={epsilon}"
    privacy = lowkey.load_config(preset, (*changes, target)).privacy
    assert privacy is not None
    noise = float(privacy.noise_multiplier)
    rate, calm, largest = STEPS[preset.rsplit("/", 1)[-1]]
    return target, f"{rate}={min(largest, calm / noise):.3g}"


def draw(source: str, points: Sequence[Mapping[str, Any]], file: Path) -> None:
    """One colour per number of hospitals; compressed solid, whole updates dashed, without privacy at the right."""
    figure = Figure(figsize=(7.6, 4.6), layout="constrained")
    axes = figure.add_subplot()
    for clients, colour in zip(HOSPITALS[source], COLOURS, strict=False):
        for row, style in (("fl-cs-dp-r0.05", "-"), ("fl-std-dp", "--")):
            chosen = [p for p in points if (p["row"], p["hospitals"]) == (row, clients)]
            label = f"{clients:,} hospitals" if style == "-" else None
            x, y = [p["epsilon_pld"] for p in chosen], [p["final_auroc"] for p in chosen]
            axes.plot(x, y, style, color=colour, marker="o", markersize=4, linewidth=1.8, label=label)
        (free,) = (p["final_auroc"] for p in points if (p["row"], p["hospitals"]) == ("fl-std", clients))
        axes.plot(2 * EPSILONS[-1], free, "D", color=colour, markersize=6)
    axes.plot([], [], "--", color="#7f7f7f", label="whole updates, 24 times the upload")
    axes.set_xscale("log", base=2)
    axes.set_xticks([*EPSILONS, 2 * EPSILONS[-1]], [*map(str, EPSILONS), "no\nprivacy"])
    axes.set_xlabel("ε (δ = 10⁻⁵, 100 rounds)")
    axes.set_ylabel("AUROC, last round")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    figure.savefig(file, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", choices=("sih-sus", "diabetes130"), default="sih-sus")
    parser.add_argument("--data", help="file or directory of the source; unset: as LOWKEY_HOSPITAL_DATA says")
    parser.add_argument("--out", type=Path, default=Path("consortium"))
    parser.add_argument("--curve", action="store_true")
    options = parser.parse_args()
    changes = (f"data.source={json.dumps(options.data)}",) if options.data else ()
    if options.curve:
        points = curve(options.source, options.out / f"{options.source}-curve", changes)
        lines = ",\n".join(f" {json.dumps(point)}" for point in points)
        (options.out / f"{options.source}_curve.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
        draw(options.source, points, options.out / f"{options.source}_curve.png")
    else:
        compare(options.source, options.out, changes)


if __name__ == "__main__":
    main()
