"""Pictures of a report: curves of every score, and the pictures that the task names. Stars mark the paper's values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from matplotlib.axes import Axes

from lowkey.registry import Registry
from lowkey.report.binary import calibration, confusion
from lowkey.report.canvas import Picture, as_png, colour_of, new_figure
from lowkey.report.evaluations import risks, thresholds
from lowkey.report.runs import RunData
from lowkey.tasks import Score

Drawing: TypeAlias = Callable[[Sequence[RunData]], Picture | None]
"""Draws runs of one task; returns None if no run has the metrics that it needs."""

FIGURES: Registry[Drawing] = Registry("task.figures", {"calibration": calibration, "confusion": confusion})


@dataclass(frozen=True)
class _Axis:
    """A horizontal axis: its label, its value in a round, its value for the paper's best round."""

    title: str
    label: str
    value: Callable[[RunData, dict[str, Any]], float | None]
    published: Callable[[RunData], float | None]
    logarithmic: bool = False


def _megabytes(run: RunData, metrics: dict[str, Any]) -> float | None:
    """None if nobody sends anything."""
    return None if run.central else float(metrics["bytes_up_total"]) / run.config.federation.clients / 1e6


def _published_megabytes(run: RunData) -> float | None:
    """None if the paper learned from other data, and so with another model."""
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
    """Draw the pictures of a report.

    Parameters
    ----------
    runs : sequence of RunData
        All of one task.

    Returns
    -------
    list of Picture
        Curves of every score, against ε only where a run has spent some; then what the task names, where a run has the
        metrics for it; then what clients found about the model.
    """
    shown = runs[0].presentation
    drawings = [FIGURES[name] for name in shown.figures]  # refuses unknown names before anything is drawn
    drawn = [_curves(runs, score, name) for score in shown.scores for name in _AXES]
    drawn += [draw(runs) for draw in (*drawings, risks, thresholds)]
    return [picture for picture in drawn if picture is not None]


def _curves(runs: Sequence[RunData], score: Score, name: str) -> Picture | None:
    """Draw one score of all runs against one axis; None if there is nothing to draw."""
    axis, figure = _AXES[name], new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    for number, run in enumerate(runs):
        points = [(axis.value(run, m), m.get(score.name)) for m in run.evaluated]
        shown = [(x, y) for x, y in points if x is not None and y is not None]
        if not shown:
            continue
        colour, paper = colour_of(number), run.config.paper
        marker = "o" if len(shown) == 1 else None
        axes.plot(*zip(*shown, strict=True), color=colour, label=run.label, linewidth=1.8, marker=marker)
        ranges = [
            (axis.value(run, m), m[f"{score.name}_low"], m[f"{score.name}_high"])
            for m in run.evaluated
            if f"{score.name}_low" in m
        ]
        _draw_ranges(axes, ranges, colour)
        place, value = axis.published(run), paper.scores.get(score.name) if paper else None
        if place is not None and value is not None:
            axes.plot(place, value, "*", color=colour, markersize=13, mec="white")
    if not axes.lines:
        return None
    if axis.logarithmic:
        axes.set_xscale("log")
    axes.set(xlabel=axis.label, ylabel=f"test {score.label}")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    title = f"{score.label[0].upper()}{score.label[1:]} {axis.title}"
    return Picture(f"{score.name}-{name}.png", title, as_png(figure))


def _draw_ranges(axes: Axes, ranges: Sequence[tuple[float | None, float, float]], colour: str) -> None:
    """Intervals of what clients found, as a band, or as a bar where there is one."""
    known = [one for one in ranges if one[0] is not None]
    if len(known) == 1:
        axes.vlines(*zip(*known, strict=True), color=colour, linewidth=5, alpha=0.25)
    elif known:
        places, low, high = zip(*known, strict=True)
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
