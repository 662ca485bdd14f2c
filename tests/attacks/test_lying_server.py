"""A server lies to four or five members in every way there is, with the help of one or two of them.

Nothing here is drawn: the server's choices are searched completely, against the real code of the members (see
``lying_server.py``). It gets at most one sum, of as many honest members as was promised, and never both secrets of one
member. So it was before this search was written. What it did find is what happens when a member's state is set back:
members that forgot what they had confirmed signed a second list of survivors, and gave away both secrets of a victim.

The search must be able to fail. It is therefore run again on weakened members, and finds an attack on each.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from lowkey.graphs import make_graph
from lowkey.secagg import MemberState, Revealed, Session, shamir
from lowkey.secagg import client as member
from lowkey.secagg.masks import apply_masks
from lowkey.secagg.messages import view_digest
from lowkey.types import Words
from tests.attacks.lying_server import SPARE, Found, World, count_strategies, every_strategy, play, search

DEFENDS = (
    "A server that may lie, together with c_max members, learns of the others' vectors one sum over at least κ of "
    "them, and nothing else."
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Members say in their logs whose shares they could not open; a lying server makes them say it often."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def make_session(members: int, least: int, colluders: int, **changes: Any) -> Session:
    _, neighbours, needed, _ = make_graph("worst-case", members, least, colluders)
    settings: dict[str, Any] = {
        "run": "attack", "round": 1, "attempt": 0, "roster": tuple(range(members)), "members": members,
        "min_survivors": least, "colluders": colluders, "neighbours": neighbours, "shares_needed": needed,
        "bits": 32, "length": members + SPARE, "terms": bytes(32),
    }  # fmt: skip
    return Session(**(settings | changes))


def search_all(world: World, promised: int | None = None, *, ledger: bool = True) -> tuple[int, dict[int, int]]:
    """Play all strategies: how many there are, and how many gave a sum of how many honest members."""
    session, sums = world.session, dict[int, int]()
    total = 0
    for strategy, alike in every_strategy(world, ledger=ledger):
        known = play(world, strategy, session.min_survivors - session.colluders if promised is None else promised)
        sums[len(known)] = sums.get(len(known), 0) + alike
        total += alike
    return total, sums


@pytest.mark.parametrize(
    ("session", "colluders", "others", "strategies"),
    [
        pytest.param((4, 3, 0), (), {"invited_twice": (0,), "forged": (0,)}, 68_590, id="four, one may drop out"),
        pytest.param((4, 3, 0), (), {"set_back": (0,)}, 330_000, id="four, one shares its secrets twice"),
        pytest.param((4, 4, 1), (3,), {"invited_twice": (0,), "forged": (0,)}, 32, id="four, one colludes"),
        pytest.param((4, 4, 2), (1, 3), {"invited_twice": (0,), "forged": (0,)}, 32, id="four, two collude"),
        pytest.param((5, 4, 1), (4,), {}, 390_625, id="five, one may drop out, one colludes"),
    ],
)
def test_no_strategy_gets_more_than_one_sum(
    session: tuple[int, int, int], colluders: tuple[int, ...], others: dict[str, Any], strategies: int
) -> None:
    members, least, _ = session
    world = World(make_session(*session), colluders, **others)
    total, sums = search_all(world)
    assert total == count_strategies(world) == strategies
    assert set(sums) == {0, *range(least - len(colluders), members - len(colluders) + 1)}  # the honest ones succeed


def test_a_member_that_forgets_what_it_confirmed_gives_both_secrets_of_another() -> None:
    """Item for the ledger of a client: once it has confirmed a view of an attempt, it confirms no other."""
    with pytest.raises(Found, match="both secrets of client"):
        search_all(World(make_session(4, 3, 0)), ledger=False)


def test_one_colluder_more_than_agreed_makes_a_sum_of_too_few() -> None:
    with pytest.raises(Found, match="a sum of clients"):
        search_all(World(make_session(5, 4, 1), (3, 4)))


def test_confirmations_that_nobody_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "is_genuine_confirmation", lambda *_: True)
    with pytest.raises(Found, match="a sum of clients"):
        search_all(World(make_session(4, 3, 0)))


def test_a_view_without_survivors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "view_digest", lambda adverts, sharers, _: view_digest(adverts, sharers, ()))
    with pytest.raises(Found, match="a sum of clients"):
        search_all(World(make_session(4, 3, 0)))


def test_thresholds_below_two_thirds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowkey.secagg.session.smallest_min_survivors", lambda _: 2)
    monkeypatch.setattr("lowkey.secagg.session.allowed_shares", lambda *_: (1, 3))
    monkeypatch.setattr("lowkey.graphs.smallest_min_survivors", lambda _: 2)
    monkeypatch.setattr("lowkey.graphs.allowed_shares", lambda *_: (1, 3))
    low = make_session(4, 2, 0, shares_needed=1)
    with pytest.raises(Found, match="two sums"):
        search_all(World(low), promised=2)


def test_adverts_that_nobody_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server sits between its victim and everybody else."""
    monkeypatch.setattr(member, "is_genuine_advert", lambda *_: True)
    with pytest.raises(Found, match="both secrets of client"):
        search_all(World(make_session(4, 3, 0), forged=(0, 1, 2, 3)))


def test_no_mask_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is called dropped out after its vector has come is laid open."""

    def weak(vector: Words, add: list[bytes], subtract: list[bytes]) -> None:
        apply_masks(vector, add=add[1:], subtract=subtract)

    monkeypatch.setattr(member, "apply_masks", weak)
    with pytest.raises(Found, match=r"a sum of clients \(\d,\) alone|two sums"):
        search_all(World(make_session(4, 3, 0)))


def test_shares_of_both_secrets_of_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    reveal = member.reveal

    def talkative(state: MemberState, *others: Any) -> tuple[MemberState, Revealed]:
        after, revealed = reveal(state, *others)
        seeds = {peer: both[: shamir.SHARE_BYTES] for peer, both in state.shares.items()}
        masks = {peer: both[shamir.SHARE_BYTES :] for peer, both in state.shares.items()}
        return after, replace(revealed, seed_shares=seeds, mask_shares=masks)

    monkeypatch.setattr(member, "reveal", talkative)
    with pytest.raises(Found, match="both secrets of client"):
        search_all(World(make_session(4, 3, 0)))


def test_steps_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "_require_stage", lambda *_: None)
    with pytest.raises(Found, match="takes a step twice"):
        search_all(World(make_session(4, 3, 0)))


def test_random_strategies_against_more_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few, to see that the search of ``make attack`` works: many give a sum, and weakened members are found out."""
    tried, sums = search(math.inf, seed=1, most=100, largest=12)
    assert tried == 100
    assert 10 < sums < 100
    with pytest.raises(Found, match=r"both secrets of client .* of seed 1"):
        search(math.inf, seed=1, most=400, largest=12, ledger=False)
    monkeypatch.setattr(member, "is_genuine_confirmation", lambda *_: True)
    with pytest.raises(Found, match=r"a sum of clients .* of seed 1"):
        search(math.inf, seed=1, most=400, largest=12)


def test_random_strategies_against_random_graphs() -> None:
    """Members draw their holders; the server gets no sum of fewer honest members than promised, less the strays."""
    tried, sums = search(math.inf, seed=2, most=200, largest=24, random_graphs=True)
    assert tried == 200
    assert 20 < sums < 200
    with pytest.raises(Found, match=r"both secrets of client .* of seed 3"):
        search(math.inf, seed=3, most=600, largest=14, ledger=False, random_graphs=True)
