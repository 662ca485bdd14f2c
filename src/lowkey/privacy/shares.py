"""How much of the noise is there: shares of members who may leave, or who know their own share and subtract it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from lowkey import checks
from lowkey.errors import InvalidInput


class NoiseShares(NamedTuple):
    """What a round needs, fixed and public before the run: any ``honest`` shares carry all the noise."""

    min_survivors: int
    honest: int


def noise_shares(roster: int, *, dropouts: float = 0.1, colluders: float = 0.1) -> NoiseShares:
    """Survivors t that a round must have, and honest shares κ to which noise is scaled.

    Parameters
    ----------
    roster : M, members of a round.
    dropouts : share of the roster that may leave, in [0, 1/3): secure aggregation needs two thirds to stay.
    colluders : share of the roster that may tell the server its noise, rounded up to whole members.

    Returns
    -------
    t = ⌊(1 − dropouts)·M⌋, but more than 2M/3, and κ = t − ⌈colluders·M⌉.

    Guarantees
    ----------
    When every member adds noise of variance (zS)²/κ and at least t survive, the sum carries at least (zS)² of noise
    that neither the server nor the colluders know. All M surviving make its deviation √(M/κ) times the promised.
    """
    checks.at_least("roster", roster, 1)
    checks.fraction("privacy.dropouts", dropouts, include_zero=True)
    checks.fraction("privacy.colluders", colluders, include_zero=True)
    if 3 * dropouts >= 1:
        raise InvalidInput(f"privacy.dropouts is {dropouts}; it must be below 1/3, more cannot leave a secure sum")
    leaving, telling = (Fraction(str(share)) for share in (dropouts, colluders))  # 0.07 means 7/100
    min_survivors = max(math.floor((1 - leaving) * roster), 2 * roster // 3 + 1)
    honest = min_survivors - math.ceil(telling * roster)
    if honest < 1:
        raise InvalidInput(
            f"no honest share of noise is left in a roster of {roster} with privacy.dropouts = {dropouts} and "
            f"privacy.colluders = {colluders}; lower them or take more clients into a round"
        )
    return NoiseShares(min_survivors, honest)
