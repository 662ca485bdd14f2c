"""What the figures of a report do and do not say."""

from __future__ import annotations

from collections.abc import Sequence

from lowkey.experiments import labels
from lowkey.privacy import Epsilon, guarantee_lines
from lowkey.report.runs import RunData
from lowkey.tasks import TASKS


def notes(runs: Sequence[RunData]) -> list[str]:
    """Explain how to read a report.

    Parameters
    ----------
    runs : sequence of RunData
        All of one task.

    Returns
    -------
    list of str
        About scores, cost and published values; what the task has to say; what the models' inputs are; and what each
        run promises, or that it promises nothing.
    """
    private, learned = [run for run in runs if run.private], [run for run in runs if run.learned]
    asked = _about_answers(runs) if any(run.answers for run in runs) else []
    task = TASKS[name].notes(runs) if (name := runs[0].config.task) in TASKS else ()
    if not learned:
        return [*asked, *task, *_about_privacy(private)]
    return [
        _about_scores(runs),
        *asked,
        "Cost is that of the paper's tables: expected upload of one enrolled client over the run, in megabits, at 32 "
        "bits a number. Upload is what was really sent: integers of fewer bits, by rosters larger than the cohort.",
        *_about_published(runs),
        *task,
        *(f"{run.label}: the model's inputs are features: {run.features}." for run in learned if run.features),
        *_about_privacy(private),
    ]


def _about_scores(runs: Sequence[RunData]) -> str:
    """Say which rounds the scores are from."""
    run = runs[0]
    first, others = labels(run.scores[:1]), labels(run.scores[1:])
    best = f"Best {first} is the best round on the test set, the paper's protocol; choosing it there is not private."
    if all(run.evaluation for run in runs):
        best = (
            f"Best {first} is the best of all evaluations by clients; the best of noisy estimates is mostly too good."
        )
    best += f" {others} beside it is from the same round." if others else ""
    columns = ", ".join(name.replace("_", " ") for name in run.presentation.columns)
    if columns:
        return f"{best} Final values and the columns after them ({columns}) are from the last round."
    return f"{best} Final {labels(run.scores)} is that of the last round."


def _about_answers(runs: Sequence[RunData]) -> list[str]:
    """Say what the ranges are, and where the alarm rings."""
    lines = ["Clients answered on their own rows; what that costs is in ε. Ranges are 95 % intervals."]
    if any(run.evaluation for run in runs):
        lines.append(
            "Where clients evaluated the model, sensitivity, specificity and balanced accuracy are at "
            "evaluation.question.threshold; unless that is set, at a risk of evaluation.question.prevalence."
        )
    return lines


def _about_published(runs: Sequence[RunData]) -> list[str]:
    """Say what the stars are, and on which data they were measured."""
    published = [run.config.paper for run in runs if run.config.paper]
    lines = ["Stars in the pictures are the paper's values."] if published else []
    elsewhere = sorted({paper.data for paper in published if paper.data})
    if elsewhere:
        lines.append(
            f"The paper's values were measured on other data ({', '.join(elsewhere)}) than these runs; against "
            "uploaded bytes they are not drawn, since upload depends on the model, and the model on the data."
        )
    return lines


def _about_privacy(runs: Sequence[RunData]) -> list[str]:
    lines = []
    for run in runs:
        if run.claims_privacy and run.summary["epsilon_pld"] is not None:
            sentences = ". ".join(line.removesuffix(".") for line in _guarantee(run))
            lines.append(f"{run.label}: {sentences}. Hyper-parameters were chosen outside the budget.")
    if any(run.config.scheme().privacy.sampling.mode == "fixed" for run in runs):
        lines.append("Cohorts of a fixed size: the paper's ε does not hold; ε here is for replacing one client.")
    replayed = [run for run in runs if not run.claims_privacy]
    return lines + [f"{run.label}: NO PRIVACY CLAIMED, its secrets were replayed from a seed." for run in replayed]


def _guarantee(run: RunData) -> list[str]:
    """Say what a run promises, to whom, and what it does not promise."""
    privacy, summary = run.config.scheme().privacy, run.summary
    event, promise = privacy.event(), privacy.promise()
    assert event is not None  # as it has an ε
    assert promise is not None
    at_limit = summary["epsilon_server_limit"]
    return guarantee_lines(
        event,
        released=Epsilon(*(summary[f"epsilon_{name}"] for name in ("paper", "rdp", "pld"))),
        server=summary["epsilon_server"] if at_limit is None else at_limit,
        participations=None if at_limit is None else privacy.max_contributions,
        delta=privacy.delta,
        shares=promise.shares,
    )
