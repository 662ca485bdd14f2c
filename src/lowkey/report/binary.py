"""What a model says of an event that happens or does not: how often it is right, and how far its numbers hold.

The words for the event and its two outcomes are those of the task.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from scipy.stats import binomtest

from lowkey.report.canvas import Picture, as_png, colour_of, new_figure
from lowkey.report.runs import RunData
from lowkey.tasks import Words

_INK, _GREY, _RIGHT, _WRONG = "#222222", "#8a8a8a", "#0072b2", "#d55e00"
_COUNTS = ("true_positives", "false_negatives", "false_positives", "true_negatives")
_COLUMNS = 3
_CONFIDENCE = 0.95


def calibration(runs: Sequence[RunData]) -> Picture | None:
    """Draw the predicted against the observed fraction of the event, in bins of equally many examples.

    Parameters
    ----------
    runs : sequence of RunData
        All of one task; those whose last evaluation has "calibration" are drawn.

    Returns
    -------
    Picture or None
        None if no run has it.
    """
    known = [(run, colour_of(number)) for number, run in enumerate(runs) if run.last_test.get("calibration")]
    if not known:
        return None
    rows = [row for run, _ in known for row in run.last_test["calibration"]]
    fractions = [fraction for _, corrected, observed, _ in rows for fraction in (corrected, observed) if fraction > 0]
    low, high = min(fractions) / 1.5, min(1.0, 1.5 * max(fractions))
    figure = new_figure(7.2, 4.6)
    corrected, raw = figure.subplots(1, 2, sharey=True, width_ratios=(3, 1))
    corrected.plot([low, high], [low, high], color=_GREY, linewidth=1, zorder=1)
    for run, colour in known:
        _draw_corrected(corrected, run, colour, low)
        predicted, _, observed, _ = zip(*run.last_test["calibration"], strict=True)
        raw.plot(predicted, [max(fraction, low) for fraction in observed], "--", color=colour, linewidth=1.2, alpha=0.6)
    event = runs[0].presentation.words.event
    corrected.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    corrected.set(xlabel=f"predicted risk of {event} (log)", ylabel=f"observed risk of {event} (log)")
    corrected.set_title("corrected by the fraction in the test set", fontsize=10)
    raw.set(xlim=(0, 1), xticks=(0, 0.5, 1), xlabel="predicted")
    raw.set_title("before correction", fontsize=10)
    _in_percent(corrected, raw, decades=math.log10(high / low))
    corrected.legend(frameon=False, fontsize=9, loc="upper left")
    return Picture("calibration.png", f"Predicted and observed risk of {event}", as_png(figure))


def _in_percent(corrected: Axes, raw: Axes, *, decades: float) -> None:
    """Ticks in percent, as many as there is room for; and the frame of all pictures."""
    steps = (1, 2, 5) if decades < 2 else (1, 3) if decades < 3 else (1,)
    for axis in (corrected.xaxis, corrected.yaxis):
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_minor_formatter(NullFormatter())
    for axis in (corrected.xaxis, corrected.yaxis, raw.xaxis):
        axis.set_major_formatter(FuncFormatter(lambda fraction, _: f"{100 * fraction:g} %"))
    for axes in (corrected, raw):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)


def _draw_corrected(axes: Axes, run: RunData, colour: str, floor: float) -> None:
    """Bins without the event lie on the lower edge, hollow; thin lines are intervals of the observed fraction."""
    _, corrected, observed, counts = zip(*run.last_test["calibration"], strict=True)
    axes.plot(corrected, [max(fraction, floor) for fraction in observed], color=colour, linewidth=1.8, label=run.label)
    for place, fraction, count in zip(corrected, observed, counts, strict=True):
        interval = binomtest(round(fraction * count), int(count)).proportion_ci(_CONFIDENCE, method="wilson")
        axes.plot([place, place], [max(interval.low, floor), interval.high], color=colour, linewidth=1, alpha=0.35)
        fill = colour if fraction > 0 else "white"
        axes.plot(place, max(fraction, floor), "o", color=colour, mfc=fill, markersize=5, clip_on=False, zorder=4)


def confusion(runs: Sequence[RunData]) -> Picture | None:
    """Draw how many examples of each outcome were flagged, one matrix for each run.

    Parameters
    ----------
    runs : sequence of RunData
        All of one task; those whose last evaluation has the four counts are drawn.

    Returns
    -------
    Picture or None
        None if no run has them.
    """
    known = [run for run in runs if all(name in run.last_test for name in _COUNTS)]
    if not known:
        return None
    columns = min(len(known), _COLUMNS)
    lines = math.ceil(len(known) / columns)
    figure = new_figure(3.3 * columns + 0.4, 2.75 * lines)
    places = list(figure.subplots(lines, columns, squeeze=False).flat)
    for place, run in zip(places, known, strict=False):
        _draw_confusion(place, run.label, run.last_test, run.presentation.words)
    for place in places[len(known) :]:
        place.set_axis_off()
    return Picture("confusion.png", "Flagged or not, by outcome", as_png(figure), wide=True)


def _shade(fraction: float, *, right: bool) -> tuple[float, ...]:
    """A colour that is stronger for a larger fraction; blue if the prediction is right, orange if it is wrong."""
    return tuple(1 - fraction * (1 - part) for part in to_rgb(_RIGHT if right else _WRONG))


def _draw_confusion(axes: Axes, label: str, metrics: dict[str, Any], words: Words) -> None:
    found, missed, false, right = (int(metrics[name]) for name in _COUNTS)
    table = [(found, missed), (false, right)]
    fractions = [[count / max(sum(row), 1) for count in row] for row in table]
    axes.imshow(
        [[_shade(fraction, right=x == y) for x, fraction in enumerate(row)] for y, row in enumerate(fractions)],
        aspect=0.62,
    )
    for y, row in enumerate(table):
        for x, count in enumerate(row):
            ink = "white" if fractions[y][x] > 0.85 else _INK
            axes.text(x, y - 0.08, f"{100 * fractions[y][x]:.1f} %", ha="center", va="center", color=ink, fontsize=13)
            axes.text(x, y + 0.22, f"{count:,}", ha="center", va="center", color=ink, fontsize=9)
    axes.set_xticks([0, 1], ["flagged", "not flagged"])
    axes.set_yticks([0, 1], [words.happened, words.did_not])
    axes.tick_params(length=0, top=True, bottom=False, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.set_title(f"{label}\nround {metrics['round']}", fontsize=9.5)
    axes.set_xlabel(f"{words.happened}: {100 * fractions[0][0]:.0f} % were flagged", fontsize=9.5)
