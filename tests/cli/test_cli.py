"""The command line: JSON lines that scripts rely on, one-line errors, exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import lowkey

SMALL = [
    "--set", "federation.clients=400", "--set", "model.filters=[2, 4]", "--set", "model.hidden=8",
    "--set", "federation.cohort=5", "--set", "runtime.workers=0",
]  # fmt: skip
CHUNKS = ["--set", "codec.chunks=3"]


PAPER = ["--clients", 6000, "--cohort", 100]


def json_of(*arguments: object, cwd: Path | None = None) -> Any:
    done = lowkey(*arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def error_of(*arguments: object, cwd: Path | None = None) -> str:
    done = lowkey(*arguments, cwd=cwd)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def test_version_and_help() -> None:
    assert lowkey("--version").stdout.startswith("lowkey 0.")
    assert "presets" in lowkey("--help").stdout


def test_privacy_epsilon() -> None:
    setting = [*PAPER, "--noise-multiplier", 1.54, "--rounds", 200, "--delta", 1e-5]
    found = json_of("privacy", "epsilon", *setting)
    assert found == {
        "epsilon_paper": pytest.approx(1.0006, abs=5e-4),
        "epsilon_rdp": pytest.approx(0.7734, abs=5e-4),
        "epsilon_pld": pytest.approx(0.6806, abs=5e-4),
        "epsilon_server": pytest.approx(10.3277, abs=1e-4),
        "participations": 10,
        "delta": 1e-5,
        "sampling": "poisson_padded",
        "adjacency": "zero-out",
        "unit": "client",
        "roster": 160,
        "min_survivors": 144,
        "honest": 128,
    }


def test_privacy_epsilon_tells_the_whole_guarantee() -> None:
    setting = [*PAPER, "--noise-multiplier", 1.54, "--rounds", 200, "--participations", 3]
    text = lowkey("privacy", "epsilon", *setting).stdout
    for part in (
        "0.6806", "0.7737 RDP", "1.0006 as the paper counts", "5.0181 for the server", "Unit: one client", "zero-out",
        "δ = 1e-05", "poisson_padded", "κ = 128", "c_max = 16", "Not covered: ",
    ):  # fmt: skip
        assert part in text
    text = lowkey("privacy", "epsilon", *setting, "--sampling", "fixed").stdout
    for part in ("3.353", "the paper's ε does not hold", "replace-one", "5.0181 for the server"):
        assert part in text
    assert "as the paper counts" not in text


def test_privacy_of_persons() -> None:
    setting = ["--clients", 10, "--cohort", 10, "--epsilon", 1, "--rounds", 50, "--persons", 21_000]
    found = json_of("privacy", "calibrate", *setting, "--row", "admission")
    assert (found["unit"], found["honest"], found["sampling"]) == ("admission", 8, "all")
    assert found["noise_multiplier"] == pytest.approx(27.16, abs=0.01)
    text = lowkey("privacy", "calibrate", *setting).stdout
    for part in ("Unit: one person at one client, with all its rows", "Not covered: a client as a whole", "c_max = 1 "):
        assert part in text
    assert "with 21000 persons it must be below" in error_of("privacy", "calibrate", *setting, "--delta", 1e-4)
    assert "set --cohort to --clients" in error_of("privacy", "calibrate", *setting, "--cohort", 5)
    assert "privacy.row is 'admission', which is for" in error_of(
        "privacy", "calibrate", *setting[:-2], "--row", "admission"
    )


def test_privacy_calibrate() -> None:
    base = ["privacy", "calibrate", "--epsilon", 1, "--delta", 1e-5, *PAPER]
    exact = ["--spare-attempts", 0]
    assert json_of(*base, *exact, "--rounds", 200)["noise_multiplier"] == pytest.approx(1.2245, abs=1.01e-4)
    assert json_of(*base, *exact, "--noise-multiplier", 1.54)["rounds"] == 431
    reserved = json_of(*base, "--rounds", 200)
    assert reserved["noise_multiplier"] == pytest.approx(1.2393, abs=1.01e-4)
    assert (reserved["rounds"], reserved["spare_attempts"]) == (200, 10)
    assert reserved["epsilon_pld"] == pytest.approx(1.0, abs=1e-3)  # of all 210 attempts
    fewer = json_of(*base, "--noise-multiplier", 1.54)
    assert (fewer["rounds"], fewer["spare_attempts"]) == (410, 21)
    assert "either --rounds" in error_of(*base)
    assert "not one round, with its spare attempts, fits" in error_of(
        *base[:3], 0.01, *base[4:], "--noise-multiplier", 1.54
    )
    assert "--spare-attempts is -1" in error_of(*base, "--rounds", 200, "--spare-attempts", -1)
    assert "delta is 1e-13; it must be at least 1e-12" in error_of(*base[:4], *PAPER, "--rounds", 2, "--delta", 1e-13)
    text = lowkey("privacy", "calibrate", "--epsilon", 1, "--clients", 9, "--cohort", 9, "--rounds", 1).stdout
    assert text.startswith(
        "noise multiplier 5.2760 (3.7307 without spare attempts): ε ≤ 1 over rounds and spare attempts, 1 and 1\n"
    )
    assert "asked for its data 2 times" in text
    assert "for the server" in text


def test_clip_norm_from_public_data() -> None:
    found = json_of("privacy", "clip-norm", "demo/fl-cs-dp", "--clients", 40)
    assert found["clients"] == 40
    assert found["quartiles"][0] < found["clip_norm"] < found["quartiles"][1]
    whole = json_of("privacy", "clip-norm", "demo/fl-std-dp", "--clients", 40)
    assert found["clip_norm"] == pytest.approx(whole["clip_norm"] * 0.05**0.5, rel=0.25)  # √r of the whole norm
    assert "quantile" in error_of("privacy", "clip-norm", "demo/fl-cs-dp", "--quantile", 1.5)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([*PAPER, "--noise-multiplier", -1, "--rounds", 1], "noise multiplier is -1"),
        ([*PAPER, "--noise-multiplier", "nan", "--rounds", 1], "noise multiplier is nan"),
        ([*PAPER, "--noise-multiplier", 1, "--rounds", 1, "--delta", 1], "delta is 1"),
        ([*PAPER, "--noise-multiplier", 1, "--rounds", 1, "--delta", 1e-3], "below 0.000166667"),
        ([*PAPER, "--noise-multiplier", 1, "--rounds", 0], "rounds is 0"),
        ([*PAPER, "--noise-multiplier", 1, "--rounds", 1, "--sampling", "all"], "poisson_padded"),
        (["--clients", 10, "--cohort", 11, "--noise-multiplier", 1, "--rounds", 1], "cohort is 11"),
        (["--clients", 10, "--noise-multiplier", 1, "--rounds", 1], "cohort"),
    ],
)
def test_bad_privacy_settings(arguments: list[object], named: str) -> None:
    assert named in error_of("privacy", "epsilon", *arguments)


def test_presets() -> None:
    names = [preset["name"] for preset in json_of("presets", "list")]
    assert {"fashion-mnist/fl-std", "fashion-mnist/fl-std-dp", "fashion-mnist/fl-cs-r0.05"} <= set(names)
    assert "fashion-mnist/fl-cs-dp-r0.05" in lowkey("presets", "list").stdout
    assert json_of("presets", "show", "fashion-mnist/fl-cs-dp-r0.05")["codec"]["ratio"] == 0.05
    assert "clip_norm = 0.47" in lowkey("presets", "show", "fashion-mnist/fl-cs-dp-r0.05").stdout
    assert "did you mean" in error_of("presets", "show", "fashion-mnist/fl-cd")


def test_the_papers_own_decoder_is_listed_and_shown() -> None:
    name = "fashion-mnist/paper/fl-cs-r0.05"
    assert name in [preset["name"] for preset in json_of("presets", "list")]
    assert f"{name}  paper: 0.82 @ round 200" in re.sub("  +", "  ", lowkey("presets", "list").stdout)
    assert json_of("presets", "show", name)["decoder"]["kind"] == "lasso"
    assert json_of("presets", "show", "fashion-mnist/fl-cs-r0.05")["decoder"]["kind"] == "layered"


def test_presets_of_both_tables() -> None:
    lines = lowkey("presets", "list").stdout.splitlines()
    found = {line.split()[0]: line.split(maxsplit=1)[1:] for line in lines if line}
    assert found["fashion-mnist/fl-std"] == ["paper: 0.87 @ round 191"]
    assert found["hospital/synthetic/fl-cs-r0.05"] == ["paper: 0.73 / 0.80 @ round 100"]
    assert found["hospital/diabetes130/fl-cs-dp-r0.05"] == ["paper: 0.69 / 0.76 @ round 100, ε 1"]
    assert sum("balanced accuracy / AUROC" in line and "Premier" in line for line in lines) == 1


def test_run_of_mortality(tmp_path: Path) -> None:
    small = [
        "data.scale=0.001",
        "federation.clients=5",
        "federation.cohort=5",
        "model.hidden=4",
        "runtime.workers=0",
    ]
    command = ["run", "hospital/synthetic/fl-std", *(part for setting in small for part in ("--set", setting))]
    done = lowkey(*command, "--rounds", 2, "--out", "r", "--track", "tensorboard", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "r" / "result.json").read_text())
    shown = f"{result['final_balanced_accuracy']:.4f} final, {result['best_balanced_accuracy']:.4f} best"
    for part in (
        f"balanced accuracy  {shown}",
        f"AUROC  {result['final_auroc']:.4f} final",
        "0.74 / 0.82 best (round 99)",
    ):
        assert part in done.stdout
    assert f"AUROC {result['final_auroc']:.3f}" in done.stderr
    assert "on other data (Premier)" in done.stdout
    status = lowkey("status", "r", cwd=tmp_path).stdout
    for part in (f"balanced accuracy  {result['final_balanced_accuracy']:.4f}", f"AUROC  {result['final_auroc']:.4f}"):
        assert part in status


def test_run_report_resume(tmp_path: Path) -> None:
    command = [
        "run",
        "demo/fl-cs-dp",
        *SMALL,
        *CHUNKS,
        "--set",
        "privacy.noise_multiplier=1.0",
        "--out",
        "r",
        "--seed",
        3,
    ]
    result = json_of(*command, "--rounds", 2, "--track", "tensorboard", cwd=tmp_path)
    assert set(result) >= {
        "preset", "rounds", "best_accuracy", "best_round", "final_accuracy", "epsilon_paper", "epsilon_rdp",
        "epsilon_pld", "bytes_up_per_client", "seconds",
    }  # fmt: skip
    assert (result["preset"], result["rounds"]) == ("demo/fl-cs-dp", 2)
    assert json.loads((tmp_path / "r" / "result.json").read_text()) == result
    assert list((tmp_path / "r" / "tensorboard").iterdir())
    assert "--resume" in error_of(*command, cwd=tmp_path)
    assert json_of(*command, "--rounds", 3, "--resume", cwd=tmp_path)["rounds"] == 3
    done = lowkey("run", "--resume", "--out", "r", "--rounds", 4, cwd=tmp_path)
    assert done.returncode == 0
    assert "accuracy" in done.stdout
    assert "round 4/4" in done.stderr
    report = json_of("report", "r", "--out", "page", cwd=tmp_path)
    assert "page/report.html" in report["files"]
    assert "demo/fl-cs-dp" in lowkey("report", "r", "--out", "page", cwd=tmp_path).stdout


def test_default_directory_follows_preset_and_seed(tmp_path: Path) -> None:
    json_of("run", "demo/fl-std", *SMALL, "--rounds", 1, "--seed", 4, cwd=tmp_path)
    assert (tmp_path / "runs" / "demo_fl-std-seed4" / "config.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run"], "no preset is given; name one"),
        (["run", "demo/fl-st"], "did you mean demo/fl-std"),
        (["run", "demo/fl-cs", "--set", "codec.rato=0.1"], "did you mean codec.ratio"),
        (
            ["run", "demo/fl-std", "--set", "codec.chunks=3"],
            "codec.chunks is a setting of 'chunked-dct', but codec.kind",
        ),
        (["run", "demo/fl-std", "--set", "server.optimiser=adma"], "did you mean 'adam'?"),
        (["run", "demo/fl-std", "--seed", "-1"], "seed is -1; it must be at least 0"),
        (["run", "demo/fl-cs", "--set", "codec.ratio=1e-9"], "codec.ratio is 1e-09"),
        (
            ["run", "demo/fl-std-dp", "--set", "privacy.noise_multiplier=0"],
            "noise_multiplier is 0, which protects nobody",
        ),
        (["run", "demo/fl-std-dp", "--set", "privacy.clip_norm=1e12"], "clip_norm is 1e+12; it must be at most 1e+06"),
        (["run", "demo/fl-std", "--set", "task=nonsense"], "task is 'nonsense', which is neither a task of Lowkey"),
        (["run", "demo/fl-cs", "--set", "codec.ratio=0"], "codec.ratio"),
        (["run", "demo/fl-cs", "--set", "codec.ratio=1.1"], "codec.ratio"),
        (["run", "demo/fl-cs", "--set", "codec.chunks=9000000"], "use at most 54314 chunks"),
        (["run", "demo/fl-std-dp", "--set", "privacy.delta=1.5"], "privacy.delta"),
        (["run", "demo/fl-std-dp", "--set", "privacy.noise_multiplier=-1"], "privacy.noise_multiplier"),
        (["run", "demo/fl-std", "--set", "data.source=nowhere"], "dataset-fashion-mnist"),
        (["run", "demo/fl-std", "--resume", "--out", "nothing"], "nothing to resume"),
        (["run", "demo/fl-std", "--track", "abacus"], "--track is 'abacus'; it must be one of tensorboard"),
        (["report", "nothing"], "not a run directory"),
        (["run", "demo/fl-std", "--rounds", "many"], "--rounds"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(tmp_path: Path, arguments: list[str], named: str) -> None:
    error = error_of(*arguments, cwd=tmp_path)
    assert named in error
    if "many" in arguments:  # no number: the parser answers, with its usage
        assert error.startswith("Usage: ")
    else:
        assert error.startswith("lowkey: ")
        assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_demo_refuses_a_directory_of_yours(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    assert "not a demo" in error_of("demo", "--out", "mine", cwd=tmp_path)
    assert (tmp_path / "mine" / "thesis.txt").exists()
