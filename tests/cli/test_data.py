"""``lowkey data check``: what it tells, and exit code 2 for files that are not the reference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import lowkey
from tests.cli.test_cli import error_of, json_of
from tests.tasks.mortality.tables import real, sih, write


def test_the_reference_file_passes() -> None:
    found = json_of("data", "check", "sih-sus", real("sih_sus"))
    assert found["reference"] is True
    assert (found["rows"], found["deaths"], found["cohort_rows"], found["hospitals"]) == (169_512, 7_440, 97_540, 726)


def test_another_file_is_refused_or_told_about(tmp_path: Path) -> None:
    path = write(tmp_path / "table.csv", sih())
    assert "--any-version" in error_of("data", "check", "sih-sus", path)
    text = lowkey("data", "check", "sih-sus", path, "--any-version").stdout
    assert "6 admissions, 2 deaths (33.33%), 2 hospitals" in text
    assert "another version" in text


def test_bad_requests() -> None:
    assert "no data set is called 'mimic'; docs/hospital.md lists the names" in error_of("data", "check", "mimic", ".")
    assert "does not exist; get" in error_of("data", "check", "diabetes130", "nowhere.zip")


def test_what_a_preset_learns_from(tmp_path: Path) -> None:
    path = write(tmp_path / "table.csv", sih(60))
    changes = (f'data.source="{path}"', "data.any_version=true", "federation.clients=2", "federation.cohort=2")
    settings = [part for change in changes for part in ("--set", change)]
    found = json_of("data", "describe", "hospital/sih-sus/fl-std", *settings)
    assert (found["clients"], found["train_admissions"] + found["test_admissions"]) == (2, 60)
    public = json_of("data", "describe", "hospital/sih-sus/fl-std", *settings, "--set", 'data.encoding="public"')
    assert public == {**found, "features": 1 + 2 + 5 + 6 + 15 + 128 + 512 + 4096 + 1}
    assert found["features"] < 20
    assert "train deaths" in lowkey("data", "describe", "hospital/sih-sus/fl-std", *settings).stdout
    assert "'fashion-mnist' has no description of its data" in error_of("data", "describe", "demo/fl-std")


WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {library!r}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
sys.argv = {command!r}
from lowkey.cli import main
main()
"""


@pytest.mark.parametrize(("library", "extra"), [("polars", "hospital"), ("sklearn", "hospital"), ("torch", "torch")])
def test_a_missing_library_is_named_with_its_extra(library: str, extra: str, tmp_path: Path) -> None:
    command = ["lowkey", "run", "hospital/synthetic/fl-std", "--out", str(tmp_path / "run"), "--quiet"]
    program = WITHOUT.format(library=library, command=command)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert f"pip install -c constraints.txt '.[{extra}]'" in done.stderr
    assert not (tmp_path / "run").exists()
