"""The two pictures of docs/private-learning.md, from results/private.json and the kept runs of the paper's networks.

    python tools/private_figures.py [--private results/private.json]

A row that is not there yet is left out, and one with few runs is drawn as it is: the picture says how many runs it has.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lowkey.experiments import load_config

RESULTS, IMAGES = Path("results"), Path("docs/images")
HEAD, NETWORK, GREY = "#0072b2", "#d55e00", "#5f6b73"  # the colour-blind can tell them apart
EPSILONS = ("0.3", "1", "3", "8")
NO_EPSILON = {HEAD: 15.5, NETWORK: 23.0}
"""Where on the axis of ε those without any stand."""

WORDS = {
    "epsilon": ("ε against everybody", "ε for released models only"),
    "bytes": ("ε = 1 against everybody", "ε ≤ 1 for released models only"),
}
"""Of whom the ε of heads and networks is true."""

LIMITS = {"fashion": (0.2, 900), "sih-sus": (2, 300), "diabetes130": (0.07, 400)}
"""Of the axis of megabits."""

LABELS = {
    ("fashion", "epsilon", "FL-STD-DP"): (0, -7),
    ("fashion", "epsilon", "FL-CS 20 %"): (0, -7),
    ("sih-sus", "epsilon", "FL-STD"): (0, -7),
    ("diabetes130", "epsilon", "FL-CS-DP"): (-9, 3),
    ("diabetes130", "epsilon", "FL-STD-DP"): (9, -3),
    ("diabetes130", "epsilon", "FL-STD"): (0, -7),
    ("fashion", "bytes", "no privacy"): (0, 7),
    ("fashion", "bytes", "FL-CS 5 %"): (0, -7),
    ("fashion", "bytes", "FL-CS 10 %"): (8, -9),
    ("fashion", "bytes", "FL-CS 20 %"): (-9, 3),
    ("fashion", "bytes", "FL-STD-DP"): (0, -7),
    ("sih-sus", "bytes", "no privacy"): (0, 10),
    ("sih-sus", "bytes", "FL-CS 5 %"): (0, 7),
    ("sih-sus", "bytes", "FL-STD"): (0, 7),
    ("sih-sus", "bytes", "FL-STD-DP"): (0, -7),
    ("diabetes130", "bytes", "ε = 1"): (12, -13),
    ("diabetes130", "bytes", "no privacy"): (9, 13),
    ("diabetes130", "bytes", "FL-STD"): (0, 7),
    ("diabetes130", "bytes", "FL-STD-DP"): (0, -7),
}
"""Where words stand, in points from their mark: to the right of it unless it is said here."""


@dataclass(frozen=True)
class Panel:
    """One source of data: its rows in results/private.json, its kept runs, and its limits of the vertical axis."""

    title: str
    row: str
    kept: str
    metric: str
    label: str
    low: float
    high: float


PANELS = (
    Panel("Fashion-MNIST, 6,000 clients", "fashion", "fashion-mnist", "accuracy", "test accuracy", 0.74, 0.93),
    Panel("SIH/SUS, 410 hospitals", "sih-sus", "hospital/sih-sus", "auroc", "AUROC", 0.70, 0.87),
    Panel("diabetes130, 227 virtual hospitals", "diabetes130", "hospital/diabetes130", "auroc", "AUROC", 0.555, 0.78),
)


@dataclass(frozen=True)
class Point:
    """Mean and range of some runs, what a client uploads in all, and the promise; None without privacy."""

    name: str
    mean: float
    least: float
    most: float
    runs: int
    megabits: float
    epsilon: float | None


def heads(results: dict[str, Any], panel: Panel) -> list[Point]:
    """Runs of the recommended way that are there."""
    names = {f"{panel.row} ε={epsilon}": f"ε = {epsilon}" for epsilon in EPSILONS}
    longest = f"{panel.row} without privacy, 1000 rounds"
    open_row = longest if longest in results else f"{panel.row} without privacy"
    names |= {f"{panel.row} small ε=1": "small", open_row: "no privacy"}
    made = []
    for key, name in names.items():
        if key in results:
            row = results[key]
            mean, least, most = row["mean, least, most"][panel.metric]
            epsilon = float(key.split("ε=")[1]) if "ε=" in key else None
            megabits = row["runs"][0]["megabits_up_per_client"]
            made.append(Point(name, mean, least, most, len(row["runs"]), megabits, epsilon))
    return made


def networks(panel: Panel) -> list[Point]:
    """Single runs of the paper's networks, at the last round."""
    names = {
        "fl-cs-dp-r0.05_z1.2245": "FL-CS-DP", "fl-cs-dp-r0.05": "FL-CS-DP", "fl-std-dp_tuned": "FL-STD-DP",
        "fl-std-dp": "FL-STD-DP", "fl-cs-r0.05": "FL-CS 5 %", "fl-cs-r0.1": "FL-CS 10 %",
        "fl-cs-r0.2": "FL-CS 20 %", "fl-std": "FL-STD",
    }  # fmt: skip
    made: dict[str, Point] = {}
    for key, name in names.items():
        file = RESULTS / f"{panel.kept}_{key}.json"
        if name in made or not file.exists():  # the calibrated and the tuned one stand for their schemes
            continue
        kept = json.loads(file.read_text("utf-8"))
        score, epsilon = kept[f"final_{panel.metric}"], kept["epsilon_pld"]
        made[name] = Point(name, score, score, score, 1, _megabits(kept), epsilon)
    return list(made.values())


def _megabits(kept: dict[str, Any]) -> float:
    """Expected upload of a client over the run: rosters are larger than cohorts, and all of a roster send."""
    config = load_config(kept["preset"])
    members = config.scheme().privacy.sampling.roster_size
    return 8e-6 * float(kept["bytes_up_per_client"] * kept["rounds"] * members) / config.federation.clients


def draw_epsilon(axes: Axes, panel: Panel, results: dict[str, Any]) -> None:
    """Score against ε; what has no promise stands at the end of the axis."""
    points = [point for point in heads(results, panel) if point.name != "small"]
    ticks = {float(epsilon): epsilon for epsilon in EPSILONS}
    line = [(point.epsilon, point.mean) for point in points if point.epsilon is not None]
    axes.plot([epsilon for epsilon, _ in line], [mean for _, mean in line], color=HEAD, linewidth=2)
    for point in points:
        place = point.epsilon or NO_EPSILON[HEAD]
        _mark(axes, place, point, HEAD)
        over = point.epsilon is None
        _say(axes, place, point.most if over else point.least, f"{point.mean:.3f}", HEAD, (0, 5 if over else -5))
        ticks[place] = f"{ticks.get(place, 'none')}\n({point.runs})"
    found = networks(panel)
    best = max((point.mean for point in found if point.epsilon is None), default=0.0)
    for point in found:
        if point.epsilon is None and point.mean < best:  # of those without privacy, the best alone
            continue
        place = point.epsilon or NO_EPSILON[NETWORK]
        _mark(axes, place, point, NETWORK)
        shift = LABELS.get((panel.row, "epsilon", point.name), (9, 0))
        _say(axes, place, point.mean, f"{point.name}\n{point.mean:.3f}", NETWORK, shift)
    axes.axvline(11, color=GREY, linewidth=0.8, alpha=0.4)
    axes.set_xscale("log")
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xticks([], minor=True)
    axes.set(xlim=(0.2, 33), xlabel="ε, log (number of runs)")


def draw_bytes(axes: Axes, panel: Panel, results: dict[str, Any]) -> None:
    """Score against what a client uploads in all, at ε = 1 and without privacy."""
    for colour, found in ((HEAD, heads(results, panel)), (NETWORK, networks(panel))):
        for point in found:
            if colour == HEAD and point.epsilon not in (1.0, None):
                continue
            _mark(axes, point.megabits, point, colour)
            shift = LABELS.get((panel.row, "bytes", point.name), (9, 0))
            name = {"small": "private-small*", "ε = 1": "private"}.get(point.name, point.name)
            _say(axes, point.megabits, point.mean, f"{name}\n{point.mean:.3f}", colour, shift)
    axes.set_xscale("log")
    low, high = LIMITS[panel.row]
    ticks = [tick for tick in (0.1, 1, 10, 100, 1000) if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set(xlim=(low, high), xlabel="upload of a client in all, Mbit (log)")


def _mark(axes: Axes, place: float, point: Point, colour: str) -> None:
    """A mean with its range: hollow without privacy, a square for whole updates."""
    axes.errorbar(
        place, point.mean, yerr=[[point.mean - point.least], [point.most - point.mean]],
        fmt="s" if "STD" in point.name else "o", color=colour, mfc="white" if point.epsilon is None else colour,
        markersize=6.5, mew=1.6, elinewidth=1.6, capsize=3 if point.runs > 1 else 0, zorder=4,
    )  # fmt: skip


def _say(axes: Axes, x: float, y: float, text: str, colour: str, shift: tuple[float, float]) -> None:
    """Words beside a point: to its left, right, over or under it."""
    across = "left" if shift[0] > 0 else "right" if shift[0] < 0 else "center"
    down = "center" if shift[0] else "top" if shift[1] < 0 else "bottom"
    axes.annotate(
        text, (x, y), shift, textcoords="offset points", ha=across, va=down, color=colour, fontsize=9, zorder=5,
        fontweight="bold" if colour == HEAD else "normal", multialignment=across, linespacing=1.1,
    )  # fmt: skip


def draw(kind: str, results: dict[str, Any]) -> Figure:
    """All panels side by side, under one line that says what the colours are."""
    figure = Figure(figsize=(12, 4.5))
    FigureCanvasAgg(figure)
    figure.subplots_adjust(left=0.055, right=0.995, top=0.83, bottom=0.19, wspace=0.2)
    for axes, panel in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        {"epsilon": draw_epsilon, "bytes": draw_bytes}[kind](axes, panel, results)
        axes.set(ylim=(panel.low, panel.high), ylabel=panel.label)
        axes.set_title(panel.title, fontsize=10.5, loc="left", fontweight="bold")
        axes.grid(axis="y", alpha=0.2)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=9)
    heads_are, networks_are = WORDS[kind]
    for place, colour, text in (
        (0.055, HEAD, f"● convex head on public features, {heads_are}: mean and range"),
        (0.495, NETWORK, f"● the paper's networks, {networks_are}: single runs"),
        (0.893, GREY, "○ without privacy"),
    ):
        figure.text(place, 0.945, text, color=colour, fontsize=9.5)
    small = results.get("fashion small ε=1")
    if kind == "bytes" and small is not None:
        server = small["mean, least, most"]["epsilon_server_limit"][0]
        figure.text(0.055, 0.025, f"* sampled: for the server, ε = {server:.3g}", color=HEAD, fontsize=9)
    return figure


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--private", type=Path, default=RESULTS / "private.json", help="rows of the recommended way")
    parser.add_argument("--out", type=Path, default=IMAGES)
    options = parser.parse_args(None if arguments is None else list(arguments))
    results = json.loads(options.private.read_text("utf-8"))
    for kind in ("epsilon", "bytes"):
        draw(kind, results).savefig(options.out / f"private-{kind}.png", dpi=150)


if __name__ == "__main__":
    main()
