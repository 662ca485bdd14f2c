"""The tables of docs/private-learning.md, from results/private.json.

python tools/private_tables.py [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

PAGE, RESULTS = Path("docs/private-learning.md"), Path("results/private.json")
NAMES = {"sih-sus": "SIH/SUS, 410 hospitals", "diabetes130": "diabetes130, 227", "synthetic": "synthetic, 5,011"}


def human(row: dict[str, Any], metric: str) -> str:
    """Mean and range."""
    mean, least, most = row["mean, least, most"][metric]
    return f"**{mean:.3f}** [{least:.3f}–{most:.3f}]" if len(row["runs"]) > 1 else f"{mean:.3f}"


def fashion(results: dict[str, Any]) -> list[str]:
    """Rows of images."""
    made = ["| Fashion-MNIST | ε for released models | ε for the server | runs | accuracy |", "|---|---|---|---|---|"]
    for name, row in results.items():
        if not name.startswith("fashion") or "rate" in name:
            continue
        epsilon = name.split("ε=")[1].split()[0] if "ε=" in name else "–"
        limit = row["mean, least, most"].get("epsilon_server_limit", [None])[0]
        bits = row["runs"][0]["megabits_up_per_client"]
        kind = "sampled, `private-small`" if "small" in name else "`private`" if "ε" in name else "`head`, no privacy"
        extra = ", nobody drops out or colludes" if "tolerance 0" in name else ""
        server = "–" if limit is None else f"{limit:.3g}"
        made.append(
            f"| {kind}{extra}; {row['runs'][0]['rounds']} rounds, {bits:.3g} Mbit of vectors | {epsilon} | {server} | "
            f"{len(row['runs'])} | {human(row, 'accuracy')} |"
        )
    beside = "the paper's FL-CS-DP on its network, r = 0.05, calibrated"
    made.append(f"| *for comparison: {beside}* ([measurements.md](measurements.md)) | 1 | 13.8 | 1 | 0.782 |")
    made.append("| *the paper's FL-STD without privacy, as published* | – | – | | 0.87 |")
    return made


def hospital(results: dict[str, Any]) -> list[str]:
    """Rows of admissions."""
    made = ["| Hospitals | ε for everybody | runs | AUROC | calibration slope |", "|---|---|---|---|---|"]
    for name, row in results.items():
        source = name.split()[0]
        if source not in NAMES or "rate" in name:
            continue
        epsilon = name.split("ε=")[1] if "ε=" in name else "none: the same head without privacy"
        made.append(
            f"| {NAMES[source]} | {epsilon} | {len(row['runs'])} | {human(row, 'auroc')} | "
            f"{human(row, 'calibration_slope')} |"
        )
    beside = "the paper's FL-CS-DP on its network, ε = 1 for released models"
    made.append(
        f"| *for comparison: {beside}; SIH/SUS, diabetes130* ([hospital.md](hospital.md)) | – | 1 | 0.745, 0.595 | |"
    )
    return made


def tuned(results: dict[str, Any]) -> list[str]:
    """What choosing the rate on test data would have gained."""
    parts = []
    for name, label, metric in (
        ("fashion small", "`private-small`", "accuracy"), ("sih-sus", "SIH/SUS", "auroc"),
        ("diabetes130", "diabetes130", "auroc"),
    ):  # fmt: skip
        rows = {k: v for k, v in results.items() if k.startswith(f"{name} ε=1")}
        if len(rows) < 2:
            continue
        means = {k: v["mean, least, most"][metric][0] for k, v in rows.items()}
        best, rule = max(means, key=lambda k: means[k]), means[f"{name} ε=1"]
        factor = best.split("× ")[1] if "×" in best else "1"
        parts.append(f"| {label} | {rule:.3f} | {means[best]:.3f} (rate × {factor}) |")
    if not parts:
        return []
    head = "**Rule against tuned.** What choosing the server's rate on test data (0.5, 0.7, 1.4, 2 times) would gain:"
    return [head, "", "| | by rule | the best of five rates, by test data |", "|---|---|---|", *parts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether the page has the figures of the results")
    arguments = parser.parse_args()
    results, page = json.loads(RESULTS.read_text("utf-8")), PAGE.read_text("utf-8")
    made = page
    for key, lines in (("FASHION", fashion(results)), ("HOSPITAL", hospital(results)), ("TUNED", tuned(results))):
        begin, end = f"<!-- {key} -->\n", f"<!-- /{key} -->\n"
        if begin not in made or end not in made:
            raise SystemExit(f"the page has no marks for {key}")
        head, _, rest = made.partition(begin)
        _, _, tail = rest.partition(end)
        made = head + begin + "".join(f"{line}\n" for line in ["", *lines, ""] if lines) + end + tail
    if arguments.check:
        sys.exit(0 if made == page else f"{PAGE} differs from {RESULTS}; run python tools/private_tables.py")
    PAGE.write_text(made, "utf-8")


if __name__ == "__main__":
    main()
