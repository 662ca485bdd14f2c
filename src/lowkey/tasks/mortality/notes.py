"""How to read a report on this task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_PREDICTIONS = (
    "Sensitivity is the fraction of deaths that were flagged, specificity the fraction of survivors that were not; a "
    "patient is flagged where the predicted probability of death is above one half, by a model that learned from as "
    "many deaths as survivals."
)


def notes(runs: Sequence[Any]) -> list[str]:
    """Sentences about runs, each with its configuration and its last evaluation."""
    by_server = any("auroc_low" not in run.last_test for run in runs if run.last_test)
    lines = [_PREDICTIONS] if by_server else []
    deaths = sorted({_fraction_of_deaths(run) for run in runs if run.last_test.get("calibration")})
    if deaths:
        lines.append(
            "Calibration is of the last round, in ten bins of equally many test patients, with 95 % intervals; hollow "
            "points are bins in which nobody died. Clients learn from as many deaths as survivals, so the odds of "
            f"every prediction are corrected by the test set's fraction of deaths ({', '.join(deaths)}); dashed lines "
            "are without this correction."
        )
    synthetic = [run.label for run in runs if run.config.data.name == "synthetic"]
    if synthetic:
        lines.append(f"Synthetic data, nobody's data is in it: {', '.join(synthetic)}.")
    return lines


def _fraction_of_deaths(run: Any) -> str:
    bins = run.last_test["calibration"]
    return f"{100 * sum(row[2] * row[3] for row in bins) / sum(row[3] for row in bins):.2f} %"
