"""What a federation on this machine consists of before it starts: its settings, keys, enrolment and approved app."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from lowkey.deployment.apps import app_hash, preset_app
from lowkey.deployment.certificates import new_certificates, new_node_key
from lowkey.deployment.enrolment import (
    LIST_FILE,
    SECRET_FILE,
    Enrolled,
    new_identity,
    read_enrolment,
    write_enrolment,
    write_secret,
)
from lowkey.deployment.guard import approve, write_guard
from lowkey.errors import ConfigError
from lowkey.experiments import Config


def for_nodes(config: Config, nodes: int) -> Config:
    """The same settings with one client per node: its share of the data, and a cohort of no more than all of them.

    To be resolved afterwards, since noise and rounds that reach an ε depend on the number of clients.
    """
    if nodes < 1:
        raise ConfigError(f"--nodes is {nodes}; at least 1 is needed")
    federation = config.federation.model_copy(update={"cohort": min(config.federation.cohort, nodes)})
    changed: dict[str, Any] = {"data": config.data.model_copy(update={"clients": nodes}), "federation": federation}
    if config.privacy is not None:
        if nodes < 3:
            raise ConfigError(f"--nodes is {nodes}; secure aggregation hides nothing among fewer than 3 clients")
        fresh = {"secagg": "masked", "sampling": None, "roster": None}
        changed["privacy"] = config.privacy.model_copy(update=fresh)
    return config.model_copy(update=changed)


def prepare(home: Path, config: Config) -> None:
    """Keys, enrolment and app; what is there already stays, as clients keep their keys."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (home / "tls/ca.crt").exists():
        new_certificates(home / "tls", ["localhost", "127.0.0.1"])
        write_secret(home / "tls/superexec.secret", secrets.token_bytes(32))
    nodes = [home / "nodes" / f"{client:04d}" for client in range(config.data.clients)]
    enrolled: list[Enrolled] = []
    for client, node in enumerate(nodes):
        if not (node / SECRET_FILE).exists():
            new_identity(node, client, f"node {client}")
            new_node_key(node / "node.key")
        enrolled += read_enrolment(node / "identity.toml")
    for place in (home, *nodes):
        write_enrolment(place / LIST_FILE, enrolled)
    if not (home / "app").exists():
        preset_app(home / "app", config)
    else:
        (home / "app/preset/lowkey.toml").write_text(config.to_toml(), encoding="utf-8")
    digest = app_hash(home / "app")
    for node in nodes:
        approve(node / "approved.txt", digest, config.name)
        write_guard(node / "guard", node / "approved.txt")
