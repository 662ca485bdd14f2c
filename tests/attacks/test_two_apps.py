"""A server that agrees on keys under one approved app, and asks for the vector under another.

Two apps are approved at a hospital: one with the noise that was agreed on, and one with a fifth of it, to try the
installation, say. The policy was looked at when a client was invited, under the first app; the vector left under the
second, with a fifth of the noise. Or the second app has no privacy at all: then policy and ledger were not even opened,
and sixty rounds gave sixty plain updates.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lowkey.deployment import prepare
from lowkey.deployment.apps import preset_app
from lowkey.errors import ConfigError
from lowkey.experiments import load_config
from lowkey.federation import Request
from lowkey.flower import client_app
from lowkey.privacy import ClientLedger
from tests.attacks.asking_nodes import SMALL, LyingServer, Refused
from tests.cli.command import lowkey
from tests.flower.loopback import OPEN, PRIVATE, Setting

DEFENDS = (
    "In every step a client derives terms and session anew from the app that it runs, and refuses a step whose terms "
    "are not those under which its keys were made; its policy is checked when it is invited and again before its "
    "vector leaves. A node that has a policy refuses an app without privacy."
)


@pytest.mark.parametrize("name", ["the same", "another"])
def test_keys_under_one_app_and_the_vector_under_another(tmp_path: Path, name: str) -> None:
    settings = [*PRIVATE[1], *SMALL]
    server = LyingServer(Setting(tmp_path / "a", PRIVATE[0], settings, nodes=4))
    weak = Setting(tmp_path / "b", PRIVATE[0], [*settings, "privacy.noise_multiplier=0.2"], nodes=4)
    toml = weak.home / "app/preset/lowkey.toml"
    if name == "another":
        toml.write_text(toml.read_text().replace(f'name = "{server.name}"', 'name = "installation"'))
    _lenient_policy(server)

    run = f"{server.name}/0123"
    adverts = server.advertise(run, 1)
    shares = server.share(1, adverts)
    with pytest.raises(Refused, match="ProtocolViolation"):
        server.contribute(0, run, 1, adverts, shares, app=client_app(toml))
    ledger = server.node(0) / "ledger.jsonl"
    assert not ledger.exists() or all(p.noise_multiplier == 1.0 for p in ClientLedger.read(ledger).entries)


def test_a_policy_that_became_stricter_holds_from_the_next_step_on(tmp_path: Path) -> None:
    server = LyingServer(Setting(tmp_path, PRIVATE[0], [*PRIVATE[1], *SMALL], nodes=4))
    run = f"{server.name}/0123"
    adverts = server.advertise(run, 1)
    shares = server.share(1, adverts)
    _write_policy(server, min_noise_multiplier=1.5)
    with pytest.raises(Refused, match="PolicyRefused"):
        server.contribute(0, run, 1, adverts, shares)


def test_an_app_without_privacy_gets_nothing_from_a_node_with_a_policy(tmp_path: Path) -> None:
    server = LyingServer(Setting(tmp_path / "a", PRIVATE[0], [*PRIVATE[1], *SMALL], nodes=4))
    config = load_config(OPEN[0], SMALL[:2], nodes=4)
    app = client_app(preset_app(tmp_path / "open", config) / "preset/lowkey.toml")
    server.scheme, request = config.scheme(), Request(round=1, attempt=0, weights=server.weights)
    with pytest.raises(Refused, match="PolicyRefused"):
        server.ask(0, request, app=app)
    (server.node(0) / "policy.toml").unlink()  # its owner wants no policy any more
    assert server.ask(0, request, app=app).vector is not None


def test_an_app_without_privacy_is_not_approved_where_there_is_a_policy(tmp_path: Path) -> None:
    home = Setting(tmp_path / "a", PRIVATE[0], [*PRIVATE[1], *SMALL], nodes=4).home / "nodes/0000"
    app, before = preset_app(tmp_path / "open", load_config(OPEN[0], nodes=4)), (home / "approved.txt").read_text()
    refused = lowkey("flower", "approve", app, "--home", home)
    assert refused.returncode != 0
    assert "policy.toml" in refused.stderr
    assert (home / "approved.txt").read_text() == before


def test_a_federation_with_policies_does_not_become_one_without_privacy(tmp_path: Path) -> None:
    setting = Setting(tmp_path, PRIVATE[0], [*PRIVATE[1], *SMALL], nodes=4)
    settings = setting.home / "app/preset/lowkey.toml"
    before = settings.read_text()
    with pytest.raises(ConfigError, match="choose another directory"):
        prepare(setting.home, load_config(OPEN[0], nodes=4))
    assert settings.read_text() == before


def _lenient_policy(server: LyingServer) -> None:
    """The hospital's own policy allows both apps: it is the agreement that protects it here."""
    _write_policy(server, min_noise_multiplier=0.2)


def _write_policy(server: LyingServer, *, min_noise_multiplier: float) -> None:
    fields = {"min_roster": 4, "min_honest": 3, "min_tolerated_colluders": 0, "max_participations": 100}
    policy = {"min_noise_multiplier": min_noise_multiplier, **fields, "max_epsilon": 1e4, "delta": 1e-5}
    lines = "".join(f"{name} = {value}\n" for name, value in policy.items())
    (server.node(0) / "policy.toml").write_text(f"format = 1\n{lines}")
