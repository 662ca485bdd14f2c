"""One setting, two directories, two ledgers.

Who: an operator who starts the second run of a study from another directory, with the same settings. With what: a
relative ``federation.ledger``, which then means another file.

Before: both runs started with an empty ledger, and the second reported its own rounds alone: ε = 4.38 for two runs of
one round at z = 1, whose clients had spent 6.58 (everybody in every round, δ = 1e-5). Now a relative path is refused,
with the path to write instead.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from lowkey.errors import ConfigError
from lowkey.privacy import Event, claimed_epsilon
from lowkey.simulation import run
from tests.conftest import tiny_config

DEFENDS = "federation.ledger must be an absolute path, so that it means one file wherever a run is started or resumed."

CLIENTS = 12
BOTH = claimed_epsilon([Event(noise_multiplier=1.0, sampling_probability=1.0, population=CLIENTS)] * 2, 1e-5)
SETTINGS = [
    f"federation.clients={CLIENTS}", f"federation.cohort={CLIENTS}", "schedule.rounds=1", "privacy.epsilon=90",
    "privacy.noise_multiplier=1.0",
]  # fmt: skip


def epsilon_after_two_runs(tmp_path: Path, ledger: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """What the second run reports; each is started in a directory of its own."""
    for day in ("monday", "tuesday"):
        (tmp_path / day).mkdir()
        monkeypatch.chdir(tmp_path / day)
        config = tiny_config("demo/fl-cs-dp", *SETTINGS, f"federation.ledger={ledger}")
        result = run(config, tmp_path / day / "run")
    return float(result["epsilon_pld"])


def test_the_second_run_counts_the_first_or_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reported = None
    with contextlib.suppress(ConfigError):
        reported = epsilon_after_two_runs(tmp_path, "population.jsonl", monkeypatch)
    assert reported in (None, pytest.approx(BOTH))


def test_an_absolute_path_is_one_ledger_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert epsilon_after_two_runs(tmp_path, f"{tmp_path}/population.jsonl", monkeypatch) == pytest.approx(BOTH)


def test_the_error_says_what_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"must be an absolute path, such as {tmp_path}/population.jsonl"):
        tiny_config("demo/fl-cs-dp", *SETTINGS, "federation.ledger=population.jsonl")
