"""Whoever sends the server something unusable counts as dropped out; the sum is right or there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest

from lowkey import secagg
from lowkey.errors import RoundFailed
from lowkey.rng import BitSource
from lowkey.secagg import Identity, Masked, Revealed, shamir
from lowkey.secagg.messages import (
    adverts_digest,
    commit,
    sign_advert,
    sign_revealed,
    sign_shares,
    sign_vector,
    view_digest,
)
from lowkey.types import Words
from tests.secagg.cohort import Cohort, make_session, make_vectors, plain_sum

SESSION = make_session(7, 5, 1)
BAD = SESSION.roster[2]
OTHERS = [u for u in SESSION.roster if u != BAD]


def test_bad_adverts_are_left_out() -> None:
    cohort = Cohort(SESSION)
    replies = {advert.sender: advert for advert in cohort.advertise()}
    weak = sign_advert(SESSION, cohort.identities[BAD], bytes(32), replies[BAD].mask_key, bytes(32))
    for bad in (replace(replies[BAD], signature=bytes(64)), replies[OTHERS[0]], weak):
        accepted = secagg.accept_adverts(SESSION, {**replies, BAD: bad}, cohort.verify_keys)
        assert [advert.sender for advert in accepted] == OTHERS
    outsider = Identity.fresh(1, cohort.source(1, "outsider"))  # enrolled, but not on the roster
    uninvited = sign_advert(SESSION, outsider, replies[BAD].sealing_key, replies[BAD].mask_key, bytes(32))
    accepted = secagg.accept_adverts(SESSION, {**replies, 1: uninvited}, {**cohort.verify_keys, 1: outsider.verify_key})
    assert [advert.sender for advert in accepted] == list(SESSION.roster)


def test_who_leaves_a_neighbour_without_a_share_is_left_out() -> None:
    cohort = Cohort(SESSION)
    cohort.advertise()
    replies = {}
    for u in SESSION.roster:
        cohort.states[u], replies[u] = cohort.take_shares(u)
    truth = replies[BAD]
    for sealed, commitments in (
        ({}, {}),
        (dict(list(truth.sealed.items())[1:]), truth.commitments),
        (truth.sealed, dict(list(truth.commitments.items())[1:])),
        ({**truth.sealed, BAD: b""}, {**truth.commitments, BAD: b""}),
    ):
        bad = sign_shares(SESSION, cohort.identities[BAD], sealed, commitments)
        deliveries = secagg.deliver(cohort.links, {**replies, BAD: bad, 1: truth}, cohort.verify_keys)
        assert list(deliveries) == OTHERS
        assert all(d.sharers == tuple(OTHERS) and BAD not in d.sealed for d in deliveries.values())
    cohort.deliveries = deliveries
    vectors = make_vectors(SESSION)
    cohort.mask(vectors)
    cohort.confirm()
    cohort.reveal()
    total = secagg.unmask(cohort.tally, cohort.revealed, cohort.verify_keys).vector
    assert total.tolist() == plain_sum(SESSION, vectors, OTHERS)


def test_vectors_that_do_not_fit_come_late_or_twice_are_not_added() -> None:
    cohort = Cohort(SESSION)
    cohort.advertise()
    tally = secagg.Tally(cohort.links, cohort.share())
    good, told = np.ones(50, np.uint32), view_digest(SESSION.roster, SESSION.roster, ())

    def signed_by(client: int, vector: Words) -> Masked:
        shown = adverts_digest(cohort.links.shown_to(client))
        return sign_vector(SESSION, cohort.identities[client], told, shown, vector)

    def add(client: int, vector: Words) -> bool:
        return tally.add(client, vector, signed_by(BAD, vector), cohort.verify_keys)

    assert not add(BAD, np.ones(49, np.uint32))
    assert not add(BAD, good.astype(np.int64))
    assert not add(1, good)
    assert not add(OTHERS[0], good)  # signed by another
    for u in OTHERS:
        signed = signed_by(u, good)
        assert not tally.add(u, 2 * good, signed, cohort.verify_keys)
        assert tally.add(u, good, signed, cohort.verify_keys)
        assert not tally.add(u, good, signed, cohort.verify_keys)
    assert tally.close() == tuple(OTHERS)
    assert not add(BAD, good)
    assert tally.total.tolist() == [6] * 50
    assert tally.survivors == tuple(OTHERS)


def test_the_vector_of_a_member_that_was_told_of_other_sharers_is_not_added() -> None:
    """Somebody on the way took one sharer off its list: its masks would not cancel, and spoil the sum."""
    cohort = Cohort(SESSION)
    cohort.advertise()
    tally = secagg.Tally(cohort.links, cohort.share())
    identity, vector, delivery = cohort.identities[BAD], make_vectors(SESSION)[BAD], cohort.deliveries[BAD]
    other = replace(
        delivery,
        sharers=delivery.sharers[1:],
        sealed={u: s for u, s in delivery.sealed.items() if u != SESSION.roster[0]},
        commitments={u: c for u, c in delivery.commitments.items() if u != SESSION.roster[0]},
    )
    for told, taken in ((other, False), (delivery, True)):
        _, masked, signed = secagg.mask(cohort.states[BAD], told, vector, identity)
        assert tally.add(BAD, masked, signed, cohort.verify_keys) is taken


def test_bad_confirmations_are_left_out() -> None:
    cohort = Cohort(SESSION)
    cohort.advertise()
    cohort.share()
    cohort.mask(make_vectors(SESSION))
    replies = {c.sender: c for c in cohort.confirm()}
    for bad in (replace(replies[BAD], signature=bytes(64)), replies[OTHERS[0]]):
        accepted = secagg.accept_confirmations(cohort.tally, {**replies, BAD: bad}, cohort.verify_keys)
        assert [c.sender for c in accepted] == OTHERS


def spoil(cohort: Cohort, liar: int, share: bytes) -> Revealed:
    """The liar signs what it sends, but every share in it is another."""
    truth = cohort.revealed[liar]
    seeds, masks = (dict.fromkeys(shares, share) for shares in (truth.seed_shares, truth.mask_shares))
    return sign_revealed(SESSION, cohort.identities[liar], seeds, masks)


def after_a_dropout() -> tuple[Cohort, list[int]]:
    """All but the first member survive, and reveal their shares; and the sum."""
    cohort = Cohort(SESSION)
    return cohort, cohort.sum(make_vectors(SESSION), {2: SESSION.roster[:1]})


@pytest.mark.parametrize("share", [bytes(33), b"\xff" * 33, b"short", b"", bytes(34)])
def test_false_shares_are_left_out_and_whoever_revealed_them_is_named(
    share: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Four shares recover a secret. One of six members is gone, one lies about everything: four true ones are left."""
    cohort, truth = after_a_dropout()
    assert not caplog.records
    liar = SESSION.roster[4]
    replies = cohort.revealed | {liar: spoil(cohort, liar, share)}
    assert secagg.unmask(cohort.tally, replies, cohort.verify_keys).vector.tolist() == truth
    assert [r.getMessage() for r in caplog.records] == [f"client {liar} revealed 6 false shares, which were left out"]


def test_too_few_true_shares_fail_the_round_and_name_the_liars(caplog: pytest.LogCaptureFixture) -> None:
    cohort, _ = after_a_dropout()
    liars = list(SESSION.roster[1:4])
    replies = cohort.revealed | {liar: spoil(cohort, liar, bytes(33)) for liar in liars}
    with pytest.raises(RoundFailed, match=r"3 shares do not .* client 10; 4 are needed\. False ones .* \[17, 24\]\."):
        secagg.unmask(cohort.tally, replies, cohort.verify_keys)
    assert [r.getMessage().split(" revealed")[0] for r in caplog.records] == [f"client {liar}" for liar in liars]


def test_revealed_shares_that_are_not_signed_are_not_used(caplog: pytest.LogCaptureFixture) -> None:
    cohort, truth = after_a_dropout()
    victim, other = SESSION.roster[1], SESSION.roster[2]
    for forged in (
        cohort.revealed[other],  # true shares under another name
        replace(cohort.revealed[victim], seed_shares={}),
        replace(cohort.revealed[victim], signature=bytes(64)),
    ):
        caplog.clear()
        replies = cohort.revealed | {victim: forged}
        assert secagg.unmask(cohort.tally, replies, cohort.verify_keys).vector.tolist() == truth
        assert len(caplog.records) == 1
        assert f"set of revealed shares came in the name of client {victim}" in caplog.text


def test_sealed_shares_that_are_not_signed_are_not_used() -> None:
    cohort = Cohort(SESSION)
    cohort.advertise()
    replies = {}
    for u in SESSION.roster:
        _, replies[u] = cohort.take_shares(u)
    truth = replies[BAD]
    swapped = dict(zip(truth.sealed, reversed(truth.sealed.values()), strict=True))
    for forged in (replace(truth, sealed=swapped), replace(truth, commitments=swapped), replies[OTHERS[0]]):
        deliveries = secagg.deliver(cohort.links, {**replies, BAD: forged}, cohort.verify_keys)
        assert list(deliveries) == OTHERS


def hostile_owner(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[dict[int, bytes]], dict[int, bytes]]) -> Cohort:
    """The member BAD changes its shares before it seals them and commits to them; all else is as it should be."""
    cohort, split = Cohort(SESSION), shamir.split
    cohort.advertise()
    hostile = cohort.states[BAD]

    def lie(secret: bytes, points: Iterable[int], needed: int, source: BitSource) -> dict[int, bytes]:
        shares = split(secret, points, needed, source)
        return spoil(shares) if secret in (hostile.seed, hostile.mask_secret) else shares

    monkeypatch.setattr(shamir, "split", lie)
    cohort.share()
    return cohort


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("value", [bytes(33), b"\xff" * 33])
def test_an_owner_that_shares_something_else_is_named(
    monkeypatch: pytest.MonkeyPatch, stays: bool, value: bytes
) -> None:
    cohort = hostile_owner(monkeypatch, lambda shares: dict.fromkeys(shares, value))
    cohort.mask(make_vectors(SESSION), () if stays else [BAD])
    cohort.confirm()
    cohort.reveal()
    with pytest.raises(RoundFailed, match=f"client {BAD} has shared something else"):
        secagg.unmask(cohort.tally, cohort.revealed, cohort.verify_keys)


@pytest.mark.parametrize("spoilt", [2, 3])
def test_an_owner_whose_shares_do_not_fit_its_commitments(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, spoilt: int
) -> None:
    """Two of six neighbours can do without, as four are enough. With three the round fails, and the error says why."""
    monkeypatch.setattr("lowkey.secagg.client.commit", lambda share: bytes(32) if share in false else commit(share))
    false: set[bytes] = set()
    cohort = Cohort(SESSION)
    cohort.advertise()
    split = shamir.split

    def watch(secret: bytes, points: Iterable[int], needed: int, source: BitSource) -> dict[int, bytes]:
        shares = split(secret, points, needed, source)
        if secret == cohort.states[BAD].seed:
            false.update(list(shares.values())[:spoilt])
        return shares

    monkeypatch.setattr(shamir, "split", watch)
    cohort.share()
    monkeypatch.undo()
    vectors = make_vectors(SESSION)
    cohort.mask(vectors)
    victims = [u for u in SESSION.roster if f"client {u} stays" in caplog.text]
    assert len(victims) == spoilt
    assert caplog.text.count(f"the shares of client {BAD} do not open or do not fit") == spoilt
    cohort.confirm()
    cohort.reveal()
    if spoilt == 2:
        total = secagg.unmask(cohort.tally, cohort.revealed, cohort.verify_keys).vector
        assert total.tolist() == plain_sum(SESSION, vectors, SESSION.roster)
    else:
        with pytest.raises(RoundFailed, match=f"3 shares do not recover a secret of client {BAD}") as error:
            secagg.unmask(cohort.tally, cohort.revealed, cohort.verify_keys)
        assert "say that it gave them none that fits" in str(error.value)
        assert all(str(victim) in str(error.value) for victim in victims)


def test_shares_from_strangers_and_from_those_who_dropped_out_are_ignored() -> None:
    cohort, truth = after_a_dropout()
    dead, lies = SESSION.roster[0], dict.fromkeys(SESSION.roster, bytes(33))
    uninvited = sign_revealed(SESSION, cohort.identities[dead], lies, lies)
    replies = {**cohort.revealed, dead: uninvited, 1: uninvited}
    assert secagg.unmask(cohort.tally, replies, cohort.verify_keys).vector.tolist() == truth
    assert truth == plain_sum(SESSION, make_vectors(SESSION), SESSION.roster[1:])
