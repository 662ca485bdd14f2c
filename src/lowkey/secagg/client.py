"""A member's five steps: advertise, share, mask, confirm, reveal.

Each step takes the state that the step before it returned, and what the server sent. It returns the next state and what
to send. A state is a value: keep only the newest, in memory or as ``encode(MemberState, state)``, and forget the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np

from lowkey.errors import InvalidInput, ProtocolViolation
from lowkey.graphs import checks_needed
from lowkey.rng import BitSource, subset
from lowkey.secagg import shamir
from lowkey.secagg.keys import (
    KEY_BYTES,
    NONCE_BYTES,
    Identity,
    VerifyKeys,
    agreement_key,
    is_usable,
    pair_key,
    public_key,
    random_bytes,
    seal,
    self_key,
    unseal,
)
from lowkey.secagg.masks import apply_masks, keep_bits, scalar_mask
from lowkey.secagg.messages import (
    Advert,
    Confirmation,
    Delivery,
    Masked,
    Revealed,
    SealedShares,
    Voucher,
    adverts_digest,
    commit,
    is_genuine_advert,
    is_genuine_confirmation,
    is_vouched,
    seed_digest,
    sign_advert,
    sign_revealed,
    sign_shares,
    sign_vector,
    sign_view,
    view_digest,
)
from lowkey.secagg.session import Session, is_ascending
from lowkey.types import ClientId, Words

_log = logging.getLogger(__name__)


class Stage(IntEnum):
    """The last step that a member has taken."""

    ADVERTISED = 0
    SHARED = 1
    MASKED = 2
    CONFIRMED = 3
    FINISHED = 4


@dataclass(frozen=True, kw_only=True)
class MemberState:
    """All that a member must remember within one attempt. Secret, except for its repr.

    Guarantees
    ----------
    Each step drops the secrets that later steps do not need; after ``reveal`` none is left. (Python cannot overwrite
    memory: what was dropped stays there until it is used again.)
    """

    session: Session
    advert: Advert
    stage: Stage = Stage.ADVERTISED
    sealing_secret: bytes = field(default=b"", repr=False)
    mask_secret: bytes = field(default=b"", repr=False)
    seed: bytes = field(default=b"", repr=False)
    sealing_keys: dict[ClientId, bytes] = field(default_factory=dict, repr=False)
    shares: dict[ClientId, bytes] = field(default_factory=dict, repr=False)
    mask_keys: dict[ClientId, bytes] = field(default_factory=dict, repr=False)
    adverts: bytes = b""
    owners: tuple[ClientId, ...] = ()
    advertisers: tuple[ClientId, ...] = ()
    sharers: tuple[ClientId, ...] = ()
    survivors: tuple[ClientId, ...] = ()

    @property
    def me(self) -> ClientId:
        """Whose state this is."""
        return self.advert.sender


def advertise(session: Session, identity: Identity, source: BitSource) -> tuple[MemberState, Advert]:
    """Stage 0: draw fresh secrets, and publish their public keys and digest, signed.

    Call it once for each run, round and attempt: repeating one gives the server two vectors of this member to compare.
    In a random graph, who will hold shares follows from the identity and the session, so that a server that invites a
    member again and again sees the same holders.

    Parameters
    ----------
    session : Session
        Made by the client from its own settings and from the round, attempt and roster that the server sent.
    identity : Identity
        Signing key under which the others know this client.
    source : BitSource
        Secret bits.
    """
    if identity.client not in session:
        raise InvalidInput(f"client {identity.client} is not on the roster of this session")
    sealing_secret, mask_secret, seed = (random_bytes(source, KEY_BYTES) for _ in range(3))
    draw = identity.draw(session) if session.graph == "random" else b""
    keys = public_key(sealing_secret), public_key(mask_secret)
    advert = sign_advert(session, identity, *keys, seed_digest(seed), draw)
    state = MemberState(
        session=session, advert=advert, sealing_secret=sealing_secret, mask_secret=mask_secret, seed=seed
    )
    return state, advert


def share(
    state: MemberState,
    advertisers: Sequence[ClientId],
    adverts: Sequence[Advert],
    verify_keys: VerifyKeys,
    identity: Identity,
    source: BitSource,
) -> tuple[MemberState, SealedShares]:
    """Stage 1: check the adverts of all to whom it is joined; give its holders sealed shares and commitments.

    Parameters
    ----------
    advertisers : sequence of ClientId
        Everybody who goes on, this member included.
    adverts : sequence of Advert
        Of this member's holders among them, and of those that have drawn it, in order of sender.

    Guarantees
    ----------
    The member continues only with at least ``min_survivors`` distinct members of the roster, and with all its holders
    among them, all enrolled, all of whom signed for an equal session. Keys with which no secret can be agreed on are
    refused here, before privacy is spent.
    """
    _require_stage(state, Stage.ADVERTISED)
    session, me, advertisers = state.session, state.me, tuple(advertisers)
    _require_members("adverts", advertisers, session.roster, session, me)
    points, owners = _require_peers(state, advertisers, adverts, verify_keys)
    present = {advert.sender: advert for advert in adverts}
    own = agreement_key(state.sealing_secret)
    keys = {peer: pair_key(session, b"seal", own, me, present[peer].sealing_key, peer) for peer in present}
    seed_shares, mask_shares = (
        shamir.split(secret, points.values(), session.shares_needed, source)
        for secret in (state.seed, state.mask_secret)
    )
    sealed, commitments = {}, {}
    for peer in sorted(points.keys() & present.keys()):
        both = seed_shares[points[peer]] + mask_shares[points[peer]]
        sealed[peer] = seal(session, keys[peer], me, peer, random_bytes(source, NONCE_BYTES), both)
        commitments[peer] = _commit_both(both)
    after = replace(
        state,
        stage=Stage.SHARED,
        sealing_secret=b"",
        sealing_keys={peer: keys[peer] for peer in owners},
        mask_keys={peer: advert.mask_key for peer, advert in present.items()},
        adverts=adverts_digest(adverts),
        owners=owners,
        advertisers=advertisers,
    )
    return after, sign_shares(session, identity, sealed, commitments)


def check_delivery(state: MemberState, delivery: Delivery) -> None:
    """Before stage 2: refuse what ``mask`` would refuse, at no cost. Call it before privacy is spent."""
    _require_stage(state, Stage.SHARED)
    _require_members("sharers", delivery.sharers, state.advertisers, state.session, state.me)
    owners = _owners(state, delivery)
    if not sorted(delivery.sealed) == sorted(delivery.commitments) == owners:
        raise ProtocolViolation(
            f"client {state.me} got shares from others than the {len(owners)} clients whose holder it is; it leaves "
            "this attempt"
        )


def mask(
    state: MemberState, delivery: Delivery, vector: Words, identity: Identity, proof: bytes = b""
) -> tuple[MemberState, Words, Masked]:
    """Stage 2: open the neighbours' shares, and mask and sign the vector.

    Parameters
    ----------
    vector : Words
        uint32, shape (length,), each number below 2^bits. It is not changed.
    proof : bytes
        What the member proves about the vector; it is signed and sent with it.

    Guarantees
    ----------
    The result is uniform modulo 2^bits for everyone who lacks this member's seed, or the secrets of its neighbours
    that delivered shares (Bonawitz et al. 2017, Section 4). Record that privacy is spent *before* sending it.

    Shares that cannot be opened, or do not fit their commitment, are left out and the log names their owner. The member
    stays: without them others can recover less, not more.
    """
    check_delivery(state, delivery)
    session, me = state.session, state.me
    _require_vector(vector, session)
    opened = {
        peer: unseal(session, state.sealing_keys[peer], peer, me, delivery.sealed[peer])
        for peer in _owners(state, delivery)
    }
    shares = {
        peer: both
        for peer, both in opened.items()
        if both is not None and len(both) == 2 * shamir.SHARE_BYTES and _commit_both(both) == delivery.commitments[peer]
    }
    for peer in sorted(opened.keys() - shares.keys()):
        _log.warning("the shares of client %d do not open or do not fit its commitment; client %d stays", peer, me)
    added, subtracted = _mask_keys(state, delivery)
    masked = vector.copy()
    apply_masks(masked, add=added, subtract=subtracted)
    keep_bits(masked, session.bits)
    after = replace(
        state, stage=Stage.MASKED, mask_secret=b"", seed=b"", sealing_keys={}, shares=shares, sharers=delivery.sharers
    )  # fmt: skip
    told = view_digest(state.advertisers, delivery.sharers, ())
    return after, masked, sign_vector(session, identity, told, state.adverts, masked, proof)


def blinding(state: MemberState, delivery: Delivery) -> int:
    """Before stage 2: an integer of which the server learns the sum over all survivors, by ``unmask``.

    Guarantees
    ----------
    As for a masked vector: it is uniform, modulo any number of up to 256 bits, for everyone who lacks the keys. Give
    it to nobody: it is the secret of a commitment.
    """
    _require_stage(state, Stage.SHARED)
    added, subtracted = _mask_keys(state, delivery)
    return scalar_mask(add=added, subtract=subtracted)


def _owners(state: MemberState, delivery: Delivery) -> list[ClientId]:
    """The members whose shares are in a delivery."""
    sharers = set(delivery.sharers)
    return [owner for owner in state.owners if owner in sharers]


def _mask_keys(state: MemberState, delivery: Delivery) -> tuple[list[bytes], list[bytes]]:
    """Keys of the masks that this member adds and subtracts."""
    session, me = state.session, state.me
    own = agreement_key(state.mask_secret)
    peers = state.mask_keys.keys() & set(delivery.sharers)
    keys = {peer: pair_key(session, b"mask", own, me, state.mask_keys[peer], peer) for peer in peers}
    added = [self_key(session, me, state.seed), *(keys[peer] for peer in peers if me < peer)]
    return added, [keys[peer] for peer in peers if me > peer]


def confirm(state: MemberState, survivors: Sequence[ClientId], identity: Identity) -> tuple[MemberState, Confirmation]:
    """Stage 3: sign the list of survivors, together with everything that the member was told before.

    Guarantees
    ----------
    The member signs one list per attempt, of at least ``min_survivors`` sharers with this member among them.
    """
    _require_stage(state, Stage.MASKED)
    survivors = tuple(survivors)
    _require_members("survivors", survivors, state.sharers, state.session, state.me)
    view = view_digest(state.advertisers, state.sharers, survivors)
    return replace(state, stage=Stage.CONFIRMED, survivors=survivors), sign_view(state.session, identity, view)


def reveal(
    state: MemberState,
    confirmations: Iterable[Confirmation],
    verify_keys: VerifyKeys,
    identity: Identity,
    source: BitSource,
    vouchers: Mapping[ClientId, Voucher] | None = None,
) -> tuple[MemberState, Revealed]:
    """Stage 4: once enough members confirm the same list, reveal the shares that unmask the sum, and forget them.

    Parameters
    ----------
    source : BitSource
        Secret bits, drawn after the confirmations are there: in a random graph they say which of them are checked.
    vouchers : mapping of ClientId to Voucher, or None
        Of survivors whose shares this member holds; needed in a random graph.

    Guarantees
    ----------
    The member reveals one share for each owner: of its seed if the owner survived, of its mask secret if it did not.
    It never reveals both, and nothing unless at least ``min_survivors`` survivors signed the very view that this
    member signed. In a random graph it checks as many of them, drawn at random, as make it certain up to 2⁻⁹⁶ that no
    other view has as many; and it reveals nothing of a survivor without a voucher that this one masked under the same
    lists of advertisers and sharers.
    """
    _require_stage(state, Stage.CONFIRMED)
    session = state.session
    view = view_digest(state.advertisers, state.sharers, state.survivors)
    survivors, checked = set(state.survivors), tuple(confirmations)
    shown = {confirmation.sender for confirmation in checked}
    if session.graph == "random" and len(shown) == len(checked) > 0:
        count = checks_needed(session.members, session.colluders, len(checked))
        checked = tuple(checked[place] for place in subset(source, len(checked), count))
    for confirmation in checked:
        if not is_genuine_confirmation(session, confirmation, view, verify_keys):
            raise ProtocolViolation(f"client {confirmation.sender} does not confirm what client {state.me} was told")
    if strangers := shown - survivors:
        raise ProtocolViolation(f"client {min(strangers)} does not confirm what client {state.me} was told")
    if len(shown) < session.min_survivors:
        raise ProtocolViolation(f"{len(shown)} members confirm the survivors; at least {session.min_survivors} must")
    agreed = survivors
    if session.graph == "random":
        told, vouched = view_digest(state.advertisers, state.sharers, ()), vouchers or {}
        agreed = {
            peer
            for peer in survivors & vouched.keys() & state.shares.keys()
            if is_vouched(session, peer, told, vouched[peer], verify_keys)
        }
        if withheld := survivors.intersection(state.shares) - agreed:
            _log.warning("client %d keeps its shares of %d survivors without a voucher", state.me, len(withheld))
    revealed = sign_revealed(
        session,
        identity,
        seed_shares={peer: both[: shamir.SHARE_BYTES] for peer, both in state.shares.items() if peer in agreed},
        mask_shares={peer: both[shamir.SHARE_BYTES :] for peer, both in state.shares.items() if peer not in survivors},
    )
    return replace(state, stage=Stage.FINISHED, shares={}), revealed


def _require_peers(
    state: MemberState, advertisers: tuple[ClientId, ...], adverts: Sequence[Advert], verify_keys: VerifyKeys
) -> tuple[dict[ClientId, int], tuple[ClientId, ...]]:
    """Holders of this member's shares, with points, and those whose shares it holds; or refuse the adverts."""
    session, me = state.session, state.me
    points = session.holders_of(me, state.advert.draw)
    senders, known, owners = tuple(advert.sender for advert in adverts), set(advertisers), list[ClientId]()
    if not is_ascending(senders) or me in senders or not set(senders) <= known:
        raise ProtocolViolation("adverts must come from distinct, known other members in ascending order")
    for advert in adverts:
        peer = advert.sender
        if not is_genuine_advert(session, advert, verify_keys):
            raise ProtocolViolation(f"the advert of client {peer} is not signed by an enrolled member for this session")
        if not is_usable(advert.mask_key):  # here, because ``mask`` comes after privacy is spent
            raise ProtocolViolation(f"the mask key of client {peer} is unusable; leave this attempt")
        if me in session.holders_of(peer, advert.draw):
            owners.append(peer)
        elif peer not in points:
            raise ProtocolViolation(f"client {peer} is not joined to client {me}; check the server")
    going = points.keys() & known
    if not going <= set(senders) or len(going) < session.shares_needed:
        raise ProtocolViolation(
            f"client {me} is shown the adverts of {len(going & set(senders))} of its {len(going)} holders that "
            f"advertised; of all, and of at least {session.shares_needed}, they are needed"
        )
    return points, tuple(owners)


def _commit_both(both: bytes) -> bytes:
    """Commitments to the share of the seed and to that of the mask secret."""
    return commit(both[: shamir.SHARE_BYTES]) + commit(both[shamir.SHARE_BYTES :])


def _require_stage(state: MemberState, stage: Stage) -> None:
    if state.stage != stage:
        raise ProtocolViolation(
            f"client {state.me} has {state.stage.name.lower()}; this step comes once, after it has {stage.name.lower()}"
        )


def _require_members(
    what: str, ids: tuple[ClientId, ...], allowed: tuple[ClientId, ...], session: Session, me: ClientId
) -> None:
    """Refuse a list that is unsorted, has repetitions or unknown members, is too short, or lacks this member."""
    if not is_ascending(ids) or not set(ids) <= set(allowed):
        raise ProtocolViolation(f"the {what} must come from distinct, known members in ascending order")
    if len(ids) < session.min_survivors:
        raise ProtocolViolation(f"there are {len(ids)} {what}; at least {session.min_survivors} are needed")
    if me not in ids:
        raise ProtocolViolation(f"client {me} is missing from the {what}")


def _require_vector(vector: Words, session: Session) -> None:
    if vector.dtype != np.uint32 or vector.shape != (session.length,):
        raise InvalidInput(
            f"the vector is {vector.dtype} of shape {vector.shape}; it must be uint32 of shape ({session.length},)"
        )
    if int(vector.max()) >> session.bits:
        raise InvalidInput(f"the vector holds numbers of more than {session.bits} bits; reduce it modulo 2^bits")
