"""With how many others each member of a secure sum masks, and what that rests on: two kinds of graphs, exact bounds.

*worst-case*: everybody is joined to the nearest on a circle. What is promised holds for every choice of dropouts and
colluders; the number of neighbours grows with theirs. *random*: every member draws those who hold shares of its
secrets, by a key of its own. What is promised then holds but for a stated chance, and neighbours grow like log M.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from lowkey import checks
from lowkey.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

GraphKind: TypeAlias = Literal["worst-case", "random"]
USUAL_NEIGHBOURS = 32
"""Just enough for 10 dropouts and 10 colluders among 100 members; more are taken when the thresholds ask for it."""
OPENED_FAILURE = 2.0**-64
"""Chance that the random graph of one opened attempt is a bad one, at most."""
CHECK_FAILURE = 2.0**-96
"""Chance that somebody is cheated by false confirmations among those that are not checked, at most; for each try."""
ATTEMPT_FAILURE = 2.0**-52
"""What an attempt is charged to δ: the server may open 4,000 attempts, and go on with the one that it likes best. 4,096
attempts of a run are 2⁻⁴⁰ together."""
_UNFINISHED = 2.0**-20  # chance that, of so many random dropouts, too many hold shares of one member


class Graph(NamedTuple):
    """Numbers that all members of a secure sum agree on.

    Attributes
    ----------
    kind : GraphKind
        Which graph.
    neighbours : int
        k, how many others hold shares of a member's secrets. It masks with them and, in a random graph, with those who
        drew it.
    shares_needed : int
        T, how many of these shares recover a secret.
    strays : int
        How many honest survivors a server that chooses the dropouts might cut off, but for the chance of failure, so
        that their noise is not in the sum that it learns; 0 in the worst-case graph.
    """

    kind: GraphKind
    neighbours: int
    shares_needed: int
    strays: int

    @property
    def failure(self) -> float:
        """The chance, for each attempt, that what is promised does not hold; it is charged to δ."""
        return ATTEMPT_FAILURE if self.kind == "random" else 0.0


def make_graph(kind: GraphKind, members: int, min_survivors: int, colluders: int) -> Graph:
    """The graph of this kind with the fewest neighbours.

    Parameters
    ----------
    kind : GraphKind
        Which kind.
    members : int
        M, size of the roster.
    min_survivors : int
        t, how many members must stay.
    colluders : int
        c, how many members may share all they know with the server. For a random graph they must not be chosen after
        the members have drawn.

    Raises
    ------
    InvalidInput
        Where no graph of this kind bears so many dropouts and colluders.
    """
    least = smallest_min_survivors(members)
    if not least <= min_survivors <= members:
        raise InvalidInput(f"min_survivors is {min_survivors} of {members}; it must be at least {least}")
    checks.at_least("colluders", colluders, 0)
    make = _random if kind == "random" else _circle
    return make(members, min_survivors, colluders)


def choose_graph(members: int, min_survivors: int, colluders: int) -> GraphKind:
    """The random graph where it takes at most half as many neighbours, otherwise the worst-case one."""
    wanted = min(members - 1, 2 * (members - min_survivors) + colluders + 2)
    if wanted < 2 * USUAL_NEIGHBOURS:
        return "worst-case"
    try:
        drawn = _random(members, min_survivors, colluders)
    except InvalidInput:
        return "worst-case"
    return "random" if 2 * drawn.neighbours <= wanted else "worst-case"


def smallest_min_survivors(members: int) -> int:
    """⌊2M/3⌋ + 1: with fewer, the server could show two halves of the members different lists."""
    if members < 3:
        raise InvalidInput(f"members is {members}; below 3 a sum tells each member the other's vector")
    return 2 * members // 3 + 1


def allowed_shares(members: int, min_survivors: int, colluders: int, neighbours: int) -> tuple[int, int]:
    """Smallest and largest T in the worst case: never both secrets, and recovery."""
    checks.at_least("colluders", colluders, 0)
    return (neighbours + colluders) // 2 + 1, neighbours - (members - min_survivors)


@lru_cache(maxsize=64)
def checks_needed(members: int, colluders: int, shown: int) -> int:
    """How many of the confirmations that it is shown a member checks, drawn at random, in a random graph.

    Two views can only both have more than (M + c)/2 true confirmations each if somebody honest confirms both. If there
    are no more than that among those shown, all that are checked are true with a chance of 2⁻⁹⁶/M at most.
    """
    enough = math.log(CHECK_FAILURE / members)
    most = min((members + colluders) // 2, shown - 1)
    return next(
        (
            count
            for count in range(1, min(shown, most) + 1)
            if float(_choose(most, np.array(count)) - _choose(shown, np.array(count))) <= enough
        ),
        shown,
    )


def _circle(members: int, min_survivors: int, colluders: int) -> Graph:
    """32 neighbours, or as many as the thresholds ask for, or everyone."""
    wanted = 2 * (members - min_survivors) + colluders + 2
    neighbours = min(members - 1, max(USUAL_NEIGHBOURS, wanted + wanted % 2))
    fewest, most = allowed_shares(members, min_survivors, colluders, neighbours)
    if fewest > most:
        raise InvalidInput(
            f"{members} members cannot tolerate {members - min_survivors} dropouts and {colluders} colluders; "
            f"colluders must be at most {max(0, 2 * min_survivors - members - 2)}"
        )
    return Graph("worst-case", neighbours, (fewest + most) // 2, 0)


@lru_cache(maxsize=64)
def _random(members: int, min_survivors: int, colluders: int) -> Graph:
    """The fewest holders for which :func:`trapped` and :func:`strays` keep within the chance of failure."""
    bad, lost = math.log(OPENED_FAILURE / 2), members - min_survivors
    if colluders < 2 * min_survivors - members:  # otherwise two lists of survivors can both be signed by t members
        for drawn in range(2, members):
            needed = drawn - _absent(members, lost, drawn)
            if needed < 2 or trapped(members, colluders, drawn, needed, largest=1) > bad:
                continue
            if trapped(members, colluders, drawn, needed) <= bad:
                return Graph("random", drawn, needed, _strays(members, colluders, drawn, lost, bad))
    raise InvalidInput(
        f"no random graph of {members} members bears {lost} dropouts and {colluders} colluders; set privacy.graph to "
        "'worst-case', or lower them"
    )


def trapped(members: int, colluders: int, drawn: int, needed: int, *, largest: int | None = None) -> float:
    """Logarithm of a bound on the chance that some members depend on nobody but each other and colluders.

    That is: that there is a set of at most half of the honest members (or ``largest``), each of whom has T of its k
    holders in the set or among the colluders. Draws are independent, so it is at most Σ_s C(H, s)·P(s)^s, with P(s) the
    chance that T of k draws from M − 1 others hit s − 1 + c of them. For s = 1 colluders alone have a secret.
    """
    honest = members - colluders
    size = np.arange(1, min(largest or members, honest // 2) + 1)
    inside = _hits(members - 1, colluders + size - 1, drawn, needed)
    return float(np.logaddexp.reduce(_choose(honest, size) + size * inside))


def strays(members: int, colluders: int, drawn: int, lost: int) -> NDArray[np.float64]:
    """Logarithms of bounds on the chance that s members, s = 1, 2, …, are cut off from all other honest survivors.

    For that every honest member that drew one of them must be among the ``lost``, whom the server may choose. Others
    draw one of s with chance q, independently: C(H, s)·P(Binomial(H − s, q) ≤ lost), the latter by Chernoff.
    """
    honest = members - colluders
    size = np.arange(1, honest // 2 + 1)
    others = honest - size
    missed = _choose(members - 1 - size, drawn) - _choose(members - 1, drawn)  # log(1 − q)
    share = np.minimum(lost / others, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        hit = np.log(-np.expm1(missed))
        distance = np.where(share > 0, share * (np.log(share) - hit), 0) + np.where(
            share < 1, (1 - share) * (np.log1p(-share) - missed), 0
        )
    few = np.where(share < -np.expm1(missed), -others * distance, 0.0)
    bounds: NDArray[np.float64] = _choose(honest, size) + few
    return bounds


def _strays(members: int, colluders: int, drawn: int, lost: int, bad: float) -> int:
    bounds = strays(members, colluders, drawn, lost)
    from_here = np.logaddexp.accumulate(bounds[::-1])[::-1]
    safe = np.flatnonzero(from_here <= bad)
    return int(safe[0]) if safe.size else len(bounds)


def _absent(members: int, lost: int, drawn: int) -> int:
    """So many of a member's holders, and no more, are among ``lost`` random dropouts; for all members, but for 2⁻²⁰."""
    for absent in range(min(lost, drawn)):
        if math.log(members) + float(_hits(members - 1, np.array([lost]), drawn, absent + 1)[0]) <= math.log(
            _UNFINISHED
        ):
            return absent
    return min(lost, drawn)


def _hits(others: int, marked: NDArray[np.int_], drawn: int, least: int) -> NDArray[np.float64]:
    """Logarithm of the chance that of ``drawn`` distinct draws from ``others`` at least so many are marked."""
    count = np.arange(least, drawn + 1)
    ways = _choose(marked[:, None], count) + _choose((others - marked)[:, None], drawn - count)
    chance: NDArray[np.float64] = np.logaddexp.reduce(ways, axis=1) - _choose(others, np.array(drawn))
    return np.minimum(chance, 0.0)


def _choose(total: NDArray[np.int_] | int, part: NDArray[np.int_] | int) -> NDArray[np.float64]:
    """Logarithms of binomial coefficients; -∞ where there is no such part."""
    from scipy.special import gammaln  # imported only when needed: nodes that use the worst case need not wait for it

    total, part = np.asarray(total, np.float64), np.asarray(part, np.float64)
    possible = (part >= 0) & (part <= total)
    part = np.where(possible, part, 0)
    ways = gammaln(total + 1) - gammaln(part + 1) - gammaln(np.maximum(total - part, 0) + 1)
    return np.where(possible, ways, -np.inf)
