"""Child processes end with their parent's context, and those that died are started again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from lowkey.deployment.processes import Processes, free_ports, wait_for_port

SLEEP = [sys.executable, "-c", "import time; time.sleep(100)"]


def test_everything_that_was_started_is_ended_with_its_children(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        process = processes.start("parent", ["sh", "-c", "sleep 99 & echo $! && wait"], os.environ)
        deaf = processes.start("deaf", ["sh", "-c", "trap '' TERM; sleep 99"], os.environ)
        while not (tmp_path / "parent.log").read_text():
            time.sleep(0.05)
    child = int((tmp_path / "parent.log").read_text())
    assert process.returncode is not None
    assert deaf.returncode is not None
    time.sleep(0.5)
    state = Path(f"/proc/{child}/stat")  # killed, and perhaps not yet reaped
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_those_that_died_are_started_again_and_others_left_alone(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        first, other = (processes.start(name, SLEEP, os.environ) for name in ("node-1", "superlink"))
        processes.revive("node-")
        assert first.poll() is None
        for process in (first, other):
            process.kill()
            process.wait()
        processes.revive("node-")
        assert processes._running["node-1"].poll() is None
        assert processes._running["superlink"] is other


def test_ports_are_free_and_waited_for(tmp_path: Path) -> None:
    one, two = free_ports(2)
    assert one != two
    with Processes(tmp_path) as processes:
        server = [sys.executable, "-m", "http.server", str(one), "--bind", "127.0.0.1"]
        assert wait_for_port(one, processes.start("server", server, os.environ), 30)
        assert not wait_for_port(two, processes.start("failure", ["false"], os.environ), 30)


def test_a_process_can_forbid_dumps_of_its_memory() -> None:
    code = (
        "import ctypes, resource; from lowkey.deployment.processes import forbid_dumps; forbid_dumps(); "
        "print(resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3))"  # 3: PR_GET_DUMPABLE
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "(0, 0) 0"


def test_programs_leave_no_core_file(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("program", ["sh", "-c", "ulimit -c"], os.environ).wait()
    assert (tmp_path / "program.log").read_text().strip() == "0"
