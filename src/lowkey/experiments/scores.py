"""By which of its metrics a run is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LABELS = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "auroc": "AUROC"}
_OF_RARE_EVENTS = ("balanced_accuracy", "auroc")


def headline(figures: Mapping[str, Any], prefix: str = "") -> tuple[str, ...]:
    """Names of the scores that count, without the prefix; the first decides which round is best.

    ``figures`` is a line of metrics.jsonl, a table of published values, or the summary of a run, whose names have the
    prefix "best_" or "final_". Where balanced accuracy is known, accuracy says nothing: of rare events the model that
    never expects any has the best.
    """
    known = tuple(name for name in _OF_RARE_EVENTS if figures.get(f"{prefix}{name}") is not None)
    return known if "balanced_accuracy" in known else ("accuracy",)


def evaluated_rounds(metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rounds in which the model was evaluated."""
    return [line for line in metrics if headline(line)[0] in line]


def labels(names: Sequence[str]) -> str:
    """For people, as in "balanced accuracy / AUROC"."""
    return " / ".join(LABELS[name] for name in names)


def values(figures: Mapping[str, Any], decimals: int, prefix: str = "") -> str:
    """In the order of :func:`labels`, as in "0.73 / 0.80"; a dash for what is not known."""
    found = [figures.get(f"{prefix}{name}") for name in headline(figures, prefix)]
    return " / ".join("–" if value is None else f"{value:.{decimals}f}" for value in found)
