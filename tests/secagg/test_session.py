from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkey.errors import InvalidInput
from lowkey.graphs import make_graph
from lowkey.secagg import Session, decode, encode
from tests.secagg.cohort import make_session


@pytest.mark.parametrize(
    ("members", "min_survivors", "colluders", "expected"),
    [(100, 90, 10, (32, 22)), (160, 144, 16, (50, 34)), (100, 67, 10, (78, 45)), (3, 3, 1, (2, 2)), (7, 5, 1, (6, 4))],
)
def test_default_graph(members: int, min_survivors: int, colluders: int, expected: tuple[int, int]) -> None:
    assert make_graph("worst-case", members, min_survivors, colluders)[1:3] == expected


@given(data=st.data())
def test_default_graph_satisfies_all_conditions(data: st.DataObject) -> None:
    M = data.draw(st.integers(3, 600))
    t = data.draw(st.integers(2 * M // 3 + 1, M))
    c = data.draw(st.integers(0, M))
    lost = M - t
    if c > 2 * t - M - 2:
        with pytest.raises(InvalidInput, match="colluders"):
            make_graph("worst-case", M, t, c)
        return
    k, T = make_graph("worst-case", M, t, c)[1:3]
    assert k == M - 1 or k % 2 == 0
    assert c + lost < k  # connection
    assert k - lost >= T  # recovery
    assert k + c < 2 * T  # never both
    assert c < 2 * t - M  # one view
    make_session(M, t, c)  # accepts its own default


def test_neighbours_are_mutual_and_points_are_distinct() -> None:
    for session in (make_session(100, 90, 10), make_session(9, 8, 1), make_session(8, 7, 1)):
        for u in session.roster:
            points = session.holders_of(u)
            assert len(points) == len(set(points.values())) == session.neighbours
            assert u not in points
            assert all(1 <= point < session.members for point in points.values())
            assert all(u in session.holders_of(v) for v in points)


def test_graph_stays_connected_without_any_k_minus_1_members() -> None:
    session = make_session(9, 9, 2, neighbours=4, shares_needed=4)
    edges = {u: set(session.holders_of(u)) for u in session.roster}
    for gone in combinations(session.roster, 3):
        left = set(session.roster) - set(gone)
        reached, frontier = set[int](), {min(left)}
        while frontier:
            reached |= frontier
            frontier = {v for u in frontier for v in edges[u]} & left - reached
        assert reached == left, gone


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"roster": tuple(range(9))}, "9 members; 10 were agreed"),
        ({"roster": (*range(9), 8)}, "ascending"),
        ({"roster": (*range(9), 2**32)}, "below 2"),
        ({"min_survivors": 6}, "at least 7"),
        ({"min_survivors": 11}, "at least 7"),
        ({"neighbours": 7}, "even"),
        ({"neighbours": 10}, "even"),
        ({"shares_needed": 8}, "allow 5 to 7"),
        ({"shares_needed": 4}, "allow 5 to 7"),
        ({"colluders": 6}, "lower colluders"),
        ({"colluders": -1}, "at least 0"),
        ({"bits": 7}, "8 … 32"),
        ({"bits": 33}, "8 … 32"),
        ({"length": 0}, "at least 1"),
        ({"terms": b""}, "digest of 32"),
        ({"round": -1}, "round"),
        ({"attempt": 2**32}, "attempt"),
    ],
    ids=str,
)
def test_what_is_unsafe_cannot_be_built(change: dict[str, Any], message: str) -> None:
    session = make_session(10, 8)
    with pytest.raises(InvalidInput, match=message):
        replace(session, **change)


@pytest.mark.parametrize(
    "change",
    [
        {"bits": 8},
        {"bits": 32},
        {"length": 1},
        {"round": 0, "attempt": 0},
        {"round": 2**32 - 1, "attempt": 2**32 - 1},
        {"roster": (*range(9), 2**32 - 1)},
        {"min_survivors": 7, "shares_needed": 5},
        {"shares_needed": 5},
        {"shares_needed": 7},
        {"min_survivors": 10, "neighbours": 2, "shares_needed": 2},
    ],
    ids=str,
)
def test_what_is_just_safe_can_be_built(change: dict[str, Any]) -> None:
    session = replace(make_session(10, 8), **change)
    assert {name: getattr(session, name) for name in change} == change


def test_every_field_is_in_the_digest() -> None:
    session = make_session(10, 8, shares_needed=6)
    changes: list[dict[str, Any]] = [
        {"run": "other"}, {"round": 2}, {"attempt": 1}, {"roster": tuple(range(10))}, {"min_survivors": 9},
        {"colluders": 1}, {"neighbours": 8}, {"shares_needed": 7}, {"bits": 21}, {"length": 51}, {"terms": bytes(32)},
    ]  # fmt: skip
    digests = {replace(session, **change).digest for change in changes}
    assert len(digests | {session.digest}) == len(changes) + 1


def test_session_as_bytes() -> None:
    session = make_session(10, 8)
    data = encode(Session, session)
    assert decode(Session, data) == session
    for wrong in (data[:-1], data + b"\0", b"", b"\xff" * 200):
        with pytest.raises(InvalidInput):
            decode(Session, wrong)
