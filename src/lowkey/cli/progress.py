"""Live progress of a run on standard error: round, scores, ε, bytes, time left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lowkey.figures import human_bytes, human_epsilon
from lowkey.protocols import Metrics
from lowkey.tasks import Score

_SECONDS_BETWEEN_LINES = 10.0


class RunProgress:
    """An observer that shows a progress bar on a terminal, and prints a line now and then elsewhere."""

    def __init__(self, rounds: int, scores: Sequence[Score], *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet)
        self._rounds, self._scores, self._seen, self._last_line = rounds, scores, list[float](), 0.0
        self._bar = Progress(
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
        )
        self._shown = self._bar.add_task("round", total=rounds, status="starting")

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, rounds_done: int, prospects: str | None = None) -> None:
        """Start showing a run that has done this many rounds; ``prospects`` says what to expect of it."""
        if prospects is not None:
            self._console.print(prospects, highlight=False, soft_wrap=True)
        self._bar.update(self._shown, completed=rounds_done, status="first round")

    def __call__(self, metrics: Metrics) -> None:
        number, status = metrics["round"], self._status(metrics)
        self._bar.update(self._shown, completed=number, status=status)
        now = time.monotonic()
        due = now - self._last_line >= _SECONDS_BETWEEN_LINES or number == self._rounds
        if not self._console.is_terminal and due:
            self._last_line = now
            self._console.print(f"round {number}/{self._rounds}  {status}", highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Show what happens before the first round."""
        self._bar.update(self._shown, status=text)
        if not self._console.is_terminal:
            self._console.print(text, highlight=False, soft_wrap=True)

    def _status(self, metrics: Metrics) -> str:
        parts = []
        first, *others = self._scores
        if (value := metrics.get(first.name)) is not None:
            self._seen.append(value)
            parts.append(f"{first.label} {value:.3f} (best {first.best(self._seen):.3f})")
            parts += [f"{score.label} {metrics[score.name]:.3f}" for score in others if score.name in metrics]
        if metrics["epsilon_pld"] is not None:
            parts.append(f"ε {human_epsilon(metrics['epsilon_pld'], 3)}")
        parts.append(f"up {human_bytes(metrics['bytes_up_total'])}")
        if idle := metrics.get("could_not_contribute"):
            parts.append(f"{idle} {'client' if idle == 1 else 'clients'} could not contribute")
        return "  ".join(parts)
