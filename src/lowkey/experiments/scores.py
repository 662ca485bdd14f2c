"""The scores by which runs of a task are judged, as text for tables and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lowkey.tasks import Score


def evaluated_rounds(metrics: Sequence[dict[str, Any]], scores: Sequence[Score]) -> list[dict[str, Any]]:
    """The rounds in which the model was evaluated."""
    return [line for line in metrics if line.get(scores[0].name) is not None]


def labels(scores: Sequence[Score]) -> str:
    """Labels of the scores, as in "balanced accuracy / AUROC"."""
    return " / ".join(score.label for score in scores)


def values(figures: Mapping[str, Any], scores: Sequence[Score], decimals: int, prefix: str = "") -> str:
    """Values in the order of :func:`labels`, as in "0.73 / 0.80"; a dash for a value that is not known.

    ``figures`` is a line of metrics.jsonl, a table of published values, or the summary of a run, whose names have the
    prefix "best_" or "final_".
    """
    found = [figures.get(f"{prefix}{score.name}") for score in scores]
    return " / ".join("–" if value is None else f"{value:.{decimals}f}" for value in found)
