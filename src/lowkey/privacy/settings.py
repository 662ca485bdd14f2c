"""What is promised to clients, as settings: the ``[privacy]`` table of a configuration, and an argument in Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.privacy.sampling import SAMPLINGS, Sampling, make_sampling

LARGEST_CLIP = 1e6


@dataclass(frozen=True, kw_only=True)
class ClientPrivacy:
    """Client-level differential privacy. Changing anything here changes what is promised to clients.

    Parameters
    ----------
    clip_norm : float
        S, the largest norm of one client's compressed update.
    clip : {"fixed", "adaptive"}
        With "adaptive", ``clip_norm`` is a first guess, and follows the median norm of updates, privately.
    noise_multiplier : float or "auto"
        z, noise of the sum relative to S. "auto" is the least noise that keeps ``epsilon`` over ``rounds``.
    epsilon : float or None
        Target ε for people who see the released models; a run stops before a round that would exceed it.
    delta : float
        δ of the guarantee, below one over the number of clients.
    rounds : int or None
        How many rounds the noise is calibrated for. None means as many as are run.
    sampling : str or None
        How the clients of a round are drawn, by its name in ``SAMPLINGS``. None means "all" when the cohort is
        everybody, otherwise "poisson_padded".
    roster : int or None
        With "secret_poisson", how many clients are expected to be asked in a round. None asks everybody.
    dropouts, colluders : float
        Fractions of a roster that may drop out of a round, and that may tell the server their noise. Noise is scaled
        up for both.
    bits : {16, 20, 24} or None
        Bits of each number on the wire. None means 20, or 24 where nothing is compressed.
    max_contributions : int, "auto" or "unlimited"
        In how many rounds one client's data may be used; afterwards it adds noise only. "auto": what 99.9 % of the
        clients stay below over ``rounds``, or "unlimited" where the number of rounds is not known.
    aggregation : {"plain", "masked"}
        "masked" runs the whole secure aggregation; "plain" adds the same integers openly, which is only for
        simulations.
    """

    clip_norm: float
    clip: Literal["fixed", "adaptive"] = "fixed"
    noise_multiplier: float | Literal["auto"] = "auto"
    epsilon: float | None = None
    delta: float = 1e-5
    rounds: int | None = None
    sampling: str | None = None
    roster: int | None = None
    dropouts: float = 0.1
    colluders: float = 0.1
    bits: Literal[16, 20, 24] | None = None
    max_contributions: int | Literal["auto", "unlimited"] = "auto"
    aggregation: Literal["plain", "masked"] = "plain"

    def __post_init__(self) -> None:
        checks.positive("privacy.clip_norm", self.clip_norm, most=LARGEST_CLIP)
        checks.one_of("privacy.clip", self.clip, ("fixed", "adaptive"))
        if self.noise_multiplier != "auto":
            checks.not_negative("privacy.noise_multiplier", self.noise_multiplier)
        if self.epsilon is not None:
            checks.positive("privacy.epsilon", self.epsilon)
        checks.fraction("privacy.delta", self.delta, include_one=False)
        if self.rounds is not None:
            checks.at_least("privacy.rounds", self.rounds, 1)
        if self.sampling is not None:
            _ = SAMPLINGS[self.sampling]  # refuses names that no sampling has
        if self.roster is not None:
            checks.at_least("privacy.roster", self.roster, 1)
        for name in ("dropouts", "colluders"):
            checks.fraction(f"privacy.{name}", getattr(self, name), include_zero=True, include_one=False)
        checks.one_of("privacy.bits", self.bits, (16, 20, 24, None))
        if self.max_contributions not in ("auto", "unlimited"):
            checks.at_least("privacy.max_contributions", self.max_contributions, 1)  # type: ignore[arg-type]
        checks.one_of("privacy.aggregation", self.aggregation, ("plain", "masked"))

    def sampling_of(self, *, clients: int, cohort: int) -> Sampling:
        """How the rosters of a population are drawn."""
        return make_sampling(self.sampling, population=clients, cohort=cohort, roster=self.roster)

    def resolve(self, *, clients: int, cohort: int, rounds: int | None = None, ratio: float = 1.0) -> ClientPrivacy:
        """The same promise with every open choice made: sampling, noise, bits and limit are numbers and names.

        Parameters
        ----------
        clients, cohort : int
            N, and how many are expected to contribute to a round.
        rounds : int or None
            How many rounds will be run, where that is known.
        ratio : float
            Compression ratio of the codec.
        """
        limit, noise = self.max_contributions, self.noise_multiplier
        bits = self.bits or (20 if ratio < 1 else 24)
        if self.sampling is not None and noise != "auto" and limit != "auto":
            return replace(self, bits=bits)  # as in settings that were resolved before: nothing is computed or imported
        sampling, rounds = self.sampling_of(clients=clients, cohort=cohort), self.rounds or rounds
        if noise == "auto":
            noise = self._calibrated(sampling, rounds)
        if limit == "auto":
            limit = "unlimited" if rounds is None else _likely_limit(sampling, rounds)
        name = self.sampling or sampling.mode
        return replace(self, sampling=name, noise_multiplier=noise, bits=bits, max_contributions=limit)

    def _calibrated(self, sampling: Sampling, rounds: int | None) -> float:
        from lowkey.privacy.calibration import calibrate_noise

        if self.epsilon is None or rounds is None:
            raise InvalidInput(
                "privacy.noise_multiplier is 'auto', which needs privacy.epsilon and the number of rounds; give both, "
                "or the noise itself"
            )
        return calibrate_noise(sampling, epsilon=self.epsilon, delta=self.delta, rounds=rounds)


def _likely_limit(sampling: Sampling, rounds: int) -> int:
    from lowkey.privacy.views import likely_participations

    limit = max(1, likely_participations(rounds, sampling.probability))
    if sampling.probability == 1:  # everybody is asked in every round, and attempts that fail count as well
        limit += max(3, limit // 10)
    return limit
