"""How much noise is left when members drop out, or tell the server their own share of it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.graphs import ATTEMPT_FAILURE, Graph, GraphKind, make_graph


class NoiseShares(NamedTuple):
    """How many members a round needs; fixed and public before the run.

    Attributes
    ----------
    min_survivors : int
        t, members whose vectors must be in the sum.
    honest : int
        κ, how many of them are honest at least, and joined by masks; their shares alone carry all the noise.
    kind : GraphKind
        Which graph of masks that rests on.
    strays : int
        How many honest survivors a server might cut off from the others in a random graph.
    """

    min_survivors: int
    honest: int
    kind: GraphKind = "worst-case"
    strays: int = 0

    @property
    def colluders(self) -> int:
        """How many survivors may tell the server their noise."""
        return self.min_survivors - self.honest - self.strays

    @property
    def failure(self) -> float:
        """The chance, for each attempt, that less noise than promised is in what a server learns."""
        return ATTEMPT_FAILURE if self.kind == "random" else 0.0

    def graph(self, roster: int) -> Graph:
        """Who masks with whom."""
        return make_graph(self.kind, roster, self.min_survivors, self.colluders)


def noise_shares(
    roster: int, *, dropouts: float = 0.1, colluders: float = 0.1, kind: GraphKind = "worst-case"
) -> NoiseShares:
    """The survivors t that a round must have, and the honest shares κ that the noise is scaled to.

    Parameters
    ----------
    roster : int
        M, members of a round.
    dropouts : float
        Fraction of the roster that may drop out, in [0, 1/3): secure aggregation needs two thirds to stay.
    colluders : float
        Fraction of the roster that may tell the server its noise, rounded up to whole members.
    kind : GraphKind
        Which graph of masks.

    Returns
    -------
    NoiseShares
        t = ⌊(1 − dropouts)·M⌋, but more than 2M/3, and κ = t − ⌈colluders·M⌉, less the strays of a random graph.

    Guarantees
    ----------
    When every member adds noise of variance (zS)²/κ and at least t survive, the sum carries at least (zS)² of noise
    that neither the server nor the colluders know. If all M survive, its deviation is √(M/κ) times what is promised.
    """
    checks.at_least("roster", roster, 1)
    checks.fraction("privacy.dropouts", dropouts, include_zero=True)
    checks.fraction("privacy.colluders", colluders, include_zero=True)
    if 3 * dropouts >= 1:
        raise InvalidInput(
            f"privacy.dropouts is {dropouts}; it must be below 1/3: a secure sum needs two thirds of its members"
        )
    leaving, telling = (Fraction(str(value)) for value in (dropouts, colluders))  # 0.07 means 7/100
    min_survivors = max(math.floor((1 - leaving) * roster), 2 * roster // 3 + 1)
    colluding = math.ceil(telling * roster)
    strays = make_graph(kind, roster, min_survivors, colluding).strays if kind == "random" else 0
    honest = min_survivors - colluding - strays
    if honest < 1:
        raise InvalidInput(
            f"no honest share of noise is left in a roster of {roster} with privacy.dropouts = {dropouts} and "
            f"privacy.colluders = {colluders}; lower them, or ask more clients in a round"
        )
    return NoiseShares(min_survivors, honest, kind, strays)
