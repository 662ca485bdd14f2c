"""What is shipped in deploy/: units that systemd accepts, and commands whose options Flower's programs know.

None of it is started here. The programs are started with the same options by ``LocalFederation``, in other tests.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
yaml: Any = pytest.importorskip("yaml", reason="comes with Flower")

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = {file.stem: file.read_text(encoding="utf-8") for file in (DEPLOY / "systemd").glob("*.service")}
COMMON = (DEPLOY / "systemd/lowkey-.service.d/common.conf").read_text(encoding="utf-8")
SERVICES: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
OURS = {name: service for name, service in SERVICES.items() if name != "nginx"}
PROGRAM = re.compile(r"(?:\S*/)?(flower-\w+)(.*)", re.DOTALL)


def command_of(unit: str) -> str:
    found = re.search(r"^ExecStart=((?:.*\\\n)*.*)$", unit, re.MULTILINE)
    assert found is not None
    return found[1]


def commands() -> dict[str, str]:
    return {name: command_of(unit) for name, unit in UNITS.items()} | {n: s["command"] for n, s in OURS.items()}


def options(command: str) -> tuple[str, set[str]]:
    """A command's program and the names of its options."""
    found = PROGRAM.match(command)
    assert found is not None
    return found[1], set(re.findall(r"(?<=\s)--[a-z-]+", found[2]))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY / "systemd", tmp_path, dirs_exist_ok=True)
    for file in tmp_path.glob("*.service"):  # with a program that exists
        text = file.read_text(encoding="utf-8")
        file.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE), encoding="utf-8")
    command = ["systemd-analyze", "verify", *map(str, tmp_path.glob("*.service"))]
    done = subprocess.run(
        command, env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_flowers_programs_know_every_option() -> None:
    used = [options(command) for command in commands().values()]
    for program in {name for name, _ in used}:
        wanted = set().union(*(names for name, names in used if name == program))
        helped = subprocess.run(
            [Path(sys.executable).with_name(program), "--help"], capture_output=True, text=True, check=True
        )
        assert wanted <= set(re.findall(r"--[a-z-]+", helped.stdout)), program


@pytest.mark.parametrize("name", ["lowkey-supernode", "lowkey-superlink", "node-0", "node-1", "node-2", "superlink"])
def test_tasks_are_for_executors_that_know_the_secret(name: str) -> None:
    command = commands()[name]
    assert "--isolation process" in command
    assert "--superexec-auth-secret-file" in command
    assert "--host 127.0.0.1" in command


@pytest.mark.parametrize("name", ["lowkey-executor", "executor-0", "executor-1", "executor-2"])
def test_the_guard_runs_the_apps_of_a_node(name: str) -> None:
    assert commands()[name].startswith("/etc/lowkey/guard/flower-superexec ")
    path = OURS[name]["environment"]["PATH"] if name in OURS else UNITS[name].split("Environment=PATH=")[1].split()[0]
    assert path == "/etc/lowkey/guard:/usr/bin:/bin"


def test_apps_of_a_hospital_reach_no_network_and_the_node_reaches_no_data() -> None:
    executor, node = UNITS["lowkey-executor"], UNITS["lowkey-supernode"]
    assert "IPAddressDeny=any\nIPAddressAllow=localhost\n" in executor
    assert "InaccessiblePaths=/etc/lowkey/identity.pem -/srv/lowkey\n" in node
    assert "ReadWritePaths" not in node


def test_memory_is_never_written_to_disk() -> None:
    assert "\nLimitCORE=0\n" in COMMON
    assert "\nMemorySwapMax=0\n" in COMMON
    for service in OURS.values():
        assert service["ulimits"]["core"] == 0
        assert service["memswap_limit"] == service["mem_limit"]


def test_every_unit_is_one_of_those_that_the_common_part_holds_for() -> None:
    assert UNITS.keys() == {"lowkey-superlink", "lowkey-superexec", "lowkey-supernode", "lowkey-executor"}
