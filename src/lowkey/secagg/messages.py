"""The messages between members and server, and the texts that are signed.

Adverts and confirmations are signed; sealed shares are authenticated by keys that come from signed adverts. Masked
vectors and revealed shares are for the server only: its transport says who sent them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from lowkey.errors import InvalidInput
from lowkey.secagg.keys import KEY_BYTES, Identity, VerifyKeys, is_signed_by
from lowkey.secagg.session import VERSION, Session, be32
from lowkey.types import ClientId

SIGNATURE_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class Advert:
    """Stage 0, member to all: fresh public keys, and the digest of the seed of its own mask."""

    sender: ClientId
    sealing_key: bytes
    mask_key: bytes
    seed_digest: bytes
    signature: bytes

    def __post_init__(self) -> None:
        sizes = [len(self.sealing_key), len(self.mask_key), len(self.seed_digest), len(self.signature)]
        if sizes != [KEY_BYTES, KEY_BYTES, 32, SIGNATURE_BYTES]:
            raise InvalidInput(f"an advert has fields of {sizes} bytes; they must have 32, 32, 32 and 64")


@dataclass(frozen=True, kw_only=True)
class SealedShares:
    """Stage 1, member to its neighbours: for each neighbour a share of both secrets, which nobody else can read."""

    sealed: dict[ClientId, bytes] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """Stage 2, server to member: who delivered shares (ascending), and the shares for this member, by sender."""

    sharers: tuple[ClientId, ...]
    sealed: dict[ClientId, bytes] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """Stage 3, member to all: its signature under what it was told about adverts, sharers and survivors."""

    sender: ClientId
    signature: bytes


@dataclass(frozen=True, kw_only=True)
class Revealed:
    """Stage 4, member to server: shares of the seeds of survivors, and of the mask secrets of those who dropped out."""

    seed_shares: dict[ClientId, bytes] = field(repr=False)
    mask_shares: dict[ClientId, bytes] = field(repr=False)


def sign_advert(
    session: Session, identity: Identity, sealing_key: bytes, mask_key: bytes, seed_digest: bytes
) -> Advert:
    """An advert that is valid in this session only."""
    text = _text(session.digest, b"advert", identity.client, sealing_key + mask_key + seed_digest)
    return Advert(
        sender=identity.client,
        sealing_key=sealing_key,
        mask_key=mask_key,
        seed_digest=seed_digest,
        signature=identity.sign(text),
    )


def is_genuine_advert(session: Session, advert: Advert, verify_keys: VerifyKeys) -> bool:
    """Whether an enrolled member of the roster signed the advert for exactly this session."""
    payload = advert.sealing_key + advert.mask_key + advert.seed_digest
    return (
        advert.sender in session
        and advert.sender in verify_keys
        and _is_signed(session.digest, b"advert", advert.sender, payload, advert.signature, verify_keys[advert.sender])
    )


def sign_view(session: Session, identity: Identity, view: bytes) -> Confirmation:
    """A signature under a view: see :func:`view_digest`."""
    signature = identity.sign(_text(session.digest, b"confirm", identity.client, view))
    return Confirmation(sender=identity.client, signature=signature)


def is_genuine_confirmation(session: Session, confirmation: Confirmation, view: bytes, verify_keys: VerifyKeys) -> bool:
    """Whether the sender confirms exactly this view."""
    sender = confirmation.sender
    return sender in verify_keys and _is_signed(
        session.digest, b"confirm", sender, view, confirmation.signature, verify_keys[sender]
    )


def adverts_digest(adverts: Sequence[Advert]) -> bytes:
    """32 bytes that stand for a list of adverts; every field has a fixed size, so no two lists look alike."""
    fields = (be32(a.sender) + a.sealing_key + a.mask_key + a.seed_digest + a.signature for a in adverts)
    return hashlib.sha256(b"".join(fields)).digest()


def view_digest(adverts: bytes, sharers: Sequence[ClientId], survivors: Sequence[ClientId]) -> bytes:
    """What a member was told: digest of the adverts, who delivered shares, whose vectors are in the sum."""
    told = adverts + be32(len(sharers), *sharers) + be32(len(survivors), *survivors)
    return hashlib.sha256(told).digest()


def seed_digest(seed: bytes) -> bytes:
    """Lets the server check a recovered seed; tells nothing about 32 random bytes."""
    return hashlib.sha256(b"seed|" + seed).digest()


def _text(session: bytes, stage: bytes, sender: ClientId, payload: bytes) -> bytes:
    """The session's digest stands for version, run, round, attempt, roster, thresholds and terms."""
    return b"|".join((VERSION, stage, session + be32(sender) + hashlib.sha256(payload).digest()))


@lru_cache(maxsize=4096)
def _is_signed(
    session: bytes, stage: bytes, sender: ClientId, payload: bytes, signature: bytes, verify_key: bytes
) -> bool:
    """Results are cached, since all of this is public: many clients in one process check each signature once."""
    return is_signed_by(verify_key, _text(session, stage, sender, payload), signature)
