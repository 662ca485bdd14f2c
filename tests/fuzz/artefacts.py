"""Good input of every kind: what server and nodes of one real round have sent, kept and read."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from flwr.app import Message, RecordDict

from lowkey.deployment import approve, new_node_key, write_enrolment
from lowkey.deployment.enrolment import Enrolled, write_secret
from lowkey.deployment.guard import bundle_digest
from lowkey.deployment.home import PUBLIC_FILE, SECRET_FILE
from lowkey.flower.node import REPLAY_VARIABLE
from tests.flower.loopback import OPEN, PRIVATE, Setting

NODES = 4
POLICY = b"""format = 1
min_noise_multiplier = 1.0
min_roster = 3
min_honest = 3
min_tolerated_colluders = 0
max_participations = 25
max_epsilon = 34.0
delta = 1e-5
"""
STATUS = b'{"round": 3, "time": "2026-01-01T00:00:00+00:00", "contributed": false, "reason": "no data"}\n'


@dataclass
class Artefacts:
    """Messages and files of a private round, and of one without privacy."""

    requests: list[RecordDict] = field(default_factory=list)
    replies: list[tuple[RecordDict, RecordDict]] = field(default_factory=list)  # each after its request
    greetings: list[RecordDict] = field(default_factory=list)
    states: list[bytes] = field(default_factory=list)
    files: dict[str, list[bytes]] = field(default_factory=dict)


def make_artefacts(directory: Path) -> Artefacts:
    """Run two short federations in a directory, and keep what they sent and wrote."""
    made = Artefacts()
    with _replayed():
        private = _federation(directory / "private", PRIVATE, made)
        _federation(directory / "open", OPEN, made)
    nodes = [private.home / "nodes" / f"{client:04d}" for client in range(2)]
    bundles = [_bundle(zipfile.ZIP_DEFLATED), _bundle(zipfile.ZIP_STORED)]
    approve(nodes[0] / "approved.txt", bundle_digest(bundles[0]), "this one")
    made.files = {
        "policy": [POLICY],
        "status": [STATUS],
        "bundle": bundles,
        "approved": [(nodes[0] / "approved.txt").read_bytes()],
        "enrolment": [(private.home / "enrolled.toml").read_bytes(), (nodes[0] / PUBLIC_FILE).read_bytes()],
        "identity": [(node / SECRET_FILE).read_bytes() for node in nodes],
        "ledger": [(private.out / "ledger.jsonl").read_bytes()],
        "client ledger": [(nodes[0] / "ledger.jsonl").read_bytes()],
        "checkpoint": [file.read_bytes() for file in private.out.glob("checkpoint-*")],
    }
    return made


@contextmanager
def _replayed() -> Iterator[None]:
    """The same keys, noise and names every time."""
    with patch.dict(os.environ, {REPLAY_VARIABLE: "7"}), patch("secrets.token_hex", return_value="0123456789abcdef"):
        yield


def _federation(directory: Path, scheme: tuple[str, list[str]], made: Artefacts) -> Setting:
    for client in range(NODES):
        home = directory / "home/nodes" / f"{client:04d}"
        key = Ed25519PrivateKey.from_private_bytes(bytes([client + 1]) * 32)
        write_secret(home / SECRET_FILE, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        entry = Enrolled(client=client, name=f"node {client}", key=key.public_key().public_bytes_raw())
        write_enrolment(home / PUBLIC_FILE, [entry])
        new_node_key(home / "node.key")
    small = ["model.filters=[2, 4]", "model.hidden=8"]
    chunks = ["codec.chunks=3"] if scheme is PRIVATE else []
    setting = Setting(directory, scheme[0], [*scheme[1], *small, *chunks], nodes=NODES, rounds=2)

    def keep(client: int, message: Message, handle: Callable[[], Message]) -> list[Message]:
        reply = handle()
        if "request" in message.content:
            made.requests.append(message.content)
            made.replies.append((message.content, reply.content))
        else:
            made.greetings.append(reply.content)
        record = setting.grid.contexts[1000 + client].state.config_records.get("lowkey")
        member = record.get("member") if record is not None else None
        if isinstance(member, bytes) and member:
            made.states.append(member)
        return [reply]

    setting.grid.fault = keep
    setting.serve()
    return setting


def _bundle(compression: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name in ("app/__init__.py", "app/task.py", "app/é.toml", "pyproject.toml"):
            archive.writestr(zipfile.ZipInfo(name), f"# {name}\n" * 20, compression)
    return buffer.getvalue()
