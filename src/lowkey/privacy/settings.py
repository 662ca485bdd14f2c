"""What is promised to clients, as settings: the ``[privacy]`` table of a configuration, and an argument in Python."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, cast

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.graphs import choose_graph
from lowkey.privacy.events import Event, require_delta
from lowkey.privacy.sampling import SAMPLINGS, Sampling, make_sampling
from lowkey.privacy.shares import NoiseShares, noise_shares

LARGEST_CLIP = 1e6
CENTRING_ATTEMPTS = 2  # the release itself, and one attempt that gives no sum
MOMENTS_OF_A_PERSON = 3.0  # what one row says of slope and intercept is shorter, for scores up to 2.8


@dataclass(frozen=True, kw_only=True)
class ClientPrivacy:
    """Differential privacy of clients, or of the persons at them. Changing anything here changes what is promised.

    Parameters
    ----------
    unit : {"client", "person"}
        Who is protected: a client with all its data, or each person at the clients, such as a hospital's patient. With
        "person", a client bounds what each person adds, and adds up persons before it adds noise.
    persons : int or None
        With "person", the public number of persons at all clients together: sums are divided by it, δ must be below one
        over it, and the wire has room for it. More persons than told change nothing about the bound.
    row : str or None
        With "person", where data has no person ids: what one row is, such as "admission". Every row then counts by
        itself, and the promise speaks of it. None needs ids.
    clip_norm : float or None
        S, the largest norm of the compressed update of one client, or of one person. With "normalise" it is 1
        unless it is said, and only a unit of the server's rate.
    clip : {"fixed", "adaptive", "normalise"}
        With "adaptive", ``clip_norm`` is a first guess, and follows the median norm of updates, privately. With
        "normalise", every update gets the norm S, also a shorter one; an update of zeros stays.
    noise_multiplier : float or "auto"
        z, noise of the sum relative to S. "auto" is the least noise that keeps ``epsilon`` over ``rounds`` and
        ``spare_attempts``.
    epsilon : float or None
        Target ε for people who see the released models; a run stops before an attempt that would exceed it.
    spent : float
        How much of ``epsilon`` is left for earlier runs on the same clients, such as statistics for an encoder: an ε at
        the same δ. Noise that is "auto" keeps ``epsilon`` together with it.
    delta : float
        δ of the guarantee, below one over the number of clients (or persons) and at least 1e-12.
    rounds : int or None
        How many rounds the noise is calibrated for. None means as many as are run.
    spare_attempts : int or "auto"
        How many attempts that gave no sum the noise and the limit leave room for: they are paid for like rounds.
        "auto" is a twentieth of the rounds, at least one.
    sampling : str or None
        How the clients of a round are drawn, by its name in ``SAMPLINGS``. None means "all" when the cohort is
        everybody, otherwise "poisson_padded".
    roster : int or None
        With "secret_poisson", how many clients are expected to be asked in a round. None asks everybody.
    dropouts, colluders : float
        Fractions of a roster that may drop out of a round, and that may tell the server their noise. Noise is scaled
        up for both.
    bits : {16, 20, 24, 28} or None
        Bits of each number on the wire. None means 20, or 24 where nothing is compressed, or 28 for persons. Tens of
        thousands of members in one round need 28.
    max_contributions : int, "auto" or "unlimited"
        In how many attempts one client's data may be used; afterwards it adds noise only. "auto": what 99.9 % of the
        clients stay within over ``rounds`` and ``spare_attempts``, or "unlimited" where the number of rounds is not
        known.
    graph : {"worst-case", "random", "auto"}
        Who masks with whom. The worst-case graph bears every choice of dropouts and colluders; in a random one, a
        member has far fewer neighbours, what masks promise fails with a chance of 2⁻⁵² an attempt, which δ bears, and
        noise is a little larger. "auto" is random where that takes at most half as many neighbours. Plain sums have the
        same noise.
    aggregation : {"plain", "masked"}
        "masked" runs the whole secure aggregation; "plain" adds the same integers openly, which is only for
        simulations.
    centring : float
        Share of the budget for round 1, in which everybody contributes to the mean of all features, which a model with
        a centre subtracts. 0 for models without.
    centring_noise : float or "auto"
        z of that release. "auto" follows from ``centring`` and ``epsilon``.
    questions : int
        How often something is asked besides what rounds learn: statistics, and evaluations by clients. Everybody
        answers. A configuration counts them itself.
    asking : float
        Share of the budget for all of them together, with one spare attempt for twenty of them, at least one. Where
        nothing is learned, they have the whole budget.
    asking_noise : float or "auto"
        z of each of these releases. "auto" follows from ``asking`` and ``epsilon``.
    proofs : bool
        Whether every member proves, under its mask, that its vector is no longer than a contribution and its noise
        are; who cannot counts as dropped out. Plain sums are checked directly. Needs the extra "proofs".
    """

    unit: Literal["client", "person"] = "client"
    persons: int | None = None
    row: str | None = None
    clip_norm: float | None = None
    clip: Literal["fixed", "adaptive", "normalise"] = "fixed"
    noise_multiplier: float | Literal["auto"] = "auto"
    epsilon: float | None = None
    spent: float = 0.0
    delta: float = 1e-5
    rounds: int | None = None
    spare_attempts: int | Literal["auto"] = "auto"
    sampling: str | None = None
    roster: int | None = None
    dropouts: float = 0.1
    colluders: float = 0.1
    bits: Literal[16, 20, 24, 28] | None = None
    max_contributions: int | Literal["auto", "unlimited"] = "auto"
    graph: Literal["worst-case", "random", "auto"] = "worst-case"
    aggregation: Literal["plain", "masked"] = "plain"
    centring: float = 0.0
    centring_noise: float | Literal["auto"] = "auto"
    questions: int = 0
    asking: float = 0.1
    asking_noise: float | Literal["auto"] = "auto"
    proofs: bool = False

    def __post_init__(self) -> None:
        checks.one_of("privacy.unit", self.unit, ("client", "person"))
        checks.one_of("privacy.clip", self.clip, ("fixed", "adaptive", "normalise"))
        if self.clip_norm is None:
            if self.clip != "normalise":
                raise InvalidInput(
                    "privacy.clip_norm is None, that is missing: the largest norm of an update; 'lowkey privacy "
                    "clip-norm' finds one on public data, and privacy.clip = 'normalise' needs none"
                )
            object.__setattr__(self, "clip_norm", 1.0)
        checks.positive("privacy.clip_norm", self.norm, most=LARGEST_CLIP)
        if self.noise_multiplier != "auto":
            checks.not_negative("privacy.noise_multiplier", self.noise_multiplier)
        if self.epsilon is not None:
            checks.positive("privacy.epsilon", self.epsilon)
        checks.not_negative("privacy.spent", self.spent)
        if self.spent and self.spent >= (self.epsilon or 0.0):
            raise InvalidInput(
                f"privacy.spent is {self.spent:g}, and privacy.epsilon, which includes it, is {self.epsilon}; nothing "
                "is left: raise privacy.epsilon"
            )
        require_delta(self.delta, "privacy.delta")
        if self.rounds is not None:
            checks.at_least("privacy.rounds", self.rounds, 1)
        if self.spare_attempts != "auto":
            checks.at_least("privacy.spare_attempts", self.spare_attempts, 0)
        if self.sampling is not None:
            _ = SAMPLINGS[self.sampling]  # refuses names that no sampling has
        if self.roster is not None:
            checks.at_least("privacy.roster", self.roster, 1)
        for name in ("dropouts", "colluders"):
            checks.fraction(f"privacy.{name}", getattr(self, name), include_zero=True, include_one=False)
        checks.one_of("privacy.bits", self.bits, (16, 20, 24, 28, None))
        if self.max_contributions not in ("auto", "unlimited"):
            checks.at_least("privacy.max_contributions", self.max_contributions, 1)  # type: ignore[arg-type]
        checks.one_of("privacy.graph", self.graph, ("worst-case", "random", "auto"))
        checks.one_of("privacy.aggregation", self.aggregation, ("plain", "masked"))
        checks.fraction("privacy.centring", self.centring, include_zero=True, include_one=False)
        checks.at_least("privacy.questions", self.questions, 0)
        checks.fraction("privacy.asking", self.asking, include_one=False)
        for name in ("centring_noise", "asking_noise"):
            if (noise := getattr(self, name)) != "auto":
                checks.not_negative(f"privacy.{name}", noise)
        checks.one_of("privacy.proofs", self.proofs, (False, True))
        self._check_unit()

    def _check_unit(self) -> None:
        """Refuse what is not made for the unit that is protected."""
        if self.unit == "client":
            for name in ("persons", "row"):
                if (value := getattr(self, name)) is not None:
                    raise InvalidInput(
                        f"privacy.{name} is {value!r}, which is for privacy.unit = 'person'; leave it out, or set that"
                    )
            return
        if self.persons is None:
            raise InvalidInput(
                "privacy.persons is None, that is missing: privacy.unit = 'person' needs a public number of persons at "
                "all clients together, by which sums are divided"
            )
        checks.at_least("privacy.persons", self.persons, 1)
        if self.row is not None and (self.row == "client" or not self.row.isalpha()):
            raise InvalidInput(f"privacy.row is {self.row!r}; it must be one word for a row, such as 'admission'")
        for name, refused, why in (
            ("clip = 'adaptive'", self.clip == "adaptive", "votes are counted by client; choose a clip norm"),
            (
                "proofs",
                self.proofs,
                "a proof bounds what a client adds, and the sum of its persons has no such bound",
            ),
            ("centring", bool(self.centring), "the mean features are those of clients; use a model without a centre"),
            (
                "sampling",
                self.sampling not in (None, "all"),
                "every client takes part in every round; set federation.cohort to federation.clients",
            ),
        ):
            if refused:
                raise InvalidInput(f"privacy.{name} is not for privacy.unit = 'person': {why}")

    @property
    def protected(self) -> str:
        """The unit in one word, as the promise has it: "client", "person", or what a row is."""
        return self.row or self.unit

    @property
    def persons_by(self) -> Literal["ids", "rows"] | None:
        """How a client tells persons apart; None where it need not."""
        return None if self.unit == "client" else "ids" if self.row is None else "rows"

    @property
    def norm(self) -> float:
        """S, which is never missing."""
        return cast(float, self.clip_norm)

    def shares_of(self, roster: int) -> NoiseShares:
        """How many members of a roster must stay, and whose noise suffices."""
        shares = noise_shares(roster, dropouts=self.dropouts, colluders=self.colluders)
        kind = self.graph
        if kind == "auto":
            kind = "worst-case" if roster < 3 else choose_graph(roster, shares.min_survivors, shares.colluders)
        if kind == "worst-case":
            return shares
        return noise_shares(roster, dropouts=self.dropouts, colluders=self.colluders, kind=kind)

    def sampling_of(self, *, clients: int, cohort: int) -> Sampling:
        """How the rosters of a population are drawn."""
        return make_sampling(self.sampling, population=clients, cohort=cohort, roster=self.roster)

    def resolve(self, *, clients: int, cohort: int, rounds: int | None = None, ratio: float = 1.0) -> ClientPrivacy:
        """The same promise with every open choice made: sampling, noise, spare attempts, bits, limit are settled.

        Parameters
        ----------
        clients, cohort : int
            N, and how many are expected to contribute to a round.
        rounds : int or None
            How many rounds will be run, where that is known.
        ratio : float
            Compression ratio of the codec.
        """
        limit, noise, rounds = self.max_contributions, self.noise_multiplier, self.rounds or rounds
        learns = rounds != 0
        bits = self.bits or (28 if self.unit == "person" else 20 if ratio < 1 else 24)
        spare = self.spare_attempts if rounds is None else spare_attempts(rounds, self.spare_attempts)
        settled = replace(self, bits=bits, spare_attempts=spare)
        centred = not self.centring or self.centring_noise != "auto"
        asked = not self.questions or self.asking_noise != "auto"
        if self.sampling is not None and noise != "auto" and limit != "auto" and centred and asked:
            return settled  # as in settings that were resolved before: nothing is computed or imported
        sampling = self.sampling_of(clients=clients, cohort=cohort)
        attempts = None if rounds is None or spare == "auto" else rounds + spare
        if self.centring:
            settled = replace(settled, centring_noise=self._noise_of_centre(clients))
            attempts = None if attempts is None else attempts - 1  # round 1 is the release of the centre
        if self.questions:
            settled = replace(settled, asking_noise=self._noise_of_asking(clients, learns=learns))
        if noise == "auto":
            noise = settled._calibrated(sampling, attempts, clients) if learns else settled.asking_noise
        if limit == "auto" and attempts is not None:
            limit = _likely_limit(sampling, attempts) if learns else 0
            limit += (CENTRING_ATTEMPTS if self.centring else 0) + self.asking_attempts
        name = self.sampling or sampling.mode
        limit = "unlimited" if limit == "auto" else limit
        return replace(settled, sampling=name, noise_multiplier=noise, max_contributions=limit)

    def _calibrated(self, sampling: Sampling, attempts: int | None, clients: int) -> float:
        from lowkey.privacy.calibration import calibrate_noise

        if self.epsilon is None or attempts is None or attempts < 1:
            raise InvalidInput(
                "privacy.noise_multiplier is 'auto', which needs privacy.epsilon and the number of rounds; give both, "
                "or the noise itself"
            )
        everybody = make_sampling("all", population=clients, cohort=clients)
        beside = self._spent_before(clients)
        if self.centring:
            beside.append(replace(everybody.event(float(self.centring_noise)), count=CENTRING_ATTEMPTS))
        if self.questions:
            beside.append(replace(everybody.event(float(self.asking_noise)), count=self.asking_attempts))
        left = self._left_of_delta(sampling, attempts)
        return calibrate_noise(sampling, epsilon=self.epsilon, delta=left, rounds=attempts, beside=beside)

    def _left_of_delta(self, sampling: Sampling, attempts: int) -> float:
        """δ without the chances that random graphs fail, of these attempts and of all others that are reserved."""
        others = self.asking_attempts * bool(self.questions) + CENTRING_ATTEMPTS * bool(self.centring)
        return self.delta - (attempts + others) * self.shares_of(sampling.roster_size).failure

    def _spent_before(self, clients: int) -> list[Event]:
        """One release by everybody that costs what earlier runs did; for Gaussian noise it composes as they do."""
        from lowkey.privacy.calibration import calibrate_noise

        if not self.spent:
            return []
        everybody = make_sampling("all", population=clients, cohort=clients)
        return [everybody.event(calibrate_noise(everybody, epsilon=self.spent, delta=self.delta, rounds=1))]

    def _noise_of_centre(self, clients: int) -> float:
        """z with which the release of the centre, to which everybody contributes, has its share of the budget."""
        from lowkey.privacy.calibration import calibrate_noise

        if self.centring_noise != "auto":
            return self.centring_noise
        if self.epsilon is None:
            raise InvalidInput(
                "privacy.centring is a share of privacy.epsilon; give that, or privacy.centring_noise itself"
            )
        everybody = make_sampling("all", population=clients, cohort=clients)
        alone = calibrate_noise(everybody, epsilon=self.epsilon, delta=self.delta, rounds=1)
        return alone / math.sqrt(self.centring)

    @property
    def asking_attempts(self) -> int:
        """How many attempts at questions are reserved: each of them, and spare ones."""
        return self.questions + spare_attempts(self.questions)

    def _noise_of_asking(self, clients: int, *, learns: bool) -> float:
        """z with which all questions, which everybody answers, have their share of the budget together."""
        from lowkey.privacy.calibration import calibrate_noise

        if self.asking_noise != "auto":
            return self.asking_noise
        if self.epsilon is None:
            raise InvalidInput(
                "what is asked besides learning has a share of privacy.epsilon; give that, or privacy.asking_noise "
                "itself"
            )
        everybody = make_sampling("all", population=clients, cohort=clients)
        rounds, share = (1, self.asking_attempts / self.asking) if learns else (self.asking_attempts, 1.0)
        beside = [] if learns else self._spent_before(clients)
        left = self.delta if learns else self._left_of_delta(everybody, 0)
        alone = calibrate_noise(everybody, epsilon=self.epsilon, delta=left, rounds=rounds, beside=beside)
        return alone * math.sqrt(share)

    def opening(self) -> ClientPrivacy:
        """The promise of the release of the mean features, of which none is longer than 1."""
        return self._of_everybody(self.centring_noise, CENTRING_ATTEMPTS)

    def of_question(self) -> ClientPrivacy:
        """The promise of a release that answers a question, to which nobody adds a vector longer than 1."""
        return self._of_everybody(self.asking_noise, self.asking_attempts)

    def _of_everybody(self, noise: float | Literal["auto"], limit: int) -> ClientPrivacy:
        """The promise of a release of another kind, to which everybody contributes."""
        return replace(
            self,
            clip="fixed",
            clip_norm=1.0,
            noise_multiplier=noise,
            sampling="all",
            roster=None,
            bits=28,  # enough for everybody at once, however few take part later
            max_contributions=limit,
            centring=0.0,
            centring_noise="auto",
            questions=0,
            asking_noise="auto",
        )

    def calibrating(self) -> ClientPrivacy:
        """The promise of rounds that fit slope and intercept: the same, but for persons with a bound of their own.

        What a person says of slope and intercept is clipped, since its five numbers count against each other.
        """
        return replace(self, clip="fixed", clip_norm=MOMENTS_OF_A_PERSON) if self.unit == "person" else self


def spare_attempts(rounds: int, chosen: int | Literal["auto"] = "auto") -> int:
    """How many attempts are reserved beside so many rounds; "auto" is a twentieth of them, at least one."""
    return math.ceil(rounds / 20) if chosen == "auto" else chosen


def rounds_within(attempts: int, chosen: int | Literal["auto"] = "auto") -> int:
    """The most rounds that, with the attempts reserved beside them, are no more than ``attempts``; 0 if not one."""
    return next((n for n in range(attempts, 0, -1) if n + spare_attempts(n, chosen) <= attempts), 0)


def _likely_limit(sampling: Sampling, attempts: int) -> int:
    from lowkey.privacy.views import likely_participations

    return max(1, likely_participations(attempts, sampling.probability))
