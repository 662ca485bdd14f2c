"""The server's side: relay messages, add up vectors, and unmask the sum. Nothing but its presence is trusted.

Replies come by sender, as the transport names it, and each must carry this sender's signature. A member that sends
something unusable counts as dropped out; if too few are left, ``RoundFailed`` is raised and nothing is decoded.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from lowkey.errors import RoundFailed
from lowkey.secagg import shamir
from lowkey.secagg.keys import VerifyKeys, agreement_key, is_usable, pair_key, public_key, self_key
from lowkey.secagg.masks import apply_masks, keep_bits, scalar_mask
from lowkey.secagg.messages import (
    COMMITMENT_BYTES,
    Advert,
    Confirmation,
    Delivery,
    Masked,
    Revealed,
    SealedShares,
    Voucher,
    adverts_digest,
    are_genuine_shares,
    commit,
    is_genuine_advert,
    is_genuine_confirmation,
    is_genuine_revealed,
    seed_digest,
    view_digest,
    vouch,
)
from lowkey.secagg.session import Session
from lowkey.types import ClientId, Words

_log = logging.getLogger(__name__)

Held: TypeAlias = Mapping[ClientId, Mapping[ClientId, bytes]]
"""Shares by who revealed them, and then by whose secret they belong to."""


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


class Links:
    """Who is joined to whom among those that advertised.

    Attributes
    ----------
    session : Session
        The attempt.
    adverts : mapping of ClientId to Advert
        All that were accepted.
    holders : mapping of ClientId to (mapping of ClientId to int)
        Who holds shares of each member's secrets, and at which point.
    owners : mapping of ClientId to (list of ClientId)
        Whose shares each member holds, in order.
    """

    def __init__(self, session: Session, adverts: Sequence[Advert]) -> None:
        self.session, self.adverts = session, {advert.sender: advert for advert in adverts}
        self.holders = {
            sender: {
                holder: point
                for holder, point in session.holders_of(sender, advert.draw).items()
                if holder in self.adverts
            }
            for sender, advert in self.adverts.items()
        }
        self.owners: dict[ClientId, list[ClientId]] = {sender: [] for sender in self.adverts}
        for owner, holders in self.holders.items():
            for holder in holders:
                self.owners[holder].append(owner)

    @property
    def advertisers(self) -> tuple[ClientId, ...]:
        """All that go on, in order."""
        return tuple(self.adverts)

    def peers_of(self, client: ClientId) -> list[ClientId]:
        """With whom a member masks, in order."""
        return sorted({*self.holders[client], *self.owners[client]})

    def shown_to(self, client: ClientId) -> tuple[Advert, ...]:
        """The adverts that a member is shown."""
        return tuple(self.adverts[peer] for peer in self.peers_of(client))


def deliver(
    links: Links, replies: Mapping[ClientId, SealedShares], verify_keys: VerifyKeys
) -> dict[ClientId, Delivery]:
    """After stage 1: what each member that delivered shares to all its holders gets from those whose holder it is."""

    def is_complete(sender: ClientId, reply: SealedShares) -> bool:
        return reply.sealed.keys() == reply.commitments.keys() == links.holders[sender].keys()

    complete = {
        sender: reply
        for sender, reply in sorted(replies.items())
        if sender in links.adverts
        and is_complete(sender, reply)
        and _noted(sender, "set of sealed shares", are_genuine_shares(links.session, sender, reply, verify_keys))
    }
    _require_enough(links.session, len(complete), "delivered shares")
    sharers, deliveries = tuple(complete), {}
    for receiver in sharers:
        owners = [owner for owner in links.owners[receiver] if owner in complete]
        deliveries[receiver] = Delivery(
            sharers=sharers,
            sealed={owner: complete[owner].sealed[receiver] for owner in owners},
            commitments={owner: complete[owner].commitments[receiver] for owner in owners},
        )
    return deliveries


class Tally:
    """Running sum of masked vectors; it needs the memory of one vector, however many members there are.

    Parameters
    ----------
    links, deliveries : Links, mapping of ClientId to Delivery
        What the members were told: who advertised, and what each member that delivered shares gets.
    """

    def __init__(self, links: Links, deliveries: Mapping[ClientId, Delivery]) -> None:
        self.session, self.links, self.deliveries = links.session, links, deliveries
        self.sharers = tuple(deliveries)
        self._told = view_digest(links.advertisers, self.sharers, ())
        self.survivors: tuple[ClientId, ...] = ()
        self.total: Words = np.zeros(links.session.length, np.uint32)
        self.vouchers: dict[ClientId, Voucher] = {}
        self._expected = set(self.sharers)

    def add(self, sender: ClientId, masked: Words, message: Masked, verify_keys: VerifyKeys) -> bool:
        """Add a vector after stage 2; return False, and add nothing, if it is unusable, too late or not expected.

        It is unusable, too, if its sender was told of other adverts or sharers: its masks would not cancel.
        """
        if sender not in self._expected or masked.dtype != np.uint32 or masked.shape != self.total.shape:
            return False
        shown = adverts_digest(self.links.shown_to(sender))
        voucher = vouch(self.session, sender, self._told, shown, masked, message, verify_keys)
        if not _noted(sender, "vector", voucher is not None) or voucher is None:
            return False
        self._expected.remove(sender)
        self.vouchers[sender] = voucher
        self.survivors += (sender,)
        self.total += masked
        return True

    def close(self) -> tuple[ClientId, ...]:
        """End of stage 2: the survivors, whose vectors are in the sum; all of them must confirm the list."""
        self._expected.clear()
        self.survivors = tuple(sorted(self.survivors))
        _require_enough(self.session, len(self.survivors), "sent a masked vector")
        return self.survivors

    @property
    def view(self) -> bytes:
        """What all survivors must confirm."""
        return view_digest(self.links.advertisers, self.sharers, self.survivors)

    def vouchers_for(self, holder: ClientId) -> dict[ClientId, Voucher]:
        """Vouchers of the survivors whose shares a member holds; none where the graph needs none."""
        if self.session.graph != "random":
            return {}
        return {owner: self.vouchers[owner] for owner in self.links.owners[holder] if owner in self.vouchers}


def accept_confirmations(
    tally: Tally, replies: Mapping[ClientId, Confirmation], verify_keys: VerifyKeys
) -> tuple[Confirmation, ...]:
    """After stage 3: the genuine confirmations, to be sent to all members that gave one."""
    view = tally.view
    accepted = tuple(
        confirmation
        for sender, confirmation in sorted(replies.items())
        if sender == confirmation.sender
        and sender in tally.survivors
        and is_genuine_confirmation(tally.session, confirmation, view, verify_keys)
    )
    _require_enough(tally.session, len(accepted), "confirmed the survivors")
    return accepted


class Unmasked(NamedTuple):
    """The sum of the survivors' vectors modulo 2^bits, and of their blindings (:func:`lowkey.secagg.blinding`)."""

    vector: Words
    blinding: int


def unmask(tally: Tally, replies: Mapping[ClientId, Revealed], verify_keys: VerifyKeys) -> Unmasked:
    """After stage 4: what the masks were hiding, summed over the survivors.

    Guarantees
    ----------
    Every recovered secret is checked against its owner's advert: exactly the masks that were added are removed, or the
    round fails. Shares that do not fit their owner's commitment are left out, and the log names who revealed them: a
    secret is recovered whenever enough true shares came. When the round fails, the error names who is to blame. (A
    member can still send any vector, or share something else than its secrets and so make the round fail: masks hide,
    they do not check.)
    """
    session, living, adverts = tally.session, set(tally.survivors), tally.links.adverts
    heard = {
        peer: reply
        for peer, reply in replies.items()
        if peer in living
        and _noted(peer, "set of revealed shares", is_genuine_revealed(session, peer, reply, verify_keys))
    }
    said_seeds = {peer: reply.seed_shares for peer, reply in heard.items()}
    said_masks = {peer: reply.mask_shares for peer, reply in heard.items()}
    seed_shares, mask_shares = _true_shares(tally, said_seeds, _SEED), _true_shares(tally, said_masks, _MASK)
    for peer, reply in sorted(heard.items()):
        false = len(reply.seed_shares) + len(reply.mask_shares) - len(seed_shares[peer]) - len(mask_shares[peer])
        if false:
            _log.warning("client %d revealed %d false shares, which were left out", peer, false)
    subtract: list[bytes] = []
    add: list[bytes] = []
    for client in tally.survivors:
        seed = _recover(tally.links, client, seed_shares, said_seeds)
        if seed_digest(seed) != adverts[client].seed_digest:
            raise _broken_promise(client)
        subtract.append(self_key(session, client, seed))
    for client in set(tally.sharers) - living:
        secret = _recover(tally.links, client, mask_shares, said_masks)
        if public_key(secret) != adverts[client].mask_key:
            raise _broken_promise(client)
        own = agreement_key(secret)
        for peer in living.intersection(tally.links.peers_of(client)):
            key = pair_key(session, b"mask", own, client, adverts[peer].mask_key, peer)
            (subtract if peer < client else add).append(key)  # the survivor had added it if its id is the smaller
    total = tally.total.copy()
    apply_masks(total, add=add, subtract=subtract)
    keep_bits(total, session.bits)
    return Unmasked(total, -scalar_mask(add=add, subtract=subtract))


_SEED, _MASK = slice(0, COMMITMENT_BYTES), slice(COMMITMENT_BYTES, 2 * COMMITMENT_BYTES)
"""Where in a pair of commitments those to seeds and to mask secrets are."""


def _true_shares(tally: Tally, said: Held, half: slice) -> Held:
    """The shares, by who revealed them and whose they are, that fit what their owner committed to."""
    return {
        peer: {
            client: share
            for client, share in shares.items()
            if len(share) == shamir.SHARE_BYTES
            and commit(share) == tally.deliveries[peer].commitments.get(client, b"")[half]
        }
        for peer, shares in said.items()
    }


def _recover(links: Links, client: ClientId, true: Held, said: Held) -> bytes:
    """A client's secret from the true shares that its holders revealed."""
    session, points = links.session, links.holders[client]
    shares = [(point, true[peer][client]) for peer, point in points.items() if peer in true and client in true[peer]]
    if len(shares) < session.shares_needed:
        false = [peer for peer in points if peer in said and client in said[peer].keys() - true[peer].keys()]
        without = [peer for peer in points if peer in said and client not in said[peer]]
        raise RoundFailed(
            f"{len(shares)} shares do not recover a secret of client {client}; {session.shares_needed} are needed. "
            + (f"False ones came from clients {false}. " if false else "")
            + (f"Clients {without} say that it gave them none that fits. " if without else "")
            + "Repeat the round"
        )
    secret = shamir.combine(dict(shares[: session.shares_needed]))
    if secret is None:
        raise _broken_promise(client)
    return secret


def _broken_promise(client: ClientId) -> RoundFailed:
    """Shares that fit the owner's own commitments give another secret than its advert promised."""
    return RoundFailed(
        f"client {client} has shared something else than the secret that it promised; leave it out and repeat the round"
    )


def _noted(sender: ClientId, what: str, genuine: bool) -> bool:
    """Pass on whether a message is genuine; the log names the client in whose name a false one came."""
    if not genuine:
        _log.warning("a forged or damaged %s came in the name of client %d, which counts as dropped out", what, sender)
    return genuine


def _require_enough(session: Session, count: int, what: str) -> None:
    if count < session.min_survivors:
        raise RoundFailed(
            f"{count} of {session.members} members {what}; at least {session.min_survivors} are needed: repeat the "
            "round"
        )
