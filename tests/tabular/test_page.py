"""The example of docs/encoder.md, taken from the page and run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lowkey.experiments import RunDirectory
from lowkey.tabular import Hashed, fit, questions, read_schema
from lowkey.tasks.table import TableSettings
from tests.cli.command import lowkey

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "encoder.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_three_hospitals_from_their_tables_to_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    said = []
    for line in blocks("sh")[0].splitlines():
        command, *arguments = shlex.split(line)
        if command == "lowkey":
            more = ["--quiet", "--rounds", "2"] if arguments[0] == "run" else []
            done = lowkey(*arguments, *more, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            said.append(done.stdout)
        else:
            program = f"{sys.executable} {shlex.join(arguments)}" if command == "python" else line
            subprocess.run(program, shell=True, cwd=tmp_path, check=True, capture_output=True)
    assert "nothing to ask" in said[0]
    assert "no test data" in said[-1]
    assert RunDirectory.open(tmp_path / "runs" / "study-seed0").state() == "finished"


def test_the_schema_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(blocks("toml")[0], encoding="utf-8")
    schema = read_schema(tmp_path / "schema.toml")
    assert [question["kind"] for question in questions(schema)] == ["quantiles", "frequencies", "missingness"]
    public = fit(type(schema)(columns=(schema.columns[-1],)))
    assert public.columns[0].rule == Hashed({4: 128, None: 1024})


def test_every_setting_of_the_task_is_on_the_page() -> None:
    for name in TableSettings.__dataclass_fields__:
        assert f"`data.{name}`" in PAGE


def test_figures_of_the_page_are_those_of_the_results() -> None:
    rows = {
        row["row"]: row for row in json.loads((ROOT / "results" / "three_hospitals.json").read_text("utf-8"))["rows"]
    }
    page = " ".join(PAGE.split())
    limits = [f"{rows[name]['auroc']:.3f}" for name in rows if name.startswith("limit")]
    assert f"| AUROC | {' | '.join(limits)} |" in page
    for name in ("ε = 3", "ε = 1"):
        low, high = rows[name]["range"]
        assert f"{rows[name]['auroc']:.3f} ({low:.3f} to {high:.3f})" in page
    assert f"had {rows['pooled']['auroc']:.3f}" in page
