"""The messages between members and server, and the texts that are signed.

Every message of a member is signed by its enrolled key, over session, step, sender and content. Members check adverts
and confirmations, the server checks all five. Sealed shares are also authenticated from member to member, by keys that
come from signed adverts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from lowkey.errors import InvalidInput
from lowkey.secagg.encoding import encode
from lowkey.secagg.keys import KEY_BYTES, NONCE_BYTES, TAG_BYTES, Identity, VerifyKeys, is_signed_by
from lowkey.secagg.session import DRAW_BYTES, VERSION, Session, be32
from lowkey.secagg.shamir import SHARE_BYTES
from lowkey.types import ClientId, Words

SIGNATURE_BYTES = 64
COMMITMENT_BYTES = 16
"""Whoever gives a false share would have to find a second one with the same digest, and could but fail a round."""


@dataclass(frozen=True, kw_only=True)
class Advert:
    """Stage 0, member to those it is joined with: fresh public keys, and the digest of the seed of its own mask.

    In a random graph, ``draw`` says who will hold shares of its secrets; otherwise it is empty.
    """

    sender: ClientId
    sealing_key: bytes
    mask_key: bytes
    seed_digest: bytes
    draw: bytes = b""
    signature: bytes

    def __post_init__(self) -> None:
        sizes = [len(self.sealing_key), len(self.mask_key), len(self.seed_digest), len(self.signature)]
        if sizes != [KEY_BYTES, KEY_BYTES, 32, SIGNATURE_BYTES] or len(self.draw) not in (0, DRAW_BYTES):
            raise InvalidInput(
                f"an advert has fields of {[*sizes, len(self.draw)]} bytes; they must have 32, 32, 32, 64, and 0 or 16"
            )

    @property
    def content(self) -> bytes:
        """What is signed."""
        return self.sealing_key + self.mask_key + self.seed_digest + self.draw


@dataclass(frozen=True, kw_only=True)
class SealedShares:
    """Stage 1, member to its neighbours: for each neighbour a share of both secrets, which nobody else can read.

    Beside it goes a commitment to both shares (see :func:`commit`), for all to see: the neighbour checks what it opens,
    the server what is revealed.
    """

    sealed: dict[ClientId, bytes] = field(repr=False)
    commitments: dict[ClientId, bytes] = field(repr=False)
    signature: bytes


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """Stage 2, server to member: who delivered shares (ascending), and those for this member, by sender."""

    sharers: tuple[ClientId, ...]
    sealed: dict[ClientId, bytes] = field(repr=False)
    commitments: dict[ClientId, bytes] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Masked:
    """Stage 2, member to server: its signature under the masked vector, which travels beside this message.

    ``proof`` is what the member proves about its vector; empty where nothing was agreed. It is signed, too.
    """

    signature: bytes
    proof: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, kw_only=True)
class Voucher:
    """Stage 4, server to holders, in a random graph: that a member masked under the list of sharers they know.

    Digest of its vector, and its signature under that and under what it was told.
    """

    content: bytes
    signature: bytes


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """Stage 3, member to all: its signature under what it was told about adverts, sharers and survivors."""

    sender: ClientId
    signature: bytes


@dataclass(frozen=True, kw_only=True)
class Revealed:
    """Stage 4, member to server: shares of the seeds of survivors, and of the mask secrets of those who dropped out.

    A sharer among the neighbours that is in neither gave this member no share that fits its commitment.
    """

    seed_shares: dict[ClientId, bytes] = field(repr=False)
    mask_shares: dict[ClientId, bytes] = field(repr=False)
    signature: bytes


class Examples(NamedTuple):
    """One message of each kind, as long as they are when nobody drops out, and empty of meaning.

    ``peers`` is with how many others a member masks, on average, and so of how many it gets the adverts.
    """

    advert: Advert
    peers: int
    shares: SealedShares
    delivery: Delivery
    masked: Masked
    confirmation: Confirmation
    vouchers: dict[ClientId, Voucher]
    revealed: Revealed


def example_messages(session: Session) -> Examples:
    """Messages of the size that those of a session have, to count bytes before there are any."""
    signature, member = bytes(SIGNATURE_BYTES), session.roster[0]
    random = session.graph == "random"
    peers = sorted(session.holders_of(member))
    voucher = Voucher(content=bytes(32), signature=signature)
    sealed = dict.fromkeys(peers, bytes(NONCE_BYTES + 2 * SHARE_BYTES + TAG_BYTES))
    commitments = dict.fromkeys(peers, 2 * commit(b""))
    return Examples(
        advert=Advert(
            sender=member,
            sealing_key=bytes(KEY_BYTES),
            mask_key=bytes(KEY_BYTES),
            seed_digest=seed_digest(b""),
            draw=bytes(DRAW_BYTES if random else 0),
            signature=signature,
        ),
        peers=len(peers) if not random else round(len(peers) * (2 - len(peers) / (session.members - 1))),
        shares=SealedShares(sealed=sealed, commitments=commitments, signature=signature),
        delivery=Delivery(sharers=session.roster, sealed=sealed, commitments=commitments),
        masked=Masked(signature=signature),
        confirmation=Confirmation(sender=member, signature=signature),
        vouchers=dict.fromkeys(peers, voucher) if random else {},
        revealed=Revealed(seed_shares=dict.fromkeys(peers, bytes(SHARE_BYTES)), mask_shares={}, signature=signature),
    )


def sign_advert(
    session: Session, identity: Identity, sealing_key: bytes, mask_key: bytes, seed_digest: bytes, draw: bytes = b""
) -> Advert:
    """An advert that is valid in this session only."""
    return Advert(
        sender=identity.client,
        sealing_key=sealing_key,
        mask_key=mask_key,
        seed_digest=seed_digest,
        draw=draw,
        signature=_sign(session, b"advert", identity, sealing_key + mask_key + seed_digest + draw),
    )


def is_genuine_advert(session: Session, advert: Advert, verify_keys: VerifyKeys) -> bool:
    """Whether an enrolled member of the roster signed the advert for exactly this session."""
    if len(advert.draw) != (DRAW_BYTES if session.graph == "random" else 0):
        return False
    return _is_genuine(session, b"advert", advert.sender, advert.content, advert.signature, verify_keys)


def sign_shares(
    session: Session, identity: Identity, sealed: dict[ClientId, bytes], commitments: dict[ClientId, bytes]
) -> SealedShares:
    """Sealed shares that are valid in this session only."""
    signature = _sign(session, b"shares", identity, _both(sealed, commitments))
    return SealedShares(sealed=sealed, commitments=commitments, signature=signature)


def are_genuine_shares(session: Session, sender: ClientId, shares: SealedShares, verify_keys: VerifyKeys) -> bool:
    """Whether the sender signed these shares and commitments for exactly this session."""
    content = _both(shares.sealed, shares.commitments)
    return _is_genuine(session, b"shares", sender, content, shares.signature, verify_keys)


def sign_vector(
    session: Session, identity: Identity, told: bytes, adverts: bytes, masked: Words, proof: bytes = b""
) -> Masked:
    """A signature under a masked vector, a proof about it, and what the member was told.

    That is: a view without survivors, which is the same for all, and the digest of the adverts that it was shown.
    """
    content = told + _vector_digest(adverts, masked, proof)
    return Masked(signature=_sign(session, b"vector", identity, content), proof=proof)


def vouch(
    session: Session,
    sender: ClientId,
    told: bytes,
    adverts: bytes,
    masked: Words,
    message: Masked,
    verify_keys: VerifyKeys,
) -> Voucher | None:
    """What others may be shown of a signed vector; None if its sender did not sign it, or was told anything else."""
    voucher = make_voucher(adverts, masked, message)
    return voucher if is_vouched(session, sender, told, voucher, verify_keys) else None


def make_voucher(adverts: bytes, masked: Words, message: Masked) -> Voucher:
    """What a signed vector and the digest of the adverts that its sender was shown amount to."""
    return Voucher(content=_vector_digest(adverts, masked, message.proof), signature=message.signature)


def is_vouched(session: Session, sender: ClientId, told: bytes, voucher: Voucher, verify_keys: VerifyKeys) -> bool:
    """Whether the sender signed a vector for exactly this session, and masked it under exactly this view."""
    return _is_genuine(session, b"vector", sender, told + voucher.content, voucher.signature, verify_keys)


def sign_view(session: Session, identity: Identity, view: bytes) -> Confirmation:
    """A signature under a view: see :func:`view_digest`."""
    return Confirmation(sender=identity.client, signature=_sign(session, b"confirm", identity, view))


def is_genuine_confirmation(session: Session, confirmation: Confirmation, view: bytes, verify_keys: VerifyKeys) -> bool:
    """Whether the sender confirms exactly this view."""
    return _is_genuine(session, b"confirm", confirmation.sender, view, confirmation.signature, verify_keys)


def sign_revealed(
    session: Session, identity: Identity, seed_shares: dict[ClientId, bytes], mask_shares: dict[ClientId, bytes]
) -> Revealed:
    """Revealed shares that are valid in this session only."""
    signature = _sign(session, b"reveal", identity, _both(seed_shares, mask_shares))
    return Revealed(seed_shares=seed_shares, mask_shares=mask_shares, signature=signature)


def is_genuine_revealed(session: Session, sender: ClientId, revealed: Revealed, verify_keys: VerifyKeys) -> bool:
    """Whether the sender signed these shares for exactly this session."""
    content = _both(revealed.seed_shares, revealed.mask_shares)
    return _is_genuine(session, b"reveal", sender, content, revealed.signature, verify_keys)


def commit(share: bytes) -> bytes:
    """Digest of a share. It tells nothing about a share that one cannot guess, and fits no other that one can find."""
    return hashlib.sha256(b"share|" + share).digest()[:COMMITMENT_BYTES]


def adverts_digest(adverts: Sequence[Advert]) -> bytes:
    """32 bytes that stand for a list of adverts; in one session all have one size, so no two lists look alike."""
    fields = (be32(a.sender) + a.content + a.signature for a in adverts)
    return hashlib.sha256(b"".join(fields)).digest()


def view_digest(advertisers: Sequence[ClientId], sharers: Sequence[ClientId], survivors: Sequence[ClientId]) -> bytes:
    """What a member was told: who advertised, who delivered shares, whose vectors are in the sum (if known)."""
    lists = (be32(len(ids), *ids) for ids in (advertisers, sharers, survivors))
    return hashlib.sha256(b"".join(lists)).digest()


def seed_digest(seed: bytes) -> bytes:
    """Lets the server check a recovered seed; tells nothing about 32 random bytes."""
    return hashlib.sha256(b"seed|" + seed).digest()


def _both(first: dict[ClientId, bytes], second: dict[ClientId, bytes]) -> bytes:
    """Two tables as bytes; each says where it ends, so that nothing can move from one to the other."""
    return encode(dict[ClientId, bytes], first) + encode(dict[ClientId, bytes], second)


def _vector_digest(adverts: bytes, vector: Words, proof: bytes) -> bytes:
    """A vector counts as four little-endian bytes for each number, however it is packed on the wire."""
    return hashlib.sha256(adverts + vector.astype("<u4", copy=False).tobytes() + proof).digest()


def _sign(session: Session, step: bytes, identity: Identity, content: bytes) -> bytes:
    return identity.sign(_text(session.digest, step, identity.client, hashlib.sha256(content).digest()))


def _is_genuine(
    session: Session, step: bytes, sender: ClientId, content: bytes, signature: bytes, verify_keys: VerifyKeys
) -> bool:
    """Whether an enrolled member of the roster signed this content for this step of exactly this session."""
    if sender not in session or sender not in verify_keys:
        return False
    digest = hashlib.sha256(content).digest()
    return _is_signed(session.digest, step, sender, digest, signature, verify_keys[sender])


def _text(session: bytes, step: bytes, sender: ClientId, content: bytes) -> bytes:
    """The session's digest stands for version, run, round, attempt, roster, thresholds and terms."""
    return b"|".join((VERSION, step, session + be32(sender) + content))


@lru_cache(maxsize=1 << 15)
def _is_signed(
    session: bytes, step: bytes, sender: ClientId, content: bytes, signature: bytes, verify_key: bytes
) -> bool:
    """Results are cached, since all of this is public: many clients in one process check each signature once."""
    return is_signed_by(verify_key, _text(session, step, sender, content), signature)
