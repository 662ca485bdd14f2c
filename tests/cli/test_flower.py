"""The commands around deployment, without any process of Flower."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowkey.cli.app import app
from lowkey.deployment import note_error, note_training
from lowkey.errors import InvalidInput, LowkeyError, RunError
from lowkey.experiments import RunDirectory
from lowkey.figures import human_epsilon
from lowkey.privacy import ClientLedger, server_epsilon

RUN = ["run", "demo/fl-std", "--quiet"]


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_from_nothing_to_an_approved_app(tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("mary", "luke", "anne")]
    for number, home in enumerate(homes):
        assert "never leave this machine" in call("flower", "identity", str(home), "--client", str(number))
    public = [str(home / "identity.toml") for home in homes]
    listed = call("flower", "enrol", *public, "--out", str(tmp_path / "enrolled.toml"))
    again = call("flower", "enrol", *reversed(public), "--out", str(tmp_path / "other.toml"))
    fingerprint = call("flower", "fingerprint", str(tmp_path / "enrolled.toml")).strip()
    assert fingerprint in listed
    assert fingerprint in again
    call("flower", "new", str(tmp_path / "my-study"))
    assert (tmp_path / "my-study/my_study/task.py").exists()
    digest = call("flower", "fingerprint", str(tmp_path / "my-study")).strip()
    approved = call("flower", "approve", str(tmp_path / "my-study"), "--home", str(homes[0]))
    assert digest in approved
    assert "features  those of the app's own task, my_study.task: read its code" in approved
    assert "written with the app's own limits: review it" in approved
    policy = homes[0] / "policy.toml"
    assert policy.read_text() == (tmp_path / "my-study/policy.toml").read_text()
    policy.write_text(policy.read_text().replace("max_participations = 25", "max_participations = 3"))
    assert "is kept as it is" in call("flower", "approve", str(tmp_path / "my-study"), "--home", str(homes[0]))
    assert "max_participations = 3" in policy.read_text()
    settings = tmp_path / "my-study/my_study/lowkey.toml"
    settings.write_text(settings.read_text() + "\n[evaluation]\nwhere = 'clients'\n")
    again = call("flower", "approve", str(tmp_path / "my-study"), "--home", str(homes[0]))
    assert "asks      how the model scores this node's own test rows, at the end" in again
    assert "ca.crt" in call("flower", "certificates", str(tmp_path / "tls"), "--host", "127.0.0.1")


def test_a_client_is_revoked_and_the_fingerprint_tells(tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("mary", "luke")]
    for number, home in enumerate(homes):
        call("flower", "identity", str(home), "--client", str(number), "--name", home.name)
    enrolled, out = str(tmp_path / "enrolled.toml"), str(tmp_path / "new.toml")
    call("flower", "enrol", *(str(home / "identity.toml") for home in homes), "--out", enrolled)
    before = call("flower", "fingerprint", enrolled).strip()
    told = call("flower", "revoke", enrolled, "--client", "1", "--out", out)
    now = call("flower", "fingerprint", out).strip()
    assert "revoked  1  luke" in told
    assert f"fingerprint before  {before}\n" in told
    assert f"fingerprint now     {now} " in told
    assert before == call("flower", "fingerprint", enrolled).strip() != now
    call("flower", "revoke", enrolled, "--client", "1")
    assert now == call("flower", "fingerprint", enrolled).strip()
    with pytest.raises(LowkeyError, match="client 2 is revoked already, or not in the list"):
        call("flower", "revoke", enrolled, "--client", "2")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([*RUN, "--runtime", "flower"], "--nodes and --runtime flower belong together"),
        ([*RUN, "--nodes", "3"], "--nodes and --runtime flower belong together"),
        (["run", "demo/fl-cs-dp", "--runtime", "flower", "--nodes", "2"], "at least 3 clients"),
        (["run", "demo/fl-std", "--runtime", "flower", "--nodes", "3", "--track", "abacus"], "--track is 'abacus'"),
    ],
)
def test_what_cannot_be_deployed_is_refused_before_anything_starts(
    tmp_path: Path, arguments: list[str], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "run")], catch_exceptions=False)
    assert not (tmp_path / "run").exists()


def test_a_directory_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/thesis.txt").touch()
    command = [*RUN, "--runtime", "flower", "--nodes", "3", "--out", str(tmp_path / "run")]
    with pytest.raises(RunError, match="exists and is not empty"):
        CliRunner().invoke(app, command, catch_exceptions=False)


def test_status_tells_how_far_a_run_is(tmp_path: Path) -> None:
    out = tmp_path / "run"
    call("run", "demo/fl-cs", "--rounds", "2", "--out", str(out), "--quiet", "--set", "runtime.workers=0")
    told = call("status", str(out))
    for word in ("finished", "2 of 2", "accuracy", "upload", "100 in the last round", "seconds"):
        assert word in told
    directory = RunDirectory.open(out)
    directory.lock()
    try:
        assert "running" in call("status", str(out))
    finally:
        directory.unlock()
    (out / "result.json").unlink()
    assert "stopped" in call("status", str(out))
    directory.write_failure("too few clients")
    assert "failed: too few clients" in call("status", str(out))


def test_status_of_something_else_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LowkeyError, match="not a run directory"):
        CliRunner().invoke(app, ["status", str(tmp_path)], catch_exceptions=False)


def test_status_of_a_node_tells_how_its_training_went(tmp_path: Path) -> None:
    """Known at the node and nowhere else: the server has seen noise like any other."""
    home = tmp_path / "mary"
    call("flower", "identity", str(home), "--client", "0")
    with pytest.raises(LowkeyError, match="has not trained yet"):
        call("status", str(home))
    note_training(home, 7, None)
    assert "contributed" in call("status", str(home))
    note_training(home, 8, "its dataset is empty")
    told = call("status", str(home))
    assert "sent noise only: its dataset is empty" in told
    assert "    round  8" in told
    note_error(home, "query.agree: PolicyRefused: noise_multiplier is 0.1")
    told = call("status", str(home))
    assert "noise_multiplier is 0.1" in told
    assert "sent noise only: its dataset is empty" in told


def test_status_of_a_node_tells_how_much_of_its_limits_is_used(tmp_path: Path) -> None:
    home, app = tmp_path / "mary", tmp_path / "my-study"
    call("flower", "identity", str(home), "--client", "0")
    call("flower", "new", str(app))
    call("flower", "approve", str(app), "--home", str(home))
    note_training(home, 1, None)
    assert "0 of 25 participations" in call("status", str(home))
    with ClientLedger(home / "ledger.jsonl") as ledger:
        for number in range(1, 3):
            ledger.join("my-study/0123", number, 0, noise_multiplier=1.0)
    told = call("status", str(home))
    assert "2 of 25 participations" in told
    assert f"{human_epsilon(server_epsilon(1.0, 2, 1e-5))} of 3.32 towards the server" in told
    found = json.loads(call("status", str(home), "--json"))
    assert (found["participations"], found["contributed"]) == (2, True)
