"""Who takes part: identity keys of the clients, and the list of their public halves.

identity.pem is a client's secret. enrolled.toml lists all clients; it must reach every client by another way than the
server that sums, and everybody should compare its fingerprint.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import tomli_w
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from lowkey.durable import replace_file
from lowkey.errors import ConfigError
from lowkey.rng import OSSecrets
from lowkey.secagg import Identity
from lowkey.types import ClientId

SECRET_FILE, PUBLIC_FILE, LIST_FILE = "identity.pem", "identity.toml", "enrolled.toml"
_KEY_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class Enrolled:
    """One client as the others know it."""

    client: ClientId
    name: str
    key: bytes


class OwnKeys:
    """Satisfies :class:`lowkey.protocols.Keys` for the one client of a node.

    Parameters
    ----------
    identity : its own.
    directory : verify keys of all clients, its own among them.
    """

    def __init__(self, identity: Identity, directory: Mapping[ClientId, bytes]) -> None:
        if directory.get(identity.client) != identity.verify_key:
            raise ConfigError(
                f"the enrolment has another key for client {identity.client} than the one in {SECRET_FILE}; enrol this "
                "node's own identity.toml"
            )
        self._identity, self.directory = identity, directory

    def identity(self, client: ClientId) -> Identity:
        if client != self._identity.client:
            raise ConfigError(f"this node is client {self._identity.client}, not {client}")
        return self._identity


def new_identity(home: Path, client: ClientId, name: str) -> Enrolled:
    """Make a client's key pair: the secret, for the eyes of this user alone, and the public entry to enrol."""
    secret = home / SECRET_FILE
    if secret.exists():
        raise ConfigError(f"{secret} exists; a client keeps its key, so remove it only to enrol anew")
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    identity = Identity.fresh(client, OSSecrets().source("identity"))
    pem = Ed25519PrivateKey.from_private_bytes(identity.signing_key).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    write_secret(secret, pem)
    entry = Enrolled(client=client, name=name, key=identity.verify_key)
    write_enrolment(home / PUBLIC_FILE, [entry])
    return entry


def read_identity(home: Path, client: ClientId) -> Identity:
    """The identity of the client of this node."""
    path = home / SECRET_FILE
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"{path} can be read by others; protect it with: chmod 600 {path}")
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); make it with 'lowkey flower identity'") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(f"{path} is no private key; restore it, or enrol anew") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path} holds another kind of key than Ed25519; make it with 'lowkey flower identity'")
    return Identity(client=client, signing_key=key.private_bytes_raw())


def write_enrolment(path: Path, clients: Iterable[Enrolled]) -> None:
    """Write a list of clients."""
    entries = [
        {"number": c.client, "name": c.name, "key": base64.b64encode(c.key).decode()}
        for c in sorted(clients, key=lambda c: c.client)
    ]
    replace_file(path, tomli_w.dumps({"client": entries}).encode())


def read_enrolment(path: Path) -> list[Enrolled]:
    """Read a list of clients; every number and every key may occur once."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    clients = []
    for entry in table.get("client", []):
        try:
            key = base64.b64decode(entry["key"], validate=True)
            client = Enrolled(client=int(entry["number"]), name=str(entry.get("name", "")), key=key)
        except (KeyError, TypeError, ValueError, binascii.Error):
            raise ConfigError(
                f"{path}: a [[client]] needs number, name and key; 'lowkey flower enrol' writes it"
            ) from None
        if len(key) != _KEY_BYTES:
            raise ConfigError(
                f"{path}: the key of client {client.client} has {len(key)} bytes; it must have {_KEY_BYTES}"
            )
        clients.append(client)
    if not clients:
        raise ConfigError(f"{path} lists no client; 'lowkey flower enrol' writes it")
    for what, values in (("number", [c.client for c in clients]), ("key", [c.key for c in clients])):
        if len(set(values)) < len(values):
            raise ConfigError(f"{path}: two clients have the same {what}; every hospital makes its own identity")
    return clients


def directory_of(clients: Iterable[Enrolled]) -> dict[ClientId, bytes]:
    """Verify keys by client."""
    return {c.client: c.key for c in clients}


def fingerprint(clients: Iterable[Enrolled]) -> str:
    """What people compare by telephone: the same numbers and keys have the same fingerprint, and no others."""
    text = b"".join(c.client.to_bytes(4, "big") + c.key for c in sorted(clients, key=lambda c: c.client))
    digest = hashlib.sha256(b"lowkey enrolment 1\n" + text).hexdigest()[:32]
    return " ".join(digest[i : i + 4] for i in range(0, 32, 4))


def write_secret(path: Path, content: bytes) -> None:
    """A new file that only its owner can read, from its first byte on."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
