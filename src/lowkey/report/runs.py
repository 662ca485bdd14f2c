"""Runs as the report sees them, read from their directories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from lowkey.errors import RunError
from lowkey.experiments import Config, RunDirectory, evaluated_rounds, labels
from lowkey.tasks import Presentation, Score


@dataclass(frozen=True, kw_only=True)
class RunData:
    """One run as the report sees it.

    Attributes
    ----------
    path : Path
        Its directory.
    label : str
        What it is called in tables and pictures.
    config : Config
        Its settings.
    presentation : Presentation
        How it is judged and shown.
    metrics : list of dict
        One for each round.
    summary : dict
        Its figures so far, see :meth:`lowkey.experiments.RunDirectory.summary`.
    claims_privacy : bool
        False if its secrets were replayed.
    features : str
        The public feature map that makes the model's inputs, in words with its digest; empty for none.
    """

    path: Path
    label: str
    config: Config = field(repr=False)
    presentation: Presentation = field(repr=False)
    metrics: list[dict[str, Any]] = field(repr=False)
    summary: dict[str, Any] = field(repr=False)
    claims_privacy: bool
    features: str = ""

    @property
    def scores(self) -> tuple[Score, ...]:
        """The scores by which the run is judged."""
        return self.presentation.scores

    @property
    def evaluated(self) -> list[dict[str, Any]]:
        """The rounds in which the model was evaluated."""
        return evaluated_rounds(self.metrics, self.scores)

    @property
    def last_test(self) -> dict[str, Any]:
        """The last round in which the model was evaluated; empty if nothing was learned."""
        return self.evaluated[-1] if self.evaluated else {}

    @property
    def learned(self) -> list[dict[str, Any]]:
        """The rounds in which clients learned, and were not asked."""
        return [line for line in self.metrics if "answer" not in line]

    @cached_property
    def answers(self) -> list[dict[str, Any]]:
        """What clients answered, in the order of the questions, each with its round."""
        return [{"round": line["round"], **line["answer"]} for line in self.metrics if "answer" in line]

    @property
    def evaluation(self) -> dict[str, Any]:
        """The last evaluation by clients; empty if there was none."""
        return next((answer for answer in reversed(self.answers) if "thresholds" in answer["tables"]), {})

    @property
    def central(self) -> bool:
        """Whether one client holds all data, so that no update is sent."""
        return self.config.federation.clients == 1

    @property
    def private(self) -> bool:
        """Whether anything is promised to clients."""
        return self.config.privacy is not None


def load_runs(paths: Sequence[Path]) -> list[RunData]:
    """Read runs of one task.

    Parameters
    ----------
    paths : sequence of Path
        Run directories. Where presets repeat, labels are made distinct by the directory's name.

    Returns
    -------
    list of RunData
        In the same order.

    Raises
    ------
    RunError
        If a path is not a run directory, or a run has neither an evaluated round nor an answer of clients, or another
        task than the first.
    """
    directories = [RunDirectory.open(path) for path in paths]
    _require_one_task(directories)
    names = [directory.config.name for directory in directories]
    return [
        _read(directory, name if names.count(name) == 1 else f"{name} ({directory.path.name})")
        for directory, name in zip(directories, names, strict=True)
    ]


def _read(directory: RunDirectory, label: str) -> RunData:
    run = RunData(
        path=directory.path,
        label=label,
        config=directory.config,
        presentation=directory.presentation(),
        metrics=directory.metrics(),
        summary=directory.summary(),
        claims_privacy=directory.claims_privacy,
        features=directory.features or "",
    )
    if not run.evaluated and not run.answers:
        raise RunError(
            f"{run.path} has no evaluated round: either it has just begun, or its task has no test data; "
            "'lowkey status' shows how far it is"
        )
    return run


def _require_one_task(directories: Sequence[RunDirectory]) -> None:
    def words(directory: RunDirectory) -> str:
        task, scores = directory.config.task, directory.presentation().scores
        return f"{directory.path} has the task {task}, judged by {labels(scores)}"

    first = directories[0]
    for directory in directories:
        if directory.config.task != first.config.task:
            raise RunError(
                f"{words(first)}; {words(directory)}: they cannot be compared; make one report for each task"
            )
