"""Who takes part: identity keys of the clients, and the list of their public keys.

identity.pem is a client's secret. enrolled.toml lists all clients; it must reach every client by another way than the
server that sums, and everybody should compare its fingerprint.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from lowkey.deployment.home import LIST_FILE, PUBLIC_FILE, SECRET_FILE
from lowkey.deployment.ownership import require_secret
from lowkey.durable import replace_file
from lowkey.errors import ConfigError
from lowkey.rng import OSSecrets
from lowkey.secagg import Identity
from lowkey.types import ClientId

_VERSION = 2  # of lists; those of Lowkey 0.1 state none and are read alike
_KEY_BYTES = 32
_LARGEST = 2**32 - 1
_FINGERPRINT_DIGITS = 48


@dataclass(frozen=True, kw_only=True)
class Enrolled:
    """An entry of the list of clients: number, name and public key, and whether it takes part no more."""

    client: ClientId
    name: str
    key: bytes
    revoked: bool = False


class OwnKeys:
    """Satisfies :class:`lowkey.protocols.Keys` for the one client of a node.

    Parameters
    ----------
    identity : Identity
        The client's own identity.
    verify_keys : mapping of ClientId to bytes
        Public keys of all clients, with its own among them.
    """

    def __init__(self, identity: Identity, verify_keys: Mapping[ClientId, bytes]) -> None:
        if identity.client not in verify_keys:
            raise ConfigError(f"client {identity.client} is revoked in {LIST_FILE}, or not in it; this node is to stop")
        if verify_keys[identity.client] != identity.verify_key:
            raise ConfigError(
                f"the enrolment has another key for client {identity.client} than the one in {SECRET_FILE}; enrol this "
                "node's own identity.toml"
            )
        self._identity, self.verify_keys = identity, verify_keys

    def identity(self, client: ClientId) -> Identity:
        if client != self._identity.client:
            raise ConfigError(f"this node is client {self._identity.client}, not {client}")
        return self._identity


def new_identity(home: Path, client: ClientId, name: str) -> Enrolled:
    """Make a client's key pair: the secret key, which only this user can read, and the public entry to enrol."""
    if not name.isprintable():
        raise ConfigError(f"name is {name!r}; it must be text of one line")
    identity = Identity.fresh(client, OSSecrets().source("identity"))
    pem = Ed25519PrivateKey.from_private_bytes(identity.signing_key).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    write_secret(home / SECRET_FILE, pem)
    entry = Enrolled(client=client, name=name, key=identity.verify_key)
    write_enrolment(home / PUBLIC_FILE, [entry])
    return entry


def read_identity(home: Path, client: ClientId) -> Identity:
    """The identity of the client of this node."""
    path = home / SECRET_FILE
    try:
        require_secret(path)
        pem = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); make it with 'lowkey flower identity'") from None
    try:
        key = load_pem_private_key(pem, password=None)
    except Exception:  # OpenSSL has many, and some have no name
        raise ConfigError(f"{path} is not a private key; restore it, or enrol again") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path} holds a key that is not Ed25519; make it with 'lowkey flower identity'")
    return Identity(client=client, signing_key=key.private_bytes_raw())


def write_enrolment(path: Path, clients: Iterable[Enrolled]) -> None:
    """Write a list of clients."""
    entries = [
        {"number": c.client, "name": c.name, "key": base64.b64encode(c.key).decode()}
        | ({"revoked": True} if c.revoked else {})
        for c in sorted(clients, key=lambda c: c.client)
    ]
    replace_file(path, tomli_w.dumps({"version": _VERSION, "client": entries}).encode())


def read_enrolment(path: Path) -> list[Enrolled]:
    """Read a list of clients; every number and every key may occur once.

    A key of the file that is not known is refused: whoever wrote it there meant something by it.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); check the path") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    version, entries = table.get("version", 1), table.get("client")
    if type(version) is not int or not 1 <= version <= _VERSION:
        raise ConfigError(
            f"{path} is a list of another version, and this Lowkey reads versions 1 to {_VERSION}; upgrade Lowkey"
        )
    _require_known(path, table, {"version", "client"})
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"{path} lists no [[client]]; 'lowkey flower enrol' writes it")
    clients = [_client(path, entry) for entry in entries]
    for what, values in (("number", [c.client for c in clients]), ("key", [c.key for c in clients])):
        if len(set(values)) < len(values):
            raise ConfigError(f"{path}: two clients have the same {what}; every hospital makes its own identity")
    return clients


def _client(path: Path, entry: Any) -> Enrolled:
    try:
        number, name, key = entry["number"], entry.get("name", ""), base64.b64decode(entry["key"], validate=True)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError(f"{path}: a [[client]] needs number, name and key; 'lowkey flower enrol' writes it") from None
    _require_known(path, entry, {"number", "name", "key", "revoked"})
    if type(number) is not int or not 0 <= number <= _LARGEST:
        raise ConfigError(
            f"{path}: the number of a client is {number!r}; it must be a whole number from 0 to {_LARGEST}"
        )
    if not isinstance(name, str) or not name.isprintable():
        raise ConfigError(f"{path}: the name of client {number} is {name!r}; it must be text of one line")
    if len(key) != _KEY_BYTES:
        raise ConfigError(f"{path}: the key of client {number} has {len(key)} bytes; it must have {_KEY_BYTES}")
    revoked = entry.get("revoked", False)
    if not isinstance(revoked, bool):
        raise ConfigError(f"{path}: revoked of client {number} is {revoked!r}; it must be true or false")
    return Enrolled(client=number, name=name, key=key, revoked=revoked)


def revoke(clients: Iterable[Enrolled], client: ClientId) -> list[Enrolled]:
    """The list with one client marked as revoked: its number and key stay, so that the others keep their numbers."""
    known = {c.client: c for c in clients}
    if client not in known or known[client].revoked:
        raise ConfigError(f"client {client} is revoked already, or not in the list; check the number")
    return [*(known | {client: replace(known[client], revoked=True)}).values()]


def _require_known(path: Path, table: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(table.keys() - known):
        raise ConfigError(f"{path}: {unknown[0]!r} is unknown; upgrade Lowkey, or remove it")


def verify_keys_of(clients: Iterable[Enrolled]) -> dict[ClientId, bytes]:
    """Verify keys by client; nothing that a revoked client signs is accepted."""
    return {c.client: c.key for c in clients if not c.revoked}


def fingerprint(clients: Iterable[Enrolled]) -> str:
    """Digest of a list for people to compare by telephone: only equal numbers, keys and revocations have the same.

    It has 192 bits, as twelve groups of four letters and digits. Somebody who may offer keys of its own to both sides
    of a call must try 2^96 of them to find two lists with one fingerprint.
    """
    text = b"".join(
        c.client.to_bytes(4, "big") + c.key + bytes([c.revoked]) for c in sorted(clients, key=lambda c: c.client)
    )
    digest = hashlib.sha256(b"lowkey enrolment 2\n" + text).hexdigest()[:_FINGERPRINT_DIGITS]
    return " ".join(digest[i : i + 4] for i in range(0, _FINGERPRINT_DIGITS, 4))


def write_secret(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can ever read; a directory that is made for it is private, too."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path} exists; others rely on it, so remove it only to start over") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}); choose another directory") from None
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
