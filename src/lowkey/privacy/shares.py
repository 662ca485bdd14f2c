"""How much noise is left when members drop out, or tell the server their own share of it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from lowkey import checks
from lowkey.errors import InvalidInput


class NoiseShares(NamedTuple):
    """How many members a round needs; fixed and public before the run.

    Attributes
    ----------
    min_survivors : int
        t, members whose vectors must be in the sum.
    honest : int
        κ, how many of them are honest at least; their shares alone carry all the noise.
    """

    min_survivors: int
    honest: int


def noise_shares(roster: int, *, dropouts: float = 0.1, colluders: float = 0.1) -> NoiseShares:
    """The survivors t that a round must have, and the honest shares κ that the noise is scaled to.

    Parameters
    ----------
    roster : int
        M, members of a round.
    dropouts : float
        Fraction of the roster that may drop out, in [0, 1/3): secure aggregation needs two thirds to stay.
    colluders : float
        Fraction of the roster that may tell the server its noise, rounded up to whole members.

    Returns
    -------
    NoiseShares
        t = ⌊(1 − dropouts)·M⌋, but more than 2M/3, and κ = t − ⌈colluders·M⌉.

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
    honest = min_survivors - math.ceil(telling * roster)
    if honest < 1:
        raise InvalidInput(
            f"no honest share of noise is left in a roster of {roster} with privacy.dropouts = {dropouts} and "
            f"privacy.colluders = {colluders}; lower them, or ask more clients in a round"
        )
    return NoiseShares(min_survivors, honest)
