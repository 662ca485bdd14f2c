"""Pictures of what clients found about a model on their own test rows, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from lowkey.report.canvas import Picture, as_png, colour_of, new_figure
from lowkey.report.runs import RunData

_GREY = "#8a8a8a"


def risks(runs: Sequence[RunData]) -> Picture | None:
    """Draw the predicted against the observed fraction of the event, in the bins that clients counted.

    Parameters
    ----------
    runs : sequence of RunData
        All of one task; those whose model was evaluated by clients are drawn.

    Returns
    -------
    Picture or None
        None if no model was.
    """
    known = _known(runs)
    if not known:
        return None
    tables = [run.evaluation["tables"]["calibration"] for run, _ in known]
    values = [value for table in tables for value in table["predicted"] if value > 0]
    low, high = min(values) / 4, 1.0
    figure = new_figure(7.2, 4.6)
    axes = figure.add_subplot()
    axes.plot([low, high], [low, high], color=_GREY, linewidth=1, zorder=1)
    for number, ((run, colour), table) in enumerate(zip(known, tables, strict=True)):
        places = np.array(table["predicted"]) * 1.03 ** (number - (len(known) - 1) / 2)
        observed, least, most = (np.maximum(table[name], low) for name in ("observed", "observed_low", "observed_high"))
        axes.vlines(places, least, most, color=colour, linewidth=5, alpha=0.25)
        axes.plot(places, observed, "o", color=colour, markersize=6, label=run.label, zorder=4, clip_on=False)
    event = runs[0].presentation.words.event
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.set(xlabel=f"predicted risk of {event} (log)", ylabel=f"observed risk of {event} (log)")
    _frame(axes, axes.xaxis, axes.yaxis)
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    return Picture("evaluation-calibration.png", f"Predicted and observed risk of {event}, by clients", as_png(figure))


def thresholds(runs: Sequence[RunData]) -> Picture | None:
    """Draw sensitivity and specificity at all thresholds that clients counted: against each other, and by risk.

    Parameters
    ----------
    runs : sequence of RunData
        All of one task; those whose model was evaluated by clients are drawn.

    Returns
    -------
    Picture or None
        None if no model was.
    """
    known = _known(runs)
    if not known:
        return None
    figure = new_figure(10.5, 4.4)
    curve, by_risk = figure.subplots(1, 2)
    curve.plot([0, 1], [0, 1], color=_GREY, linewidth=1, zorder=1)
    for run, colour in known:
        table, area = run.evaluation["tables"]["thresholds"], run.evaluation["estimates"]["auroc"]
        found, found_low, found_high, right, right_low, right_high = (
            np.array(table[f"{name}{end}"]) for name in ("sensitivity", "specificity") for end in ("", "_low", "_high")
        )
        label = f"{run.label}\nAUROC {area['value']:.3f} ({area['low']:.3f} to {area['high']:.3f})"
        curve.hlines(found, 1 - right_high, 1 - right_low, color=colour, linewidth=4, alpha=0.22)
        curve.vlines(1 - right, found_low, found_high, color=colour, linewidth=4, alpha=0.22)
        curve.plot([1, *(1 - right), 0], [1, *found, 0], color=colour, linewidth=1.6, label=label)
        curve.plot(1 - right, found, "o", color=colour, markersize=4.5, zorder=4)
        for value, low, high, style, name in (
            (found, found_low, found_high, "-", "sensitivity"),
            (right, right_low, right_high, "--", "specificity"),
        ):
            by_risk.plot(table["risk"], value, style, color=colour, linewidth=1.8, label=name)
            by_risk.fill_between(table["risk"], low, high, color=colour, alpha=0.15, linewidth=0)
    curve.set(xlim=(0, 1), ylim=(0, 1), xlabel="1 − specificity", ylabel="sensitivity", aspect="equal")
    curve.legend(frameon=False, fontsize=8.5, loc="lower right")
    by_risk.set(xscale="log", ylim=(0, 1), xlabel="alarm at a predicted risk above (log)")
    handles, labels = by_risk.get_legend_handles_labels()
    by_risk.legend(handles[:2], labels[:2], frameon=False, fontsize=9, loc="best")
    _frame(curve)
    _frame(by_risk, by_risk.xaxis)
    return Picture("evaluation-thresholds.png", "Sensitivity and specificity, by clients", as_png(figure), wide=True)


def _known(runs: Sequence[RunData]) -> list[tuple[RunData, str]]:
    return [(run, colour_of(number)) for number, run in enumerate(runs) if run.evaluation]


def _frame(axes: Axes, *logarithmic: Axis) -> None:
    """The frame of all pictures; logarithmic axes have ticks in percent."""
    for axis in logarithmic:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda fraction, _: f"{100 * fraction:g} %"))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
