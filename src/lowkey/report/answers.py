"""What clients answered: tables of statistics and of evaluations, each number with its 95 % interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowkey.figures import human, titled, with_ranges
from lowkey.report.runs import RunData

_MOST = 40
"""Rows of a table that are shown."""


@dataclass(frozen=True)
class Table:
    """A table of an answer."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True)
class Section:
    """One answer of one run, in tables and in sentences."""

    title: str
    tables: list[Table]
    notes: tuple[str, ...]


def sections(runs: Sequence[RunData]) -> list[Section]:
    """Return what clients of all runs were asked and answered.

    Parameters
    ----------
    runs : sequence of RunData
        All of one task.

    Returns
    -------
    list of Section
        One for each question, in the order in which they were asked; of evaluations the last, as the pictures have it.
    """
    found = []
    for run in runs:
        last = run.evaluation
        for answer in run.answers:
            if answer is last or "thresholds" not in answer["tables"]:
                prefix = f"{run.label}: " if len(runs) > 1 else ""
                found.append(_section(f"{prefix}{answer['question']}, round {answer['round']}", answer))
    return found


def _section(title: str, answer: Mapping[str, Any]) -> Section:
    tables, notes = [], list(answer["notes"])
    if answer["estimates"]:
        rows = [
            (titled(name), *(human(one[key]) for key in ("value", "low", "high")))
            for name, one in answer["estimates"].items()
        ]
        tables.append(Table("", ("", "estimate", "from", "to (95 %)"), rows))
    for name, columns in answer["tables"].items():
        shown = with_ranges(columns)
        rows = list(zip(*shown.values(), strict=True))
        if len(rows) > _MOST:
            notes.append(
                f"The table {name} has {len(rows):,} rows, of which the first {_MOST} are shown; see answers.json."
            )
        tables.append(Table(name, tuple(shown), rows[:_MOST]))
    return Section(title, tables, tuple(notes))
