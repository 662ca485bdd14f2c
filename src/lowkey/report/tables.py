"""Figures of runs side by side, and beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lowkey.errors import RunError
from lowkey.experiments import Config, RunDirectory
from lowkey.experiments.scores import evaluated_rounds, headline, labels, values
from lowkey.figures import round_up
from lowkey.privacy import Epsilon, guarantee_lines, noise_shares, paper_megabits


@dataclass(frozen=True)
class RunData:
    """One run as the report sees it."""

    path: Path
    label: str
    config: Config = field(repr=False)
    metrics: list[dict[str, Any]] = field(repr=False)
    summary: dict[str, Any] = field(repr=False)
    claims_privacy: bool

    @property
    def evaluated(self) -> list[dict[str, Any]]:
        return evaluated_rounds(self.metrics)

    @property
    def last_test(self) -> dict[str, Any]:
        return self.evaluated[-1]

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of what the run is judged by."""
        return headline(self.last_test)

    @property
    def central(self) -> bool:
        """Whether all data was in one place, and no update on any wire."""
        hospital = self.config.data.hospital
        return hospital is not None and hospital.pooled

    @property
    def private(self) -> bool:
        return self.config.privacy is not None


def load_runs(paths: Sequence[Path]) -> list[RunData]:
    """Open runs of one task; labels are made distinct by the directory's name where presets repeat."""
    directories = [RunDirectory.open(path) for path in paths]
    names = [directory.config.name for directory in directories]
    runs = []
    for directory, name in zip(directories, names, strict=True):
        metrics = directory.metrics()
        if not evaluated_rounds(metrics):
            raise RunError(
                f"{directory.path} has no evaluated round: either it has just begun, or its app brings no test data; "
                "'lowkey status' tells how far it is"
            )
        label = name if names.count(name) == 1 else f"{name} ({directory.path.name})"
        runs.append(
            RunData(directory.path, label, directory.config, metrics, directory.summary(), directory.claims_privacy)
        )
    _require_one_task(runs)
    return runs


def _require_one_task(runs: Sequence[RunData]) -> None:
    first = runs[0]
    for run in runs:
        if run.scores != first.scores:
            raise RunError(
                f"{first.path} is judged by {labels(first.scores)}, {run.path} by {labels(run.scores)}: they cannot be "
                "compared; make one report per task"
            )


_DETAILS = ("sensitivity", "specificity")


def header(runs: Sequence[RunData]) -> tuple[str, ...]:
    """Names of the columns."""
    scores = labels(runs[0].scores)
    return (
        "run", "r", "rounds", f"best {scores} @ round", f"final {scores}", *_details(runs[0]), "paper's best",
        "ε (PLD)", "ε (RDP)", "ε (paper)", "ε (server)", "upload per client and round", "upload in all", "cost, Mbit",
    )  # fmt: skip


def _details(run: RunData) -> tuple[str, ...]:
    """Columns of mortality alone."""
    return _DETAILS if "balanced_accuracy" in run.scores else ()


def rows(runs: Sequence[RunData]) -> list[tuple[str, ...]]:
    """One row per run, in the order of :func:`header`."""
    return [_row(run) for run in runs]


def _row(run: RunData) -> tuple[str, ...]:
    summary, paper = run.summary, run.config.paper
    published = "–"
    if paper is not None:
        published = f"{values(paper.model_dump(), 2)} @ {paper.round}"
        published += f", ε {paper.epsilon:g}" if paper.epsilon else ""
    return (
        run.label,
        f"{run.config.codec.ratio:g}",
        str(summary["rounds"]),
        f"{values(summary, 3, 'best_')} @ {summary['best_round']}",
        values(summary, 3, "final_"),
        *(f"{run.last_test[name]:.3f}" if name in run.last_test else "–" for name in _details(run)),
        published,
        *(_epsilon(summary[f"epsilon_{name}"]) for name in ("pld", "rdp", "paper", "server")),
        *(("–",) * 3 if run.central else _upload(run)),
    )


def _upload(run: RunData) -> tuple[str, str, str]:
    last = run.metrics[-1]
    per_client, total = last["bytes_up_per_client"] / 1e6, last["bytes_up_total"] / 1e6
    return f"{per_client:.3f} MB", f"{total:.1f} MB", f"{cost_megabits(run):.2f}"


def cost_megabits(run: RunData) -> float:
    """The paper's cost column: expected upload of one enrolled client over the run, at 32 bits a number."""
    last, config = run.metrics[-1], run.config
    return paper_megabits(
        last["bytes_down_per_client"] // 4,
        config.codec.ratio,
        last["round"],
        config.federation.cohort / config.data.clients,
    )


def _epsilon(value: float | None) -> str:
    return "–" if value is None else f"{round_up(value, 3):.3f}"


def notes(runs: Sequence[RunData]) -> list[str]:
    """What the figures do and do not say."""
    scores = runs[0].scores
    lines = [
        f"Best {labels(scores[:1])} is the best round on the test set, the paper's protocol; choosing it there is not "
        f"private. {_others(scores)}",
        "Cost is that of the paper's tables: expected upload of one enrolled client over the run, in megabits, at 32 "
        "bits a number. Upload is what was really sent: integers of fewer bits, by rosters larger than the cohort.",
    ]
    if any(run.config.paper for run in runs):
        lines.append("Stars in the pictures are the paper's values.")
    lines += _about_patients(runs)
    private = [run for run in runs if run.private]
    for run in private:
        if run.claims_privacy and run.summary["epsilon_pld"] is not None:
            sentences = ". ".join(line.removesuffix(".") for line in _guarantee(run))
            lines.append(f"{run.label}: {sentences}. Hyper-parameters were chosen outside the budget.")
    if any(run.config.privacy.sampling == "fixed" for run in private if run.config.privacy):
        lines.append("Cohorts of a fixed size: the paper's ε does not hold; ε here is for replacing one client.")
    replayed = [run for run in private if not run.claims_privacy]
    lines += [f"{run.label}: NO PRIVACY CLAIMED, its secrets were replayed from a seed." for run in replayed]
    return lines


def _others(scores: Sequence[str]) -> str:
    """Of which rounds the other figures are."""
    if len(scores) == 1:
        return f"Final {labels(scores)} is that of the last round."
    return (
        f"{labels(scores[1:])} beside it is of the same round. Final values, sensitivity (share of deaths that were "
        "flagged) and specificity (share of survivors that were not) are of the last round; a patient is flagged where "
        "death is predicted above one half, by a model that learned from as many deaths as survivals."
    )


def _about_patients(runs: Sequence[RunData]) -> list[str]:
    """Where data and published values come from, and how to read calibration."""
    lines = []
    elsewhere = sorted({run.config.paper.data for run in runs if run.config.paper and run.config.paper.data})
    if elsewhere:
        lines.append(
            f"The paper's values are of its private database ({', '.join(elsewhere)}), not of the data of these runs; "
            "against uploaded bytes they are not drawn, since upload depends on the model, and that on the data."
        )
    deaths = {_share_of_deaths(run) for run in runs if run.last_test.get("calibration")}
    if deaths:
        lines.append(
            "Calibration is of the last round, in ten bins of equally many test patients, with 95 % intervals; "
            "hollow points are bins in which nobody died. Clients learn from as many deaths as survivals, so the odds "
            f"of every prediction are corrected by the test set's share of deaths ({', '.join(sorted(deaths))}); "
            "dashed: before."
        )
    synthetic = [run.label for run in runs if run.config.data.name == "synthetic-hospitals"]
    if synthetic:
        lines.append(f"Synthetic data, nobody's data is in it: {', '.join(synthetic)}.")
    return lines


def _share_of_deaths(run: RunData) -> str:
    bins = run.last_test["calibration"]
    return f"{100 * sum(row[2] * row[3] for row in bins) / sum(row[3] for row in bins):.2f} %"


def _guarantee(run: RunData) -> list[str]:
    """What a run promises, to whom, and what it does not."""
    privacy, summary = run.config.privacy, run.summary
    assert privacy is not None
    sampling = run.config.sampling()
    shares = noise_shares(sampling.roster_size, dropouts=privacy.dropouts, colluders=privacy.colluders)
    limit, rounds = privacy.max_contributions, summary["rounds"]
    return guarantee_lines(
        sampling.event(float(privacy.noise_multiplier), honest=shares.honest),
        released=Epsilon(*(summary[f"epsilon_{name}"] for name in ("paper", "rdp", "pld"))),
        server=summary["epsilon_server"],
        participations=min(rounds, limit) if isinstance(limit, int) else rounds,
        delta=privacy.delta,
        shares=shares,
    )
