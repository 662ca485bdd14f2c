"""Whole runs: stop, crash, resume; nothing lost, nothing free."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lowkey.errors import BudgetExhausted, DataError, RunError
from lowkey.experiments import Config, RunDirectory
from lowkey.privacy import Ledger, claimed_epsilon
from lowkey.protocols import Metrics
from lowkey.rng import ReplaySecrets
from lowkey.simulation import run
from tests.conftest import tiny_config

OPEN = ["fl-std", "fl-cs"]
CS_DP = "demo/fl-cs-dp"
NOISE = "privacy.noise_multiplier=1.0"


def arrays(path: Path) -> dict[str, np.ndarray]:
    """All that the server has at the end: the model, and what its parts remember."""
    directory = RunDirectory.open(path)
    state = directory.load_checkpoint(directory.ledger())
    directory.unlock()
    assert state is not None
    parts = {"gathered": state.gathered, "optimiser": state.optimiser, "average": state.average}
    remembered = {f"{part}.{name}": array for part, held in parts.items() for name, array in held.items()}
    return remembered | {"weights": state.weights}


def without_timing(path: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in m.items() if k != "seconds"} for m in RunDirectory.open(path).metrics()]


MEMORIES = {
    "usual": (),
    "momentum, exponential": ("server.optimiser=momentum", "averaging.kind=exponential"),
    "adam, tail": ("server.optimiser=adam", "server.rate=0.003", "averaging.kind=tail", "averaging.start=2"),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("scheme", OPEN)
def test_three_and_three_rounds_are_six_bit_for_bit(tmp_path: Path, scheme: str, memory: str, workers: int) -> None:
    def config(rounds: int) -> Config:
        changes = (f"schedule.rounds={rounds}", f"runtime.workers={workers}", *MEMORIES[memory])
        return tiny_config(f"demo/{scheme}", *changes)

    run(config(6), tmp_path / "whole")
    run(config(3), tmp_path / "halves")
    result = run(config(6), tmp_path / "halves", resume=True)
    whole, halves = arrays(tmp_path / "whole"), arrays(tmp_path / "halves")
    assert whole.keys() == halves.keys()
    assert ("average.average" in whole, "optimiser.second" in whole) == (memory != "usual", "adam" in memory)
    for name, array in whole.items():
        np.testing.assert_array_equal(halves[name], array, err_msg=name)
    assert without_timing(tmp_path / "halves") == without_timing(tmp_path / "whole")
    assert result["rounds"] == 6


def test_private_halves_spend_what_the_whole_does(tmp_path: Path) -> None:
    for rounds, path in ((6, "whole"), (3, "halves")):
        run(tiny_config(CS_DP, NOISE, f"schedule.rounds={rounds}"), tmp_path / path)
    result = run(tiny_config(CS_DP, NOISE, "schedule.rounds=6"), tmp_path / "halves", resume=True)
    whole, halves = (Ledger.read(tmp_path / p / "ledger.jsonl") for p in ("whole", "halves"))
    assert halves.events == whole.events
    assert [(entry.round, entry.attempt, entry.state) for entry in halves.entries] == [
        (number, 0, "RELEASED") for number in range(1, 7)
    ]
    assert {entry.run for entry in halves.entries}.isdisjoint(entry.run for entry in whole.entries)
    assert result["epsilon_pld"] == RunDirectory.open(tmp_path / "whole").summary()["epsilon_pld"]


def test_interruption_between_checkpoints_loses_no_paid_round(tmp_path: Path) -> None:
    def stop(metrics: Metrics) -> None:
        if metrics["round"] == 3:
            raise KeyboardInterrupt

    config = tiny_config(CS_DP, NOISE, "schedule.rounds=5", "runtime.checkpoint_every=100")
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "run", observers=[stop])
    run(config, tmp_path / "run", resume=True)
    assert [entry.round for entry in Ledger.read(tmp_path / "run" / "ledger.jsonl").entries] == [1, 2, 3, 4, 5]


def test_privacy_target_stops_evaluates_and_stays_stopped(tmp_path: Path) -> None:
    target = ("privacy.epsilon=4.0", "schedule.rounds=500", "schedule.evaluate_every=1000")
    config = tiny_config(CS_DP, NOISE, *target, "federation.cohort=40", "runtime.checkpoint_every=1000")
    result = run(config, tmp_path / "run")
    assert result["stopped"] == "privacy target"
    assert result["epsilon_pld"] <= 4.0
    assert result["final_accuracy"] is not None
    again = run(config, tmp_path / "run", resume=True)
    assert again["rounds"] == result["rounds"]
    assert len(Ledger.read(tmp_path / "run" / "ledger.jsonl").entries) == result["rounds"]


KILLED = """
import os, signal, sys
from pathlib import Path
from lowkey.experiments import read, parse
from lowkey.privacy import Ledger, claimed_epsilon
from lowkey.simulation import run

method, moment = sys.argv[3].split()
original = getattr(Ledger, method)

def dying(self, number, *rest):
    if number == 2 and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    original(self, number, *rest)
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)

setattr(Ledger, method, dying)
run(parse(read(Path(sys.argv[1]))), Path(sys.argv[2]))
"""


@pytest.mark.parametrize(
    ("moment", "spent"),
    [("intend before", 1), ("intend after", 2), ("release before", 2), ("release after", 2)],
)
@pytest.mark.parametrize("secagg", ["plain", "masked"])
def test_kill_at_every_state_of_the_ledger(tmp_path: Path, moment: str, spent: int, secagg: str) -> None:
    """SIGKILL in round 2: what may have become known is spent, its repetition is spent again, and the run goes on."""
    workers = 2 if (moment, secagg) == ("intend after", "plain") else 0
    config = tiny_config(
        CS_DP, NOISE, "schedule.rounds=3", f"runtime.workers={workers}", f"privacy.aggregation={secagg}",
        "privacy.dropouts=0.0", "privacy.colluders=0.0",
    )  # fmt: skip
    (tmp_path / "config.toml").write_text(config.to_toml())
    out = tmp_path / "run"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "config.toml"), str(out), moment], timeout=120
    )
    assert killed.returncode == -signal.SIGKILL
    ledger = out / "ledger.jsonl"
    assert len(Ledger.read(ledger).events) == spent
    assert [m["round"] for m in RunDirectory.open(out).metrics()] == [1]
    result = run(config, out, resume=True)
    entries = Ledger.read(ledger).entries
    assert [entry.round for entry in entries] == ([1, 2, 3] if spent == 1 else [1, 2, 2, 3])
    assert result["rounds"] == 3
    assert result["epsilon_pld"] == pytest.approx(claimed_epsilon([entry.event for entry in entries], 1e-5))


SLOW = """
import sys
from pathlib import Path
from lowkey.experiments import read, parse
from lowkey.simulation import run
import lowkey.learning.local_sgd as sgd, time
slow = sgd.TorchTrainer.train
def train(self, *args):
    time.sleep(0.15)
    return slow(self, *args)
sgd.TorchTrainer.train = train
run(parse(read(Path(sys.argv[1]))), Path(sys.argv[2]))
"""


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    config = tiny_config("demo/fl-std", "schedule.rounds=50", "federation.cohort=40", "runtime.workers=2")
    (tmp_path / "config.toml").write_text(config.to_toml())
    out = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-c", SLOW, str(tmp_path / "config.toml"), str(out)])
    children: set[int] = set()
    deadline = time.monotonic() + 120
    while len(children) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        children = {int(pid) for pid in listed}
    process.kill()
    process.wait()
    while any(Path(f"/proc/{pid}").exists() and _running(pid) for pid in children):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.1)


def _running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_ctrl_c_leaves_a_resumable_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = [
        "--set", "federation.clients=400", "--set", "model.hidden=8", "--set", "federation.cohort=10",
        "--rounds", "400", "--out", str(out), "--set", "runtime.workers=2",
    ]  # fmt: skip
    command = [sys.executable, "-m", "lowkey", "run", "demo/fl-std", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    metrics = out / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") >= 2):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: parent and workers
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"lowkey run --resume --out {out}" in error
    assert "Traceback" not in error
    done = RunDirectory.open(out).summary()["rounds"]
    more = subprocess.run(
        [sys.executable, "-m", "lowkey", "run", "--resume", "--out", str(out), "--rounds", str(done + 2), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(more.stdout.splitlines()[-1])["rounds"] == done + 2


def test_failed_start_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        run(tiny_config("demo/fl-std", f"data.source={tmp_path}"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_changed_settings_are_refused_before_anything_happens(tmp_path: Path) -> None:
    run(tiny_config(), tmp_path / "run")
    before = {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()}
    with pytest.raises(RunError, match="learning_rate"):
        run(
            tiny_config("demo/fl-std", "training.learning_rate=0.7", "schedule.rounds=6"),
            tmp_path / "run",
            resume=True,
        )
    assert {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()} == before


def test_replayed_secrets_mark_the_run(tmp_path: Path) -> None:
    run(tiny_config(CS_DP, NOISE), tmp_path / "one", secrets=ReplaySecrets(0))
    assert RunDirectory.open(tmp_path / "one").claims_privacy is False
    assert RunDirectory.open(tmp_path / "one").metrics()[-1]["epsilon_pld"] is None
    run(tiny_config(CS_DP, NOISE), tmp_path / "two")
    assert RunDirectory.open(tmp_path / "two").claims_privacy is True
    run(tiny_config(CS_DP, NOISE, "schedule.rounds=4"), tmp_path / "two", resume=True, secrets=ReplaySecrets(0))
    assert RunDirectory.open(tmp_path / "two").claims_privacy is False


def test_files_of_a_private_run_tell_no_cohort(tmp_path: Path) -> None:
    """No client number, no realised size: the metrics hold only the keys of an agreed list."""
    run(tiny_config(CS_DP, NOISE), tmp_path / "run")
    allowed = {
        "round", "accuracy", "loss", "epsilon_paper", "epsilon_rdp", "epsilon_pld", "epsilon_server",
        "epsilon_server_limit", "bytes_up_per_client",
        "bytes_down_per_client", "bytes_up_total", "bytes_down_total", "update_norm", "residual_norm", "nonzeros",
        "median_norm", "clip_norm", "decoder", "seconds", "survivors",
    }  # fmt: skip
    for metrics in RunDirectory.open(tmp_path / "run").metrics():
        assert set(metrics) == allowed
        assert metrics["median_norm"] is None
        assert metrics["survivors"] == 19  # members of a roster, whoever has contributed
        assert metrics["bytes_up_total"] == metrics["round"] * 19 * metrics["bytes_up_per_client"]  # all of the roster
    ledger = (tmp_path / "run" / "ledger.jsonl").read_text()
    assert not re.search('client[^"]|contributors|roster_|member', ledger)


def test_runs_on_one_population_share_a_ledger_and_a_budget(tmp_path: Path) -> None:
    shared = f"federation.ledger={tmp_path / 'population.jsonl'}"
    config = tiny_config(CS_DP, NOISE, shared)
    one, two = (run(config, tmp_path / name) for name in ("one", "two"))
    ledger = Ledger.read(tmp_path / "population.jsonl")
    assert len(ledger.events) == 6
    assert len({entry.run for entry in ledger.entries}) == 2
    assert one["epsilon_pld"] < two["epsilon_pld"] == pytest.approx(claimed_epsilon(ledger.events, 1e-5))
    capped = tiny_config(CS_DP, NOISE, shared, f"privacy.epsilon={two['epsilon_pld']}")
    with pytest.raises(BudgetExhausted):
        run(capped, tmp_path / "three")


def test_limits_of_clients_outlive_the_process(tmp_path: Path) -> None:
    config = tiny_config(CS_DP, NOISE, "federation.cohort=400", "privacy.max_contributions=2", "privacy.epsilon=90")
    run(config, tmp_path / "run")
    asked = (tmp_path / "run" / "clients.jsonl").read_text()
    assert asked == "[[0, 399]]\n" * 3  # in each of three rounds, though the last found zeros
