"""Sums over a random graph: exact with dropouts anywhere, holders that nobody else chooses, small messages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from lowkey import secagg
from lowkey.errors import InvalidInput, ProtocolViolation
from lowkey.graphs import make_graph
from lowkey.secagg import Advert, Confirmation, Masked, Revealed, SealedShares
from tests.secagg.cohort import Cohort, make_session, make_vectors, next_attempt, plain_sum

SESSION = make_session(60, 54, 6, graph="random")


def test_holders_are_others_and_every_set_is_as_likely() -> None:
    """χ² with 58 degrees over 4,000 draws: one seed in a million is a false alarm."""
    session = replace(SESSION, neighbours=21)
    me, counts, points = session.roster[7], dict.fromkeys(session.roster, 0), dict.fromkeys(session.roster, 0)
    for number in range(4_000):
        holders = session.holders_of(me, number.to_bytes(16, "big"))
        assert sorted(holders.values()) == list(range(1, 22))
        assert me not in holders
        for holder, point in holders.items():
            counts[holder] += 1
            points[holder] += point
    assert counts.pop(me) == 0
    expected = 4_000 * 21 / 59
    excess = sum((count - expected) ** 2 for count in counts.values()) / (expected * (1 - 21 / 59)) * 58 / 59
    assert chi2.ppf(5e-7, 58) < excess < chi2.ppf(1 - 5e-7, 58)


def test_a_draw_says_who_holds_and_is_bound_to_session_and_member() -> None:
    one, other = SESSION.roster[:2]
    draw = bytes(range(16))
    assert SESSION.holders_of(one, draw) == SESSION.holders_of(one, draw)
    assert SESSION.holders_of(one, draw) != SESSION.holders_of(one, bytes(16))
    assert SESSION.holders_of(one, draw).keys() != SESSION.holders_of(other, draw).keys()
    assert next_attempt(SESSION).holders_of(one, draw) != SESSION.holders_of(one, draw)


@pytest.mark.parametrize("stage", [0, 1, 2, 3, 4])
def test_the_sum_is_exact_with_dropouts_at_each_stage(stage: int) -> None:
    session = replace(SESSION, round=stage)
    rng = np.random.default_rng(stage)
    gone = rng.choice(session.roster, 6, replace=False).tolist()
    vectors = make_vectors(session)
    cohort = Cohort(session, seed=stage, through_bytes=True)
    living = [u for u in session.roster if u not in gone or stage > 2]
    assert cohort.sum(vectors, {stage: gone}) == plain_sum(session, vectors, living)


def test_dropouts_at_all_stages_together() -> None:
    gone = list(np.random.default_rng(1).choice(SESSION.roster, 6, replace=False))
    vectors, dropouts = make_vectors(SESSION), {0: gone[:1], 1: gone[:2], 2: gone[:4], 3: gone[:5], 4: gone}
    living = [u for u in SESSION.roster if u not in gone[:4]]
    assert Cohort(SESSION, seed=5).sum(vectors, dropouts) == plain_sum(SESSION, vectors, living)


def test_a_member_uploads_what_is_said() -> None:
    """410 members, of which a tenth may collude and a twentieth drop out: less than 8 kB besides the vector."""
    graph = make_graph("random", 410, 389, 41)
    session = make_session(410, 389, 41, graph="random")
    assert session.neighbours == graph.neighbours
    said = secagg.example_messages(session)
    kinds = (
        (Advert, said.advert), (SealedShares, said.shares), (Masked, said.masked), (Confirmation, said.confirmation),
        (Revealed, said.revealed),
    )  # fmt: skip
    assert sum(len(secagg.encode(kind, message)) for kind, message in kinds) < 8_000


def test_a_graph_without_the_numbers_for_it_is_refused() -> None:
    with pytest.raises(InvalidInput, match="do not keep 6 colluders"):
        replace(SESSION, shares_needed=SESSION.shares_needed - 1)
    with pytest.raises(InvalidInput, match="must be below 48"):
        replace(SESSION, colluders=48)
    with pytest.raises(InvalidInput, match="must rise from 2"):
        replace(SESSION, neighbours=60)
    with pytest.raises(InvalidInput, match="graph is 'ring'"):
        replace(SESSION, graph="ring")


def test_adverts_without_a_draw_or_with_one_too_many_are_refused() -> None:
    fixed = make_session(10, 8, 1)
    for session, draw in ((SESSION, b""), (fixed, bytes(16))):
        cohort = Cohort(session)
        cohort.advertise()
        bad = session.roster[0]
        advert = cohort.links.adverts[bad]
        wrong = secagg.messages.sign_advert(
            session, cohort.identities[bad], advert.sealing_key, advert.mask_key, advert.seed_digest, draw
        )
        replies = dict(cohort.links.adverts) | {bad: wrong}
        accepted = secagg.accept_adverts(session, replies, cohort.verify_keys)
        assert bad not in {one.sender for one in accepted}


def test_a_member_that_is_not_shown_all_its_holders_leaves() -> None:
    cohort = Cohort(SESSION)
    cohort.advertise()
    me = SESSION.roster[0]
    shown = cohort.links.shown_to(me)
    holder = next(advert for advert in shown if advert.sender in cohort.links.holders[me])
    told = cohort.links.advertisers
    for adverts in (tuple(advert for advert in shown if advert != holder), ()):
        with pytest.raises(ProtocolViolation, match="is shown the adverts of"):
            secagg.share(
                cohort.states[me], told, adverts, cohort.verify_keys, cohort.identities[me], cohort.source(me, "x")
            )


def test_an_advert_of_somebody_else_is_refused() -> None:
    cohort = Cohort(SESSION)
    cohort.advertise()
    me = SESSION.roster[0]
    shown = cohort.links.shown_to(me)
    stranger = next(a for a in cohort.adverts if a not in shown and a.sender != me)
    adverts = tuple(sorted((*shown, stranger), key=lambda advert: advert.sender))
    with pytest.raises(ProtocolViolation, match=f"client {stranger.sender} is not joined to client {me}"):
        secagg.share(
            cohort.states[me],
            cohort.links.advertisers,
            adverts,
            cohort.verify_keys,
            cohort.identities[me],
            cohort.source(me, "x"),
        )
