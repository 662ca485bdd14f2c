"""Figures of runs side by side, and beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lowkey.errors import RunError
from lowkey.experiments import Config, RunDirectory
from lowkey.privacy import Epsilon, guarantee_lines, noise_shares, paper_megabits
from lowkey.rounding import round_up


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
        return [m for m in self.metrics if "accuracy" in m]

    @property
    def private(self) -> bool:
        return self.config.privacy is not None


def load_runs(paths: Sequence[Path]) -> list[RunData]:
    """Open runs; labels are made distinct by the directory's name where presets repeat."""
    directories = [RunDirectory.open(path) for path in paths]
    names = [directory.config.name for directory in directories]
    runs = []
    for directory, name in zip(directories, names, strict=True):
        metrics = directory.metrics()
        if not any("accuracy" in m for m in metrics):
            raise RunError(
                f"{directory.path} has no evaluated round: either it has just begun, or its app brings no test data; "
                "'lowkey status' tells how far it is"
            )
        label = name if names.count(name) == 1 else f"{name} ({directory.path.name})"
        runs.append(
            RunData(directory.path, label, directory.config, metrics, directory.summary(), directory.claims_privacy)
        )
    return runs


HEADER = (
    "run", "r", "rounds", "best accuracy @ round", "final accuracy", "paper's best", "ε (PLD)", "ε (RDP)", "ε (paper)",
    "ε (server)", "upload per client and round", "upload in all", "cost, Mbit",
)  # fmt: skip


def rows(runs: Sequence[RunData]) -> list[tuple[str, ...]]:
    """One row per run, in the order of HEADER."""
    return [_row(run) for run in runs]


def _row(run: RunData) -> tuple[str, ...]:
    summary, last, paper = run.summary, run.metrics[-1], run.config.paper
    published = "–"
    if paper is not None:
        published = f"{paper.accuracy:.2f} @ {paper.round}" + (f", ε {paper.epsilon:g}" if paper.epsilon else "")
    return (
        run.label,
        f"{run.config.codec.ratio:g}",
        str(summary["rounds"]),
        f"{summary['best_accuracy']:.3f} @ {summary['best_round']}",
        f"{summary['final_accuracy']:.3f}",
        published,
        *(_epsilon(summary[f"epsilon_{name}"]) for name in ("pld", "rdp", "paper", "server")),
        f"{summary['bytes_up_per_client'] / 1e6:.3f} MB",
        f"{last['bytes_up_total'] / 1e6:.1f} MB",
        f"{cost_megabits(run):.2f}",
    )


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
    lines = [
        "Best accuracy is the best round on the test set, the paper's protocol; choosing it there is not private. "
        "Final accuracy is that of the last round.",
        "Cost is that of the paper's tables: expected upload of one enrolled client over the run, in megabits, at 32 "
        "bits a number. Upload is what was really sent: integers of fewer bits, by rosters larger than the cohort.",
    ]
    if any(run.config.paper for run in runs):
        lines.append("Stars in the pictures are the paper's values.")
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
