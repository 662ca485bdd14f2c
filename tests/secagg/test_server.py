"""Whoever sends the server something unusable counts as dropped out; the sum is right or there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lowkey import secagg
from lowkey.errors import RoundFailed
from lowkey.secagg import Identity, SealedShares
from lowkey.secagg.messages import sign_advert
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
        cohort.states[u], replies[u] = secagg.share(
            cohort.states[u], cohort.adverts, cohort.verify_keys, cohort.source(u, "share")
        )
    for sealed in ({}, dict(list(replies[BAD].sealed.items())[1:]), {**replies[BAD].sealed, BAD: b""}):
        deliveries = secagg.deliver(
            SESSION, cohort.adverts, {**replies, BAD: SealedShares(sealed=sealed), 1: replies[BAD]}
        )
        assert list(deliveries) == OTHERS
        assert all(d.sharers == tuple(OTHERS) and BAD not in d.sealed for d in deliveries.values())
    cohort.deliveries = deliveries
    vectors = make_vectors(SESSION)
    cohort.mask(vectors)
    cohort.confirm()
    cohort.reveal()
    assert secagg.unmask(cohort.tally, cohort.revealed).tolist() == plain_sum(SESSION, vectors, OTHERS)


def test_vectors_that_do_not_fit_come_late_or_twice_are_not_added() -> None:
    tally = secagg.Tally(SESSION, (), SESSION.roster)
    good = np.ones(50, np.uint32)
    assert not tally.add(BAD, np.ones(49, np.uint32))
    assert not tally.add(BAD, good.astype(np.int64))
    assert not tally.add(1, good)
    for u in OTHERS:
        assert tally.add(u, good)
        assert not tally.add(u, good)
    assert tally.close() == tuple(OTHERS)
    assert not tally.add(BAD, good)
    assert tally.total.tolist() == [6] * 50
    assert tally.survivors == tuple(OTHERS)


def test_bad_confirmations_are_left_out() -> None:
    cohort = Cohort(SESSION)
    cohort.advertise()
    cohort.share()
    cohort.mask(make_vectors(SESSION))
    replies = {c.sender: c for c in cohort.confirm()}
    for bad in (replace(replies[BAD], signature=bytes(64)), replies[OTHERS[0]]):
        accepted = secagg.accept_confirmations(cohort.tally, {**replies, BAD: bad}, cohort.verify_keys)
        assert [c.sender for c in accepted] == OTHERS


@pytest.mark.parametrize("share", [bytes(33), b"\xff" * 33])
def test_a_false_share_fails_the_round_instead_of_spoiling_the_sum(share: bytes) -> None:
    dead, liar = SESSION.roster[0], SESSION.roster[1]
    for kind in ("seed_shares", "mask_shares"):
        cohort = Cohort(SESSION)
        cohort.sum(make_vectors(SESSION), {2: [dead]})
        truth = cohort.revealed[liar]
        spoilt = replace(truth, **{kind: dict.fromkeys(getattr(truth, kind), share)})
        with pytest.raises(RoundFailed):
            secagg.unmask(cohort.tally, {**cohort.revealed, liar: spoilt})


def test_shares_of_the_wrong_size_and_from_strangers_are_ignored() -> None:
    cohort, vectors = Cohort(SESSION), make_vectors(SESSION)
    truth = cohort.sum(vectors, {2: SESSION.roster[:1]})
    liar = SESSION.roster[1]
    spoilt = replace(cohort.revealed[liar], seed_shares=dict.fromkeys(cohort.revealed[liar].seed_shares, b"short"))
    dead = replace(spoilt, seed_shares=dict.fromkeys(SESSION.roster[1:], bytes(33)))  # as long as true ones
    replies = {**cohort.revealed, liar: spoilt, SESSION.roster[0]: dead, 1: spoilt}
    assert secagg.unmask(cohort.tally, replies).tolist() == truth == plain_sum(SESSION, vectors, SESSION.roster[1:])
