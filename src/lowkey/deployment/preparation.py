"""What a federation on this machine consists of before it starts: keys, enrolment, approved app and policies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lowkey.deployment.apps import app_hash, preset_app, update_preset_app
from lowkey.deployment.certificates import new_certificates, new_executor_secret, new_node_key
from lowkey.deployment.enrolment import (
    Enrolled,
    new_identity,
    read_enrolment,
    write_enrolment,
)
from lowkey.deployment.guard import approve, write_guard
from lowkey.deployment.home import APPROVED_FILE, EXECUTOR_SECRET, LIST_FILE, NODE_KEY, POLICY_FILE, SECRET_FILE
from lowkey.deployment.policies import write_default_policy
from lowkey.errors import ConfigError
from lowkey.experiments import Config


def prepare(home: Path, config: Config) -> None:
    """Make keys, enrolment, app and policies; keys and revocations stay, app and policies follow the settings.

    A federation whose nodes have policies is not made one without privacy.
    """
    if not config.scheme().private and any(home.glob(f"nodes/*/{POLICY_FILE}")):
        raise ConfigError(
            f"the nodes in {home} have policies, which a scheme without privacy cannot keep; choose another directory"
        )
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (home / "tls/ca.crt").exists():
        new_certificates(home / "tls", ["localhost", "127.0.0.1"])
        new_executor_secret(home / "tls/superexec.secret")
    nodes = [home / "nodes" / f"{client:04d}" for client in range(config.federation.clients)]
    enrolled: list[Enrolled] = []
    for client, node in enumerate(nodes):
        if not (node / SECRET_FILE).exists():
            new_identity(node, client, f"node {client}")
            new_node_key(node / NODE_KEY)
        if not (node / EXECUTOR_SECRET).exists():
            new_executor_secret(node / EXECUTOR_SECRET)
        enrolled += read_enrolment(node / "identity.toml")
    for path in (place / LIST_FILE for place in (home, *nodes)):
        known = [replace(c, revoked=False) for c in read_enrolment(path)] if path.exists() else []
        if known != enrolled:
            write_enrolment(path, enrolled)
    if not (home / "app").exists():
        preset_app(home / "app", config)
    else:
        update_preset_app(home / "app", config)
    digest = app_hash(home / "app")
    for node in nodes:
        approve(node / APPROVED_FILE, digest, config.name)
        write_guard(node / "guard", node / APPROVED_FILE)
        write_default_policy(node / POLICY_FILE, config)
