"""Persons at real nodes: the same model as in a simulation, and nobody takes part under another unit than its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lowkey.deployment import POLICY_FILE, default_policy
from lowkey.errors import LowkeyError
from lowkey.experiments import RunDirectory
from lowkey.experiments.checkpoints import unpack
from lowkey.flower.node import REPLAY_VARIABLE
from lowkey.rng import ReplaySecrets
from lowkey.simulation import run
from tests.flower.loopback import Setting

DATA = 'data={name="synthetic", encoding="public", scale=0.001}'
PERSONS = (
    "hospital/sih-sus/private-persons",
    [DATA, "privacy.persons=1000", "privacy.epsilon=50", "privacy.colluders=0", "schedule.calibration=1"],
)


@pytest.fixture(autouse=True)
def replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPLAY_VARIABLE, "7")


def test_persons_at_nodes_give_the_model_of_a_simulation(tmp_path: Path) -> None:
    setting = Setting(tmp_path, *PERSONS, rounds=2)
    setting.serve()
    simulated = replace(setting.config, runtime=replace(setting.config.runtime, workers=0))
    run(simulated, tmp_path / "simulated", secrets=ReplaySecrets(7))
    found, expected = (
        unpack(sorted(out.glob("checkpoint-*"))[-1]).state.weights for out in (setting.out, tmp_path / "simulated")
    )
    np.testing.assert_array_equal(found, expected)
    assert found[-5:].any()  # the second round, which fits slope and intercept
    done = RunDirectory.open(setting.out)
    assert [line["survivors"] for line in done.metrics()] == [4, 4]
    assert {event.unit for event in done.ledger().events} == {"admission"}


def test_a_node_whose_policy_is_about_clients_takes_no_part(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting(tmp_path, *PERSONS, rounds=2)
    policy = default_policy(setting.config)
    assert policy is not None
    assert policy.unit == "admission"
    for home in (setting.home / "nodes").iterdir():
        (home / POLICY_FILE).write_text(replace(policy, unit="client").to_toml(), encoding="utf-8")
    with pytest.raises(LowkeyError, match="0 of 4 clients are online"):
        setting.serve()
    assert "unless a client is protected" in caplog.text


def test_a_server_with_another_unit_finds_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting(tmp_path, *PERSONS, rounds=2)
    privacy = setting.config.privacy
    assert privacy is not None
    setting.config = replace(setting.config, privacy=replace(privacy, unit="client", row=None, persons=None))
    with pytest.raises(LowkeyError, match="0 of 4 clients are online"):
        setting.serve()
    assert "client 0 has agreed to other settings" in caplog.text
