"""Curves of runs: their score against round, against uploaded bytes, against ε. Stars mark the paper's values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lowkey.experiments.scores import LABELS
from lowkey.report.canvas import as_png, colour_of, new_figure
from lowkey.report.patients import calibration_figure, confusion_figure
from lowkey.report.tables import RunData


@dataclass(frozen=True)
class Picture:
    """A file of the report; a wide one has a line of the page for itself."""

    name: str
    title: str
    png: bytes = field(repr=False)
    wide: bool = False


@dataclass(frozen=True)
class _Axis:
    """What stands below the curve: its label, its value in a round, its value for the paper's best round."""

    title: str
    label: str
    value: Callable[[RunData, dict[str, Any]], float | None]
    published: Callable[[RunData], float | None]
    logarithmic: bool = False


def _megabytes(run: RunData, metrics: dict[str, Any]) -> float | None:
    """None where nobody sends anything."""
    return None if run.central else float(metrics["bytes_up_total"]) / run.config.data.clients / 1e6


def _published_megabytes(run: RunData) -> float | None:
    """None where the paper learned from other data, and so with another model."""
    last, paper = run.metrics[-1], run.config.paper
    sent = _megabytes(run, last)
    if sent is None or paper is None or paper.data is not None:
        return None
    return sent / int(last["round"]) * paper.round


_AXES = {
    "round": _Axis(
        "by round",
        "round",
        lambda _run, m: m["round"],
        lambda run: run.config.paper.round if run.config.paper else None,
    ),
    "bytes": _Axis(
        "by uploaded bytes",
        "expected upload of one client, MB (log)",
        _megabytes,
        _published_megabytes,
        logarithmic=True,
    ),
    "epsilon": _Axis(
        "by privacy spent",
        "ε spent (curves: PLD; stars: as the paper counts)",
        lambda _run, m: m["epsilon_pld"],
        lambda run: run.config.paper.epsilon if run.config.paper else None,
    ),
}


def figures(runs: Sequence[RunData]) -> list[Picture]:
    """Curves of the score of the runs, against ε only where a run has spent some; of mortality also its predictions."""
    score = runs[0].scores[-1]
    label = LABELS[score]
    drawn = [
        (f"{score}-{name}.png", f"{label[0].upper()}{label[1:]} {axis.title}", _draw(runs, score, axis))
        for name, axis in _AXES.items()
    ]
    drawn += [
        ("calibration.png", "Predicted and observed deaths", calibration_figure(runs)),
        ("confusion.png", "Who was flagged", confusion_figure(runs)),
    ]
    return [Picture(name, title, png, name == "confusion.png") for name, title, png in drawn if png is not None]


def _draw(runs: Sequence[RunData], score: str, axis: _Axis) -> bytes | None:
    figure = new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    for number, run in enumerate(runs):
        colour, paper = colour_of(number), run.config.paper
        points = [(axis.value(run, m), m[score]) for m in run.evaluated]
        shown = [(x, y) for x, y in points if x is not None]
        if shown:
            marker = "o" if len(shown) == 1 else None
            axes.plot(*zip(*shown, strict=True), color=colour, label=run.label, linewidth=1.8, marker=marker)
            place, value = axis.published(run), getattr(paper, score, None)
            if place is not None and value is not None:
                axes.plot(place, value, "*", color=colour, markersize=13, mec="white")
    if not axes.lines:
        return None
    if axis.logarithmic:
        axes.set_xscale("log")
    axes.set_xlabel(axis.label)
    axes.set_ylabel(f"test {LABELS[score]}")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    return as_png(figure)
