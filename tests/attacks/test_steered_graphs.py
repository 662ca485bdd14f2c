"""A server wants a victim's vector in a random graph of 1,200 members: it has 240 dropouts to choose, and colluders.

It cannot choose the victim's holders, since the victim draws them itself; colluders that all draw the victim get
nothing by it. But it can tell the victim that everybody with whom it masks has dropped out. The victim's vector is then
hidden by its own mask alone, whose seed its holders would reveal, since they were told that the victim survives. So
holders want a voucher: the victim's own signature under the list of sharers that they know.
"""

from __future__ import annotations

import numpy as np
import pytest

from lowkey import secagg
from lowkey.errors import ProtocolViolation
from lowkey.secagg import Delivery, Session, Voucher, shamir
from lowkey.secagg import client as member
from lowkey.secagg.keys import self_key
from lowkey.secagg.masks import apply_masks, keep_bits
from lowkey.secagg.messages import is_vouched, make_voucher, sign_view, view_digest
from lowkey.types import Words
from tests.secagg.cohort import Cohort, make_session, make_vectors

DEFENDS = (
    "In a random graph a holder reveals a share of a survivor's seed only with that survivor's signature under the "
    "lists of advertisers and sharers that the holder knows."
)

VICTIM = 3
SEALED = 12 + 2 * shamir.SHARE_BYTES + 16


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    cohort = Cohort(make_session(1_200, 960, 12, graph="random"))
    cohort.advertise()
    return cohort


def delivery_to(cohort: Cohort, holder: int, sharers: tuple[int, ...], of_victim: secagg.SealedShares) -> Delivery:
    """Only the victim's shares are real: those that do not open are left out, and the holder stays."""
    owners = [owner for owner in cohort.links.owners[holder] if owner in sharers]
    sealed, commitments = dict.fromkeys(owners, bytes(SEALED)), dict.fromkeys(owners, bytes(32))
    if VICTIM in owners:
        sealed[VICTIM], commitments[VICTIM] = of_victim.sealed[holder], of_victim.commitments[holder]
    return Delivery(sharers=sharers, sealed=sealed, commitments=commitments)


def attack(cohort: Cohort, *, hidden: bool) -> tuple[Words | None, Words]:
    """What the server makes of the victim's masked vector, and the vector itself."""
    session, links = cohort.session, cohort.links
    everybody, vector = links.advertisers, make_vectors(session)[VICTIM]
    state, sealed = cohort.take_shares(VICTIM)
    told = tuple(u for u in everybody if not hidden or u == VICTIM or u not in links.peers_of(VICTIM))
    assert len(told) >= session.min_survivors, "the server may leave out so many"
    delivery = delivery_to(cohort, VICTIM, told, sealed)
    after, masked, said = secagg.mask(state, delivery, vector, cohort.identities[VICTIM])
    vouchers = {VICTIM: make_voucher(after.adverts, masked, said)}

    view = view_digest(everybody, everybody, everybody)
    confirmations = tuple(sign_view(session, cohort.identities[u], view) for u in everybody[: session.min_survivors])
    shares = {}
    for holder, point in links.holders[VICTIM].items():
        holding, _ = cohort.take_shares(holder)
        holding, *_ = secagg.mask(
            holding, delivery_to(cohort, holder, everybody, sealed), vector, cohort.identities[holder]
        )
        holding, _ = secagg.confirm(holding, everybody, cohort.identities[holder])
        _, revealed = secagg.reveal(
            holding,
            confirmations,
            cohort.verify_keys,
            cohort.identities[holder],
            cohort.source(holder, "reveal"),
            vouchers,
        )
        if VICTIM in revealed.seed_shares:
            shares[point] = revealed.seed_shares[VICTIM]
    if len(shares) < session.shares_needed:
        return None, vector
    seed = shamir.combine(dict(list(shares.items())[: session.shares_needed]))
    assert seed is not None
    bare = masked.copy()
    apply_masks(bare, subtract=[self_key(session, VICTIM, seed)])
    keep_bits(bare, session.bits)
    return bare, vector


@pytest.mark.usefixtures("quiet")
def test_a_victim_that_was_told_of_other_sharers_is_not_opened(cohort: Cohort, monkeypatch: pytest.MonkeyPatch) -> None:
    assert attack(cohort, hidden=True)[0] is None
    bare, vector = attack(cohort, hidden=False)  # an honest server gets the seed, and pairwise masks stay
    assert bare is not None
    assert not np.array_equal(bare, vector)
    monkeypatch.setattr(member, "is_vouched", lambda *_: True)
    bare, vector = attack(cohort, hidden=True)
    assert bare is not None
    np.testing.assert_array_equal(bare, vector)  # without vouchers the attack works


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR")


def test_nobody_else_chooses_a_members_holders(cohort: Cohort) -> None:
    """Colluders with any draws, and adverts left out, change neither who they are nor how many shares it takes."""
    session, links = cohort.session, cohort.links
    before = session.holders_of(VICTIM, links.adverts[VICTIM].draw)
    friends = [u for u in session.roster if u != VICTIM][:12]
    draws = {}
    for friend in friends:  # each looks for a draw that has the victim among its holders
        draws[friend] = next(
            draw
            for draw in (n.to_bytes(16, "big") for n in range(10_000))
            if VICTIM in session.holders_of(friend, draw)
        )
    assert len(draws) == 12
    assert session.holders_of(VICTIM, links.adverts[VICTIM].draw) == before
    kept = [a for a in cohort.adverts if a.sender not in before or a.sender in friends]  # no honest holder is shown
    assert len(kept) >= session.min_survivors
    with pytest.raises(ProtocolViolation, match="holders that advertised"):
        cohort.take_shares(VICTIM, kept)


def test_a_forged_voucher_is_none(cohort: Cohort) -> None:
    session: Session = cohort.session
    told = view_digest(cohort.links.advertisers, cohort.links.advertisers, ())
    forged = Voucher(content=bytes(32), signature=bytes(64))
    assert not is_vouched(session, VICTIM, told, forged, cohort.verify_keys)


def test_false_confirmations_are_found_although_not_all_are_checked(cohort: Cohort) -> None:
    """Half of the members confirm this view, and the server has made up the others."""
    session, everybody = cohort.session, cohort.links.advertisers
    holder = next(iter(cohort.links.holders[VICTIM]))
    state, _ = cohort.take_shares(holder, stage="confirmations")
    _, of_victim = cohort.take_shares(VICTIM)
    vector = make_vectors(session)[holder]
    delivery = delivery_to(cohort, holder, everybody, of_victim)
    state, *_ = secagg.mask(state, delivery, vector, cohort.identities[holder])
    state, _ = secagg.confirm(state, everybody, cohort.identities[holder])
    view, half = view_digest(everybody, everybody, everybody), session.members // 2
    true = [sign_view(session, cohort.identities[u], view) for u in everybody[:half]]
    false = [sign_view(session, cohort.identities[u], bytes(32)) for u in everybody[half:]]
    for number in range(20):
        with pytest.raises(ProtocolViolation, match="does not confirm"):
            secagg.reveal(
                state,
                true + false,
                cohort.verify_keys,
                cohort.identities[holder],
                cohort.source(holder, f"no {number}"),
            )
