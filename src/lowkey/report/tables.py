"""The table of a report: figures of all runs, and the paper's."""

from __future__ import annotations

from collections.abc import Sequence

from lowkey.experiments import labels, values
from lowkey.figures import round_up
from lowkey.privacy import paper_megabits
from lowkey.report.runs import RunData


def header(runs: Sequence[RunData]) -> tuple[str, ...]:
    """Return the names of the columns.

    Parameters
    ----------
    runs : sequence of RunData
        All of one task.

    Returns
    -------
    tuple of str
        The columns of every report, and those that the task adds.
    """
    scores = labels(runs[0].scores)
    return (
        "run", "r", "rounds", f"best {scores} @ round", f"final {scores}",
        *(name.replace("_", " ") for name in runs[0].presentation.columns), "paper's best",
        "ε (PLD)", "ε (RDP)", "ε (paper)", "ε (server)", "upload per client and round", "upload in all", "cost, Mbit",
    )  # fmt: skip


def rows(runs: Sequence[RunData]) -> list[tuple[str, ...]]:
    """Return the cells of the table.

    Parameters
    ----------
    runs : sequence of RunData
        All of one task.

    Returns
    -------
    list of tuple of str
        One row for each run, in the order of :func:`header`.
    """
    return [_row(run) for run in runs]


def cost_megabits(run: RunData) -> float:
    """Return the cost as in the paper's tables.

    Parameters
    ----------
    run : RunData
        A run with at least one round.

    Returns
    -------
    float
        Expected upload of one enrolled client over the run, in megabits, at 32 bits a number.
    """
    last, config = run.learned[-1], run.config
    chance = config.federation.cohort / config.federation.clients
    return paper_megabits(last["bytes_down_per_client"] // 4, config.codec.ratio, len(run.learned), chance)


def _row(run: RunData) -> tuple[str, ...]:
    summary, scores, last = run.summary, run.scores, run.last_test
    return (
        run.label,
        f"{run.config.codec.ratio:g}",
        str(summary["rounds"]),
        f"{values(summary, scores, 3, 'best_')} @ {summary['best_round']}" if run.evaluated else "–",
        _final(run),
        *(_number(last.get(name)) for name in run.presentation.columns),
        _published(run),
        *(_epsilon(summary[f"epsilon_{name}"]) for name in ("pld", "rdp", "paper", "server")),
        *(("–",) * 3 if run.central or not run.learned else _upload(run)),
    )


def _published(run: RunData) -> str:
    paper = run.config.paper
    if paper is None:
        return "–"
    epsilon = "" if paper.epsilon is None else f", ε {paper.epsilon:g}"
    return f"{values(paper.scores, run.scores, 2)} @ {paper.round}{epsilon}"


def _final(run: RunData) -> str:
    """Final scores, with their intervals where clients found them."""
    if not run.evaluated:
        return "–"
    parts = []
    for score in run.scores:
        text = _number(run.summary.get(f"final_{score.name}"))
        if interval := run.summary.get(f"final_{score.name}_interval"):
            text += f" ({_number(interval[0])} to {_number(interval[1])})"
        parts.append(text)
    return " / ".join(parts)


def _upload(run: RunData) -> tuple[str, str, str]:
    per_client = max(line["bytes_up_per_client"] for line in run.learned) / 1e6
    total = run.metrics[-1]["bytes_up_total"] / 1e6
    return f"{per_client:.3f} MB", f"{total:.1f} MB", f"{cost_megabits(run):.2f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _epsilon(value: float | None) -> str:
    return "–" if value is None else f"{round_up(value, 3):.3f}"
