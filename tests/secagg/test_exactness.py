"""The unmasked sum is the plain sum of the survivors, bit for bit, whoever drops out within the limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowkey import secagg
from lowkey.errors import ProtocolViolation, RoundFailed
from tests.secagg.cohort import Cohort, make_session, make_vectors, plain_sum


def survivors(cohort: Cohort, dropouts: Mapping[int, Collection[int]]) -> list[int]:
    """Only those who leave before their vector is sent are missing from the sum."""
    gone = {u for stage in (0, 1, 2) for u in dropouts.get(stage, ())}
    return [u for u in cohort.session.roster if u not in gone]


MIXED = {0: 3, 1: 2, 2: 3, 3: 1, 4: 1}


FULL = {"neighbours": 99, "shares_needed": 67}


@pytest.mark.parametrize(
    ("per_stage", "graph"),
    [(each, {}) for each in ({}, {0: 10}, {1: 10}, {2: 10}, {3: 10}, {4: 10}, MIXED)] + [(MIXED, FULL)],
    ids=str,
)
def test_a_hundred_members_lose_ten_at_any_stage(per_stage: dict[int, int], graph: dict[str, int]) -> None:
    session = make_session(100, 90, 10, **graph)
    waiting = list(session.roster[5::7])  # scattered: neighbours of one another and not
    dropouts = {stage: [waiting.pop() for _ in range(count)] for stage, count in per_stage.items()}
    cohort, vectors = Cohort(session), make_vectors(session)
    assert cohort.sum(vectors, dropouts) == plain_sum(session, vectors, survivors(cohort, dropouts))


def test_ten_neighbours_in_a_row_may_drop_out() -> None:
    session = make_session(100, 90, 10)
    cohort, vectors = Cohort(session), make_vectors(session)
    dropouts = {2: session.roster[40:50]}
    assert cohort.sum(vectors, dropouts) == plain_sum(session, vectors, survivors(cohort, dropouts))


@pytest.mark.parametrize(("members", "least", "colluders"), [(3, 3, 1), (4, 3, 0), (4, 4, 2), (7, 5, 1), (7, 6, 3)])
def test_small_groups(members: int, least: int, colluders: int) -> None:
    session = make_session(members, least, colluders, length=9)
    assert session.neighbours == members - 1
    vectors = make_vectors(session)
    for stage in range(5):
        cohort = Cohort(session)
        dropouts = {stage: session.roster[: members - least]}
        assert cohort.sum(vectors, dropouts) == plain_sum(session, vectors, survivors(cohort, dropouts))


@settings(max_examples=40)
@given(data=st.data())
def test_any_tolerated_dropouts_in_any_group(data: st.DataObject) -> None:
    members = data.draw(st.integers(3, 16))
    least = data.draw(st.integers(2 * members // 3 + 1, members))
    colluders = data.draw(st.integers(0, max(0, 2 * least - members - 2)))
    graph = {}
    wanted = 2 * (members - least) + colluders + 2
    if wanted + wanted % 2 < members:  # a graph with fewer edges than the default
        neighbours = wanted + wanted % 2
        graph = {"neighbours": neighbours, "shares_needed": neighbours - (members - least)}
    bits = data.draw(st.integers(8, 32))
    session = make_session(members, least, colluders, bits=bits, length=5, **graph)
    gone = data.draw(st.lists(st.sampled_from(session.roster), max_size=members - least, unique=True))
    dropouts: dict[int, list[int]] = {}
    for u in gone:
        dropouts.setdefault(data.draw(st.integers(0, 4)), []).append(u)
    cohort = Cohort(session, seed=data.draw(st.integers(0, 2**32)))
    vectors = make_vectors(session, seed=data.draw(st.integers(0, 2**32)))
    assert cohort.sum(vectors, dropouts) == plain_sum(session, vectors, survivors(cohort, dropouts))


def test_every_message_and_state_survives_as_bytes() -> None:
    session = make_session(7, 5, 1)
    cohort, vectors = Cohort(session, through_bytes=True), make_vectors(session)
    dropouts = {1: session.roster[:1], 2: session.roster[3:4]}
    assert cohort.sum(vectors, dropouts) == plain_sum(session, vectors, survivors(cohort, dropouts))


@pytest.mark.parametrize("stage", range(4))
def test_one_survivor_too_few_fails_the_round(stage: int) -> None:
    session = make_session(100, 90, 10)
    cohort = Cohort(session)
    with pytest.raises(RoundFailed, match="89 of 100"):
        cohort.sum(make_vectors(session), {stage: session.roster[::9][:11]})


def test_one_survivor_too_few_is_refused_by_every_client_too() -> None:
    session = make_session(10, 8)
    cohort = Cohort(session)
    cohort.advertise()
    cohort.share()
    cohort.mask(make_vectors(session))
    for u in session.roster[:7]:
        with pytest.raises(ProtocolViolation, match="7 survivors; at least 8"):
            secagg.confirm(cohort.states[u], session.roster[:7], cohort.identities[u])


def test_too_few_shares_fail_the_round() -> None:
    session = make_session(10, 8)
    cohort = Cohort(session)
    with pytest.raises(RoundFailed, match="shares do not recover"):
        cohort.sum(make_vectors(session), {4: session.roster[:5]})


def test_two_members_cannot_hide() -> None:
    for members in (1, 2):
        with pytest.raises(ValueError, match="below 3"):
            make_session(members, members)
