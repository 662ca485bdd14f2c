"""What a federation on this machine consists of before it starts: keys, enrolment and approved app."""

from __future__ import annotations

import secrets
from pathlib import Path

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
from lowkey.experiments import Config


def prepare(home: Path, config: Config) -> None:
    """Make keys, enrolment and app; what exists already stays, so that clients keep their keys."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (home / "tls/ca.crt").exists():
        new_certificates(home / "tls", ["localhost", "127.0.0.1"])
        write_secret(home / "tls/superexec.secret", secrets.token_bytes(32))
    nodes = [home / "nodes" / f"{client:04d}" for client in range(config.federation.clients)]
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
