"""A clip norm that follows a quantile of the clients' norms, counted privately beside the measurements.

Every contributor votes whether its measurement was inside the clip norm, in one more coordinate of the vector it sends.
Votes are ±½, so that they cost as little as possible; members that add only noise vote 0. The noise of the round covers
votes and measurements together, so that a round costs what its noise multiplier says and nothing more.

References
----------
Andrew, Thakkar, McMahan and Ramaswamy (2021), *Differentially Private Learning with Adaptive Clipping*, Algorithm 1 and
Theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lowkey import checks
from lowkey.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class AdaptiveClip:
    """How the clip norm moves.

    Parameters
    ----------
    count_std : float
        σ_b > 0, the least noise in the sum of votes; a twentieth of the expected contributors is usual.
    rate : float
        η > 0, how fast the norm moves: by a factor of at most e^η per round, whatever members send.
    quantile : float
        γ in (0, 1), the fraction of contributors whose norm should be inside.
    """

    count_std: float
    rate: float = 0.2
    quantile: float = 0.5

    def __post_init__(self) -> None:
        checks.positive("privacy.adaptive.count_std", self.count_std)
        checks.positive("privacy.adaptive.rate", self.rate)
        checks.fraction("privacy.adaptive.quantile", self.quantile, include_one=False)

    def value_multiplier(self, noise_multiplier: float) -> float:
        """z_Δ = (z⁻² − (2σ_b)⁻²)^(−½): multiplier of the measurements alone, if z is that of measurements and votes.

        References
        ----------
        Andrew et al. (2021), Theorem 1.
        """
        least = noise_multiplier / 2
        if self.count_std <= least:
            raise InvalidInput(
                f"privacy.adaptive.count_std is {self.count_std}; it must be above {least:g}, half the noise multiplier"
            )
        return noise_multiplier / math.sqrt(1 - (least / self.count_std) ** 2)

    def vote(self, value_sensitivity: float, noise_multiplier: float) -> int:
        """Half a vote in grid steps: the largest integer that leaves noise of ``count_std`` or more."""
        if noise_multiplier == 0.0:
            return 1
        vote = math.floor(self.value_multiplier(noise_multiplier) * value_sensitivity / (2 * self.count_std))
        if vote < 1:
            raise InvalidInput(
                f"privacy.adaptive.count_std is {self.count_std}; it must be lower, or votes are lost in rounding"
            )
        return vote

    def update(self, clip_norm: float, count: float, contributors: float) -> float:
        """The next clip norm.

        Parameters
        ----------
        clip_norm : float
            S of the round that has ended.
        count : float
            Noisy sum of its votes of ±½.
        contributors : float
            The *expected* number of votes, a public number.

        References
        ----------
        Andrew et al. (2021), Algorithm 1: C·exp(−η(b − γ)), with b kept within 0 … 1.
        """
        checks.positive("privacy.clip_norm", clip_norm)
        checks.positive("contributors", contributors)
        inside = min(max(count / contributors + 0.5, 0.0), 1.0)  # beyond are only noise and lies
        return clip_norm * math.exp(-self.rate * (inside - self.quantile))
