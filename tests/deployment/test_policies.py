"""The policy of a node: it must be there, and its defaults are the limits of the app."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from lowkey.deployment import POLICY_FILE, default_policy, prepare, read_policy, require_own, write_default_policy
from lowkey.errors import ConfigError, PolicyRefused
from lowkey.experiments import Config, load_config
from lowkey.privacy import ClientLedger, Policy, server_epsilon

PRIVATE = ["privacy.noise_multiplier=1.0", "privacy.dropouts=0.2", "privacy.colluders=0.1", "schedule.rounds=20"]


def settings(*changes: str, nodes: int = 10) -> Config:
    return load_config("demo/fl-cs-dp", [*PRIVATE, *changes], nodes=nodes)


def policy_of(config: Config) -> Policy:
    policy = default_policy(config)
    assert policy is not None
    return policy


def test_defaults_are_the_limits_of_the_app() -> None:
    policy = policy_of(settings("privacy.max_contributions=25"))
    assert policy == Policy(
        min_noise_multiplier=1.0, min_roster=10, min_honest=7, min_tolerated_colluders=1, max_participations=25,
        max_epsilon=33.11, delta=1e-5,
    )  # fmt: skip
    assert 33.10 < server_epsilon(1.0, 25, 1e-5) < 33.11


@pytest.mark.parametrize(
    "weaker",
    [
        settings("privacy.noise_multiplier=0.999"),
        settings("privacy.dropouts=0.1", nodes=9),
        settings("privacy.dropouts=0.3"),
        settings("privacy.colluders=0"),
    ],
    ids=["less noise", "fewer members", "fewer honest members", "fewer colluders"],
)
def test_defaults_let_the_app_run_and_nothing_weaker(weaker: Config) -> None:
    policy = policy_of(settings())
    policy.check(settings().scheme().terms(4000, 1))
    with pytest.raises(PolicyRefused):
        policy.check(weaker.scheme().terms(4000, 1))


@pytest.mark.parametrize("sampling", ["all", "secret_poisson"])
def test_under_its_defaults_an_app_can_use_its_own_limit_and_no_more(sampling: str) -> None:
    cohort = "federation.cohort=5" if sampling == "secret_poisson" else "federation.cohort=10"
    config = settings(f"privacy.sampling={sampling}", cohort, "privacy.max_contributions=4")
    policy, terms, ledger = policy_of(config), config.scheme().terms(4000, 1), ClientLedger(None)
    for number in range(1, 5):
        assert policy.limit_reached(ledger, terms) is None
        ledger.join("app/0", number, 0, noise_multiplier=terms.noise_multiplier, coin=terms.coin)
    assert policy.limit_reached(ledger, terms) is not None


def test_an_app_without_a_limit_gets_that_of_its_rounds() -> None:
    unlimited = policy_of(settings("privacy.max_contributions=unlimited"))
    assert unlimited == policy_of(settings("privacy.max_contributions=auto"))


@pytest.mark.parametrize("noise", [1.2244897959, 0.0012345678, 123.456789])
def test_noise_that_another_machine_calibrated_a_little_lower_is_accepted(noise: float) -> None:
    config = settings(f"privacy.noise_multiplier={noise}")
    lower = policy_of(config).min_noise_multiplier
    assert noise * (1 - 1e-5) < lower < noise * (1 - 1e-9)


def test_schemes_without_privacy_have_no_policy(tmp_path: Path) -> None:
    assert write_default_policy(tmp_path / POLICY_FILE, load_config("demo/fl-std", nodes=3)) is None
    assert not (tmp_path / POLICY_FILE).exists()


def test_a_node_without_a_policy_is_told_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"policy.toml is missing.*flower approve APP --home {tmp_path}"):
        read_policy(tmp_path)


def test_the_policies_of_a_local_federation_follow_its_settings(tmp_path: Path) -> None:
    config = settings("privacy.max_contributions=4")
    prepare(tmp_path, config)
    assert config.privacy is not None
    prepare(tmp_path, replace(config, privacy=replace(config.privacy, max_contributions=6)))
    for node in (tmp_path / "nodes").iterdir():
        assert read_policy(node).max_participations == 6


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o000])
def test_what_is_made_is_trusted_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        prepare(tmp_path / "home", settings())
    finally:
        os.umask(before)
    for node in (tmp_path / "home/nodes").iterdir():
        require_own(node)


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("fashion-mnist/private", []),
        ("hospital/sih-sus/private", []),
        ("hospital/sih-sus/private", ["evaluation.where=clients", "evaluation.every=10", "privacy.asking=0.5"]),
    ],
)
def test_the_default_policy_takes_every_release_of_its_own_app(preset: str, changes: list[str]) -> None:
    """Also those with less noise than usual rounds have: a centre, answers to questions."""
    config = load_config(preset, changes)
    policy, scheme = policy_of(config), config.priced_scheme()
    assert config.privacy is not None
    for number, phase in scheme.phases.items():
        policy.check(phase.terms(3, number))
    assert policy.max_epsilon == pytest.approx(config.privacy.epsilon, abs=0.02)
