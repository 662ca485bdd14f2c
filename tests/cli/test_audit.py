"""``lowkey audit``: what it prints and writes, and what its exit code says."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cli.command import lowkey
from tests.cli.test_cli import error_of

FEW = ["--trials", 1600, "--canaries", 800, "--masked-rounds", 0]


def test_a_true_claim_passes_and_leaves_figures(tmp_path: Path) -> None:
    """Refuted by chance: below 0.2 %."""
    done = lowkey("audit", *FEW, "--out", "audit", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["preset"] == "fashion-mnist/fl-cs-dp-r0.05"
    assert round(found["epsilon_claimed"], 4) == 2.6727
    assert 1.0 < found["epsilon_lower_bound"] <= found["epsilon_claimed"]
    assert found["epsilon_lower_bound_one_run"] <= found["epsilon_claimed"]
    assert found["one_run"]["guesses"] == 8
    assert found["passed"] is True
    assert found["files"] == ["audit/audit.json", "audit/audit.png"]
    written = json.loads((tmp_path / "audit" / "audit.json").read_text(encoding="utf-8"))
    assert written == {key: value for key, value in found.items() if key != "files"}
    assert (tmp_path / "audit" / "audit.png").stat().st_size > 10_000


def test_a_refuted_claim_has_its_own_exit_code(tmp_path: Path) -> None:
    done = lowkey("audit", "demo/fl-std-dp", *FEW, "--plant", "no-clipping", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "REFUTED" in done.stdout
    assert "planted  no-clipping" in done.stdout
    assert "claimed  ε = " in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_there_must_be_a_claim() -> None:
    assert "nothing to audit" in error_of("audit", "demo/fl-std")
    assert "trials is 0" in error_of("audit", "--trials", 0)


def test_an_audit_that_is_stopped_ends_with_its_workers() -> None:
    """SIGTERM, as a supervisor sends it: to the command itself, while its workers are busy."""
    command = [sys.executable, "-c", "from lowkey.cli import main; main()", "audit", "demo/fl-std-dp"]
    process = subprocess.Popen([*command, "--masked-rounds", "0"])
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 60
    while not (workers := children.read_text().split()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert workers
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 130
    assert not any(Path("/proc", worker).exists() for worker in workers)
