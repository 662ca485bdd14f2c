"""Keys: signing keys, keys that two members have in common, and keys that hide shares from the server."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TypeAlias

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from lowkey.errors import InvalidInput, ProtocolViolation
from lowkey.rng import BitSource
from lowkey.secagg.session import DRAW_BYTES, Session, be32
from lowkey.types import ClientId

VerifyKeys: TypeAlias = Mapping[ClientId, bytes]
"""Verify key of every enrolled client. It must not reach the clients through the server that sums."""

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16


def random_bytes(source: BitSource, count: int) -> bytes:
    """Secret bytes from a source."""
    return source.bits(-(-count // 8)).tobytes()[:count]


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Signing key of an enrolled client (Ed25519); it is used as long as the enrolment lasts."""

    client: ClientId
    signing_key: bytes = field(repr=False)

    @classmethod
    def fresh(cls, client: ClientId, source: BitSource) -> Identity:
        return cls(client=client, signing_key=random_bytes(source, KEY_BYTES))

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.signing_key)

    @cached_property
    def verify_key(self) -> bytes:
        """Public key by which others know this client."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, text: bytes) -> bytes:
        """64-byte signature."""
        return self._key.sign(text)

    def draw(self, session: Session) -> bytes:
        """16 bytes that nobody else can foresee, always the same for one session."""
        return hmac.digest(self.signing_key, b"lowkey/secagg/draw|" + session.digest, "sha256")[:DRAW_BYTES]


def is_signed_by(verify_key: bytes, text: bytes, signature: bytes) -> bool:
    """Whether the owner of this verify key signed the text."""
    try:
        _verifier(verify_key).verify(signature, text)
    except InvalidSignature:
        return False
    return True


@lru_cache(maxsize=4096)
def _verifier(verify_key: bytes) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(verify_key)
    except ValueError:
        raise InvalidInput(f"a verify key has {len(verify_key)} bytes; Ed25519 keys have {KEY_BYTES}") from None


@lru_cache(maxsize=4096)
def _receiver(public_key: bytes) -> X25519PublicKey:
    return X25519PublicKey.from_public_bytes(public_key)


def agreement_key(secret: bytes) -> X25519PrivateKey:
    """Half of a key agreement, from 32 secret bytes."""
    return X25519PrivateKey.from_private_bytes(secret)


def public_key(secret: bytes) -> bytes:
    """The public half of a key agreement."""
    return agreement_key(secret).public_key().public_bytes_raw()


@lru_cache(maxsize=4096)
def is_usable(public_key: bytes) -> bool:
    """Whether a key agreement with this key is secret: a few points of small order give zeros with every key."""
    try:
        agreement_key(b"\1" * KEY_BYTES).exchange(_receiver(public_key))
    except ValueError:
        return False
    return True


def pair_key(
    session: Session, purpose: bytes, own: X25519PrivateKey, me: ClientId, public: bytes, peer: ClientId
) -> bytes:
    """Key that two members have in common; the purpose is b"mask" or b"seal"."""
    try:
        shared = own.exchange(_receiver(public))
    except ValueError:
        raise ProtocolViolation(
            f"the {purpose.decode()} key of client {peer} is unusable; leave this attempt"
        ) from None
    return _derive(session, shared, purpose + b"|" + be32(min(me, peer), max(me, peer)))


def self_key(session: Session, client: ClientId, seed: bytes) -> bytes:
    """Key of the mask that a member adds on its own."""
    return _derive(session, seed, b"self|" + be32(client))


def _derive(session: Session, secret: bytes, info: bytes) -> bytes:
    extracted = hmac.digest(session.salt, secret, "sha256")
    return hmac.digest(extracted, info + b"\1", "sha256")  # HKDF, RFC 5869: one block is all of a 32-byte key


def seal(session: Session, key: bytes, sender: ClientId, receiver: ClientId, nonce: bytes, text: bytes) -> bytes:
    """Encrypt for one neighbour; bound to session, sender and receiver. The nonce, 12 fresh bytes, goes in front."""
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, text, session.digest + be32(sender, receiver))


def unseal(session: Session, key: bytes, sender: ClientId, receiver: ClientId, sealed: bytes) -> bytes | None:
    """The text that :func:`seal` was given; None if it was altered, or sealed for somebody else."""
    nonce, text = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, text, session.digest + be32(sender, receiver))
    except (InvalidTag, ValueError):
        return None
