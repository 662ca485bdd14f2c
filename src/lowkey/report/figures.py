"""Curves of runs: accuracy against round, against uploaded bytes, against ε. Stars mark the paper's values."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lowkey.report.tables import RunData

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f")


@dataclass(frozen=True)
class _Axis:
    """What stands below the curve: its label, its value in a round, its value for the paper's best round."""

    label: str
    value: Callable[[RunData, dict[str, Any]], float | None]
    published: Callable[[RunData], float | None]
    logarithmic: bool = False


def _megabytes(run: RunData, metrics: dict[str, Any]) -> float:
    return float(metrics["bytes_up_total"]) / run.config.data.clients / 1e6


def _published_megabytes(run: RunData) -> float | None:
    if run.config.paper is None:
        return None
    last = run.metrics[-1]
    return _megabytes(run, last) / int(last["round"]) * run.config.paper.round


_AXES = {
    "accuracy-round.png": _Axis(
        "round", lambda _run, m: m["round"], lambda run: run.config.paper.round if run.config.paper else None
    ),
    "accuracy-bytes.png": _Axis(
        "expected upload of one client, MB (log)", _megabytes, _published_megabytes, logarithmic=True
    ),
    "accuracy-epsilon.png": _Axis(
        "ε spent (curves: PLD; stars: as the paper counts)",
        lambda _run, m: m["epsilon_pld"],
        lambda run: run.config.paper.epsilon if run.config.paper else None,
    ),
}


def figures(runs: Sequence[RunData]) -> dict[str, bytes]:
    """PNG pictures by file name; the picture against ε only where a run has spent some."""
    drawn = {name: _draw(runs, axis) for name, axis in _AXES.items()}
    return {name: picture for name, picture in drawn.items() if picture is not None}


def _draw(runs: Sequence[RunData], axis: _Axis) -> bytes | None:
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, run in enumerate(runs):
        colour = _COLOURS[number % len(_COLOURS)]
        points = [(axis.value(run, m), m["accuracy"]) for m in run.evaluated]
        shown = [(x, y) for x, y in points if x is not None]
        if shown:
            marker = "o" if len(shown) == 1 else None
            axes.plot(*zip(*shown, strict=True), color=colour, label=run.label, linewidth=1.8, marker=marker)
            published = axis.published(run)
            if run.config.paper is not None and run.config.paper.accuracy is not None and published is not None:
                axes.plot(published, run.config.paper.accuracy, "*", color=colour, markersize=13, mec="white")
    if not axes.lines:
        return None
    if axis.logarithmic:
        axes.set_xscale("log")
    axes.set_xlabel(axis.label)
    axes.set_ylabel("test accuracy")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    return picture.getvalue()
