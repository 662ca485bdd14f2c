"""Reports of tasks with a binary outcome: two scores, calibration, confusion, and the words and notes of the task."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from lowkey.errors import RunError
from lowkey.experiments import RunDirectory
from lowkey.report import write_report
from lowkey.report.binary import calibration, confusion
from lowkey.report.figures import _published_megabytes
from lowkey.report.runs import load_runs
from lowkey.report.tables import header, rows
from lowkey.simulation import run
from lowkey.tasks import Words
from tests.conftest import tiny_config, tiny_hospital

TOOL = Path(__file__).parents[2] / "tools" / "keep_result.py"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("runs")
    private = tiny_hospital("hospital/synthetic/fl-cs-dp-r0.05", "privacy.delta=0.01", "codec.chunks=3")
    run(tiny_hospital(), base / "open")
    run(private, base / "private")
    return [base / "open", base / "private"]


def rewrite(path: Path, source: Path, *lines: Mapping[str, object]) -> Path:
    """A run whose last rounds say something else."""
    old = RunDirectory.open(source)
    RunDirectory.create(path, old.config)
    content = [*old.metrics()[: -len(lines)], *({**old.metrics()[-1], **line} for line in lines)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in content))
    return path


def test_report_of_mortality(runs: list[Path], tmp_path: Path) -> None:
    summaries, files = write_report(runs, tmp_path, title="x")
    assert {f.name for f in files} == {
        "report.md", "report.html", "calibration.png", "confusion.png",
        *(f"{score}-{axis}.png" for score in ("balanced_accuracy", "auroc") for axis in ("round", "bytes", "epsilon")),
    }  # fmt: skip
    for file in files:
        assert file.suffix != ".png" or file.read_bytes().startswith(b"\x89PNG")
    assert {"best_balanced_accuracy", "best_auroc", "final_balanced_accuracy", "final_auroc"} <= summaries[0].keys()
    text = (tmp_path / "report.md").read_text()
    for part in (
        "best balanced accuracy / AUROC @ round", "0.74 / 0.82 @ 99", "0.69 / 0.76 @ 100, ε 1",
        "measured on other data (Premier)", "fraction of deaths (",
        "nobody's data is in it: hospital/synthetic/fl-std, ",
        "![AUROC by round](auroc-round.png)", "risk of death](calibration.png)",
        "columns after them (sensitivity, specificity)",
    ):  # fmt: skip
        assert part in text
    assert (tmp_path / "report.html").read_text().count("data:image/png;base64,") == 8


def test_table_of_mortality(runs: list[Path], tmp_path: Path) -> None:
    found = {"balanced_accuracy": 0.7, "auroc": 0.81, "sensitivity": 0.9, "specificity": 0.5}
    best, last = {"round": 7, **found}, {"round": 8, **found, "balanced_accuracy": 0.65, "sensitivity": 0.8}
    loaded = load_runs([rewrite(tmp_path / "run", runs[0], best, last)])
    row = dict(zip(header(loaded), rows(loaded)[0], strict=True))
    assert row["best balanced accuracy / AUROC @ round"] == "0.700 / 0.810 @ 7"
    assert row["final balanced accuracy / AUROC"] == "0.650 / 0.810"
    assert (row["sensitivity"], row["specificity"]) == ("0.800", "0.500")


def test_data_in_one_place_sends_nothing(tmp_path: Path) -> None:
    pooled = tiny_hospital(
        "hospital/synthetic/fl-std", "federation.clients=1", "data.pooled=true", "federation.cohort=1"
    )
    run(pooled, tmp_path / "run")
    loaded = load_runs([tmp_path / "run"])
    row = dict(zip(header(loaded), rows(loaded)[0], strict=True))
    assert [row[name] for name in ("upload per client and round", "upload in all", "cost, Mbit")] == ["–"] * 3
    _, files = write_report([tmp_path / "run"], tmp_path / "report", title="x")
    assert "auroc-bytes.png" not in {file.name for file in files}


def test_images_and_mortality_do_not_go_into_one_report(runs: list[Path], tmp_path: Path) -> None:
    run(tiny_config("demo/fl-std", "schedule.rounds=1"), tmp_path / "images")
    with pytest.raises(RunError, match=r"open has the task mortality.*images has the task fashion-mnist.*one report"):
        write_report([runs[0], tmp_path / "images"], tmp_path / "report", title="x")
    assert not (tmp_path / "report").exists()
    assert "sensitivity" not in header(load_runs([tmp_path / "images"]))


def test_runs_without_calibration_or_without_deaths_in_a_bin(runs: list[Path], tmp_path: Path) -> None:
    old = rewrite(tmp_path / "old", runs[0], {"calibration": []})
    assert calibration(load_runs([old])) is None
    _, files = write_report([old], tmp_path / "report", title="x")
    assert "calibration.png" not in {f.name for f in files}
    assert "Calibration" not in (tmp_path / "report" / "report.md").read_text()
    zero = rewrite(tmp_path / "zero", runs[0], {"calibration": [[0.3, 0.01, 0.0, 50], [0.7, 0.06, 0.08, 50]]})
    write_report([zero, old], tmp_path / "report", title="x")
    assert "fraction of deaths (4.00 %)" in (tmp_path / "report" / "report.md").read_text()


def test_the_papers_upload_is_not_that_of_another_model(runs: list[Path]) -> None:
    loaded = load_runs(runs)[0]
    assert loaded.config.paper is not None
    assert _published_megabytes(loaded) is None
    same = replace(loaded.config, paper=replace(loaded.config.paper, data=None))
    per_round = loaded.metrics[-1]["bytes_up_total"] / 2 / 5 / 1e6
    assert _published_megabytes(replace(loaded, config=same)) == pytest.approx(99 * per_round)


def test_pictures_use_the_words_of_the_task(runs: list[Path]) -> None:
    own = load_runs(runs)
    neutral = [replace(loaded, presentation=replace(loaded.presentation, words=Words())) for loaded in own]
    for draw in (calibration, confusion):
        mine, other = draw(own), draw(neutral)
        assert mine is not None
        assert other is not None
        assert mine.png != other.png
    picture = calibration(neutral)
    assert picture is not None
    assert picture.title == "Predicted and observed risk of event"


def test_confusion_needs_all_four_counts(runs: list[Path]) -> None:
    loaded = load_runs(runs)[0]
    assert confusion([loaded]) is not None
    kept = {name: value for name, value in loaded.last_test.items() if name != "true_negatives"}
    assert confusion([replace(loaded, metrics=[kept])]) is None


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("keep_result", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


def test_results_of_mortality_are_kept(tool: ModuleType, runs: list[Path], tmp_path: Path) -> None:
    tool.keep(runs[0], "hospital_x", "lowkey run x")
    kept, last = json.loads((tmp_path / "hospital_x.json").read_text()), RunDirectory.open(runs[0]).metrics()[-1]
    assert kept["curve"].keys() == {"round", "balanced_accuracy", "auroc", "loss"}
    assert kept["curve"]["auroc"][-1] == round(last["auroc"], 4)
    assert kept["confusion"]["true_negatives"] == last["true_negatives"]
    assert [row[3] for row in kept["calibration"]] == [row[3] for row in last["calibration"]]
