"""Graphs of a secure sum: exact bounds against counting and chance, and the numbers that follow from them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import scipy.stats

from lowkey.errors import InvalidInput
from lowkey.graphs import (
    ATTEMPT_FAILURE,
    CHECK_FAILURE,
    OPENED_FAILURE,
    checks_needed,
    choose_graph,
    make_graph,
    strays,
    trapped,
)


@pytest.mark.parametrize(
    ("members", "colluding", "leaving", "expected"),
    [
        (410, 0.1, 0.05, (39, 27, 3)),
        (410, 0.1, 0.1, (50, 31, 3)),
        (1_000, 0.1, 0.1, (57, 35, 5)),
        (6_000, 0.1, 0.05, (53, 36, 15)),
        (6_000, 0.1, 0.1, (65, 40, 21)),
        (6_000, 0.05, 0.05, (41, 26, 19)),
        (100_000, 0.1, 0.1, (71, 43, 295)),
    ],
)
def test_neighbours_grow_like_the_logarithm_of_members(
    members: int, colluding: float, leaving: float, expected: tuple[int, int, int]
) -> None:
    least, colluders = math.floor((1 - leaving) * members), math.ceil(colluding * members)
    found = make_graph("random", members, least, colluders)
    assert found[1:] == expected
    assert found.failure == ATTEMPT_FAILURE
    assert choose_graph(members, least, colluders) == "random"
    assert make_graph("worst-case", members, least, colluders).failure == 0.0
    assert trapped(members, colluders, *found[1:3]) <= math.log(OPENED_FAILURE / 2)
    assert strays(members, colluders, found.neighbours, members - least)[found.strays :].max() <= math.log(
        OPENED_FAILURE
    )


@pytest.mark.parametrize(("members", "least", "colluders"), [(3, 3, 1), (10, 9, 1), (100, 90, 10), (160, 144, 16)])
def test_small_groups_take_the_graph_that_needs_no_chance(members: int, least: int, colluders: int) -> None:
    assert choose_graph(members, least, colluders) == "worst-case"


def test_what_no_random_graph_bears_is_refused() -> None:
    for numbers in ((8, 6, 4), (30, 21, 12), (60, 41, 22)):
        with pytest.raises(InvalidInput, match="no random graph of"):
            make_graph("random", *numbers)
    with pytest.raises(InvalidInput, match="min_survivors is 5"):
        make_graph("random", 10, 5, 0)


def test_one_member_is_trapped_as_often_as_colluders_hold_its_secret() -> None:
    alone = trapped(410, 41, 39, 20, largest=1)
    exact = scipy.stats.hypergeom.logsf(19, 409, 41, 39) + math.log(369)
    assert alone == pytest.approx(exact, rel=1e-9)


def drawn(rng: np.random.Generator, members: int, holders: int) -> list[set[int]]:
    """Whom each member draws."""
    found = []
    for me in range(members):
        others = rng.choice(members - 1, holders, replace=False)
        found.append({int(other + (other >= me)) for other in others})
    return found


MEMBERS, COLLUDERS, HOLDERS, NEEDED = 10, 2, 5, 4


def is_trapped(graph: list[set[int]], some: tuple[int, ...]) -> bool:
    inside = {*some, *range(COLLUDERS)}
    return all(len(graph[me] & inside) >= NEEDED for me in some)


def test_the_bound_of_trapped_members_is_one() -> None:
    """All sets of at most half of the honest members are tried, in 3,000 graphs; sets are counted at most twice."""
    rng, honest = np.random.default_rng(0), range(COLLUDERS, MEMBERS)
    sets = [some for size in range(1, len(honest) // 2 + 1) for some in itertools.combinations(honest, size)]
    counts = [
        sum(is_trapped(graph, some) for some in sets) for graph in (drawn(rng, MEMBERS, HOLDERS) for _ in range(3_000))
    ]
    expected = math.exp(trapped(MEMBERS, COLLUDERS, HOLDERS, NEEDED))
    spread = float(np.std(counts)) / math.sqrt(len(counts))
    assert np.mean(counts) == pytest.approx(expected, abs=5 * spread)  # the sum of chances is exact; false alarm 6e-7
    assert np.mean(np.array(counts) > 0) <= expected


def test_the_bound_of_strays_is_one() -> None:
    """How often some honest member could be cut off by taking away those that drew it, in 3,000 graphs."""
    rng, members, holders, lost = np.random.default_rng(0), 24, 6, 3
    hits = 0
    for _ in range(3_000):
        graph = drawn(rng, members, holders)
        hits += any(sum(me in graph[other] for other in range(members)) <= lost for me in range(members))
    assert 0.2 < hits / 3_000 <= min(1.0, math.exp(strays(members, 0, holders, lost)[0]))


def test_more_holders_never_make_it_worse() -> None:
    bounds: list[Any] = [trapped(410, 41, 40, needed) for needed in range(20, 36)]
    assert bounds == sorted(bounds, reverse=True)
    few = [strays(410, 41, holders, 20)[0] for holders in range(30, 60, 5)]
    assert few == sorted(few, reverse=True)


@pytest.mark.parametrize(("members", "colluders", "shown"), [(410, 41, 389), (6_000, 600, 5_700), (1_200, 12, 960)])
def test_so_many_checks_leave_no_second_view(members: int, colluders: int, shown: int) -> None:
    """If only half of the members and colluders have confirmed, one of the checked ones is false, but for 2⁻⁹⁶/M."""
    count, true = checks_needed(members, colluders, shown), (members + colluders) // 2
    chances = [scipy.stats.hypergeom.logpmf(n, shown, true, n) for n in (count - 1, count)]
    assert chances[1] <= math.log(CHECK_FAILURE / members) < chances[0]
    assert count < 0.4 * shown


def test_of_few_confirmations_all_are_checked() -> None:
    assert checks_needed(60, 6, 54) == 54
    assert checks_needed(10, 1, 8) == 8
