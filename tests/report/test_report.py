"""Reports: what they say, that they stand alone, and that they say when nothing is claimed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from lowkey.errors import RunError
from lowkey.experiments import RunDirectory
from lowkey.report import write_report
from lowkey.report.tables import cost_megabits, load_runs
from lowkey.rng import ReplaySecrets
from lowkey.simulation import run
from tests.conftest import tiny_config


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("runs")
    paper = ("paper.accuracy=0.61", "paper.round=25", "paper.epsilon=0.69")
    run(tiny_config("demo/fl-std"), base / "open")
    run(tiny_config("demo/fl-cs-dp", "privacy.noise_multiplier=1.0", *paper), base / "private")
    return [base / "open", base / "private"]


def test_report_compares_runs(runs: list[Path], tmp_path: Path) -> None:
    summaries, files = write_report(runs, tmp_path, title="My <title>")
    assert {f.name for f in files} == {
        "report.md", "report.html", "accuracy-round.png", "accuracy-bytes.png", "accuracy-epsilon.png",
    }  # fmt: skip
    assert [s["preset"] for s in summaries] == ["demo/fl-std", "demo/fl-cs-dp"]
    for file in files:
        if file.suffix == ".png":
            assert file.read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "report.md").read_text()
    last = RunDirectory.open(runs[1]).metrics()[-1]
    assert f"{last['accuracy']:.3f}" in text
    assert "0.61 @ 25, ε 0.69" in text
    for part in ("Unit: one client", "zero-out", "poisson_padded", "δ = 1e-05", "κ =", "c_max =", "Not covered:",
                 "for people who see released models", "for the server"):  # fmt: skip
        assert part in text


def test_html_stands_alone(runs: list[Path], tmp_path: Path) -> None:
    write_report(runs, tmp_path, title="My <title>")
    page = (tmp_path / "report.html").read_text()
    assert "My &lt;title&gt;" in page
    assert page.count("data:image/png;base64,") == 3
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    assert "<script" not in page


def test_no_epsilon_picture_without_privacy(runs: list[Path], tmp_path: Path) -> None:
    _, files = write_report(runs[:1], tmp_path, title="x")
    assert "accuracy-epsilon.png" not in {f.name for f in files}
    assert "Unit: one client" not in (tmp_path / "report.md").read_text()


def test_replayed_and_fixed_size_runs_are_labelled(tmp_path: Path) -> None:
    fixed = tiny_config(
        "demo/fl-std-dp", "privacy.noise_multiplier=1.0", "privacy.sampling=fixed", "privacy.epsilon=99.0"
    )
    run(fixed, tmp_path / "run", secrets=ReplaySecrets(0))
    write_report([tmp_path / "run"], tmp_path / "report", title="x")
    text = (tmp_path / "report" / "report.md").read_text()
    assert "NO PRIVACY CLAIMED" in text
    assert "the paper's ε does not hold" in text


def test_cost_is_the_papers_formula(runs: list[Path]) -> None:
    run = load_runs(runs)[0]
    measurements = run.summary["bytes_up_per_client"] / 4
    assert cost_megabits(run) == pytest.approx(measurements * 32 * 3 * 5 / 400 / 1e6)


def test_repeated_presets_get_their_directorys_name(runs: list[Path], tmp_path: Path) -> None:
    shutil.copytree(runs[0], tmp_path / "again")
    labels = [run.label for run in load_runs([runs[0], tmp_path / "again", runs[1]])]
    assert labels == ["demo/fl-std (open)", "demo/fl-std (again)", "demo/fl-cs-dp"]


def test_unfinished_and_foreign_directories(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "new", tiny_config())
    with pytest.raises(RunError, match="no evaluated round"):
        write_report([tmp_path / "new"], tmp_path / "report", title="x")
    with pytest.raises(RunError, match="not a run directory"):
        write_report([tmp_path], tmp_path / "report", title="x")
    assert not (tmp_path / "report").exists()
