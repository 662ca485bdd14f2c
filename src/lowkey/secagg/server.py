"""The server's side: relay messages, add up vectors, and unmask the sum. Nothing but its presence is trusted.

Replies come by sender, as the transport names it. A member that sends something unusable counts as dropped out; if too
few are left, ``RoundFailed`` is raised and nothing is decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lowkey.errors import RoundFailed
from lowkey.secagg import shamir
from lowkey.secagg.keys import VerifyKeys, agreement_key, is_usable, pair_key, public_key, self_key
from lowkey.secagg.masks import apply_masks, keep_bits
from lowkey.secagg.messages import (
    Advert,
    Confirmation,
    Delivery,
    Revealed,
    SealedShares,
    adverts_digest,
    is_genuine_advert,
    is_genuine_confirmation,
    seed_digest,
    view_digest,
)
from lowkey.secagg.session import Session
from lowkey.types import ClientId, Words


def accept_adverts(session: Session, replies: Mapping[ClientId, Advert], verify_keys: VerifyKeys) -> tuple[Advert, ...]:
    """After stage 0: the genuine adverts, in order of sender, to be sent to all of them."""
    accepted = tuple(
        advert
        for sender, advert in sorted(replies.items())
        if sender == advert.sender
        and is_genuine_advert(session, advert, verify_keys)
        and is_usable(advert.sealing_key)
        and is_usable(advert.mask_key)
    )
    _require_enough(session, len(accepted), "advertised")
    return accepted


def deliver(
    session: Session, adverts: Sequence[Advert], replies: Mapping[ClientId, SealedShares]
) -> dict[ClientId, Delivery]:
    """After stage 1: what each member that delivered shares to all its neighbours gets from them."""
    advertisers = {advert.sender for advert in adverts}
    complete = {
        sender: reply.sealed
        for sender, reply in sorted(replies.items())
        if sender in advertisers and reply.sealed.keys() == session.neighbours_of(sender).keys() & advertisers
    }
    _require_enough(session, len(complete), "delivered shares")
    sharers = tuple(complete)
    return {
        receiver: Delivery(
            sharers=sharers,
            sealed={
                sender: complete[sender][receiver] for sender in session.neighbours_of(receiver) if sender in complete
            },
        )
        for receiver in sharers
    }


class Tally:
    """Running sum of masked vectors; it needs the memory of one vector, however many members there are.

    Parameters
    ----------
    adverts, sharers : sequence of Advert, iterable of ClientId
        What the members were told: the accepted adverts, and the members that get a delivery.
    """

    def __init__(self, session: Session, adverts: Sequence[Advert], sharers: Iterable[ClientId]) -> None:
        self.session, self.adverts, self.sharers = session, tuple(adverts), tuple(sharers)
        self.survivors: tuple[ClientId, ...] = ()
        self.total: Words = np.zeros(session.length, np.uint32)
        self._expected = set(self.sharers)

    def add(self, sender: ClientId, masked: Words) -> bool:
        """Add a vector after stage 2; return False, and add nothing, if it is unusable, too late or not expected."""
        if sender not in self._expected or masked.dtype != np.uint32 or masked.shape != self.total.shape:
            return False
        self._expected.remove(sender)
        self.survivors += (sender,)
        self.total += masked
        return True

    def close(self) -> tuple[ClientId, ...]:
        """End of stage 2: the survivors, whose vectors are in the sum; all of them must confirm the list."""
        self._expected.clear()
        self.survivors = tuple(sorted(self.survivors))
        _require_enough(self.session, len(self.survivors), "sent a masked vector")
        return self.survivors


def accept_confirmations(
    tally: Tally, replies: Mapping[ClientId, Confirmation], verify_keys: VerifyKeys
) -> tuple[Confirmation, ...]:
    """After stage 3: the genuine confirmations, to be sent to all members that gave one."""
    view = view_digest(adverts_digest(tally.adverts), tally.sharers, tally.survivors)
    accepted = tuple(
        confirmation
        for sender, confirmation in sorted(replies.items())
        if sender == confirmation.sender
        and sender in tally.survivors
        and is_genuine_confirmation(tally.session, confirmation, view, verify_keys)
    )
    _require_enough(tally.session, len(accepted), "confirmed the survivors")
    return accepted


def unmask(tally: Tally, replies: Mapping[ClientId, Revealed]) -> Words:
    """After stage 4: the sum of the survivors' vectors modulo 2^bits.

    Guarantees
    ----------
    Every recovered secret is checked against its owner's advert: exactly the masks that were added are removed, or the
    round fails. (A member can still send any vector, or bad shares that make the round fail: masks hide, they do not
    check.)
    """
    session, living = tally.session, set(tally.survivors)
    adverts = {advert.sender: advert for advert in tally.adverts}
    heard = {peer: reply for peer, reply in replies.items() if peer in living}
    seed_shares = {peer: reply.seed_shares for peer, reply in heard.items()}
    mask_shares = {peer: reply.mask_shares for peer, reply in heard.items()}
    subtract: list[bytes] = []
    add: list[bytes] = []
    for client in tally.survivors:
        seed = _recover(session, client, seed_shares)
        if seed_digest(seed) != adverts[client].seed_digest:
            raise RoundFailed(f"the recovered seed of client {client} is not the one it promised; repeat the round")
        subtract.append(self_key(session, client, seed))
    for client in set(tally.sharers) - living:
        secret = _recover(session, client, mask_shares)
        if public_key(secret) != adverts[client].mask_key:
            raise RoundFailed(f"the recovered mask secret of client {client} does not fit its key; repeat the round")
        own = agreement_key(secret)
        for peer in session.neighbours_of(client).keys() & living:
            key = pair_key(session, b"mask", own, client, adverts[peer].mask_key, peer)
            (subtract if peer < client else add).append(key)  # the survivor had added it if its id is the smaller
    total = tally.total.copy()
    apply_masks(total, add=add, subtract=subtract)
    keep_bits(total, session.bits)
    return total


def _recover(session: Session, client: ClientId, held: Mapping[ClientId, Mapping[ClientId, bytes]]) -> bytes:
    """A client's secret from the shares that its neighbours revealed."""
    points = session.neighbours_of(client)
    shares: dict[int, bytes] = {}
    for peer, point in points.items():
        share = held.get(peer, {}).get(client, b"")
        if len(share) == shamir.SHARE_BYTES and len(shares) < session.shares_needed:
            shares[point] = share
    secret = shamir.combine(shares) if len(shares) == session.shares_needed else None
    if secret is None:
        raise RoundFailed(f"{len(shares)} shares do not recover a secret of client {client}; repeat the round")
    return secret


def _require_enough(session: Session, count: int, what: str) -> None:
    if count < session.min_survivors:
        raise RoundFailed(
            f"{count} of {session.members} members {what}; at least {session.min_survivors} are needed: repeat the "
            "round"
        )
