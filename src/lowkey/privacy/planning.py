"""Before the first round: can a target be reached, with which settings, and at what cost?"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from lowkey import checks
from lowkey.privacy.accounting import Epsilon, released_epsilon
from lowkey.privacy.calibration import calibrate_noise
from lowkey.privacy.events import Event, require_small_delta
from lowkey.privacy.sampling import make_sampling
from lowkey.privacy.settings import spare_attempts as reserved
from lowkey.privacy.shares import NoiseShares, noise_shares
from lowkey.privacy.views import likely_participations, server_epsilon

ENOUGH_SIGNAL = 0.1
LITTLE_SIGNAL = (
    "a round shows little but noise, and only small server steps (server.rate) add up to something; consider more "
    "clients, smaller m, or privacy of persons (privacy.unit)"
)

_RATIOS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
_EVERYBODY_UP_TO = 500
_OVERHEAD_PER_MEMBER = 145  # bytes of keys, sealed shares and their return, each way; an estimate


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Settings that reach a target, what they promise and what they cost.

    Attributes
    ----------
    event : Event
        All attempts of the run as the accountant sees them: sampling, noise, roster M, honest shares κ, and their
        number, ``rounds`` and ``spare_attempts``.
    rounds, spare_attempts, noise_without_spare : int, int, float
        Rounds, attempts that may fail besides, and the noise that would do if none did.
    delta, released, server, participations : float, Epsilon, float, int
        ε for people who see the models, and ε for the server about a client that is asked in ``participations``
        attempts: its limit, more than which only one client in a thousand is asked.
    shares : NoiseShares
        Least survivors t and honest shares κ of a round.
    parameters, ratio, measurements : int, float, int
        Size of the model, the compression ratio, and the numbers that a client sends.
    signal_to_noise : float
        Signal to noise of one number in the sum; see :func:`signal_to_noise`.
    bytes_up_per_client, bytes_up : int
        Upload of one member in one round, and of all in the run; masked vector plus an estimate of what secure
        aggregation adds.
    bytes_down_per_client, bytes_down : int
        Download, by the same estimate; noise-only members need no model.
    paper_megabits : float
        Upload of one enrolled client in the run, as the paper's tables count it.
    """

    event: Event
    rounds: int
    spare_attempts: int
    noise_without_spare: float
    delta: float
    released: Epsilon
    server: float
    participations: int
    shares: NoiseShares
    parameters: int
    ratio: float
    measurements: int
    signal_to_noise: float
    bytes_up_per_client: int
    bytes_up: int
    bytes_down_per_client: int
    bytes_down: int
    paper_megabits: float

    @property
    def feasible(self) -> bool:
        return self.signal_to_noise >= ENOUGH_SIGNAL

    @property
    def verdict(self) -> str:
        """One line on whether the plan is worth running."""
        return feasibility(self.signal_to_noise)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"shares": self.shares._asdict(), "feasible": self.feasible}


def plan(
    *,
    clients: int,
    epsilon: float,
    delta: float,
    parameters: int,
    ratio: float | None = None,
    rounds: int | None = None,
    spare_attempts: int | Literal["auto"] = "auto",
    cohort: int | None = None,
    mode: str | None = None,
    dropouts: float = 0.1,
    colluders: float = 0.1,
    bits: int = 20,
    allow_large_delta: bool = False,
) -> Plan:
    """Settings for a target ε, for people who see the released models.

    What is not given is chosen as follows. With up to 500 clients, everybody contributes to each of 100 rounds:
    sampling few clients gains little. With more, and where ``mode`` samples, a round has 100 contributors (at most half
    of all) and there are 200 rounds, as in the paper. Noise is the least that reaches ε over the rounds and the spare
    attempts. The ratio is the largest of 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01 that leaves a signal-to-noise ratio of 0.1:
    less compression loses less of the update, and more compression is only needed against noise. If no ratio does, it
    is 0.01 and the plan is called doubtful.

    Parameters
    ----------
    clients, epsilon, delta : int, float, float
        N, and the target (ε, δ).
    parameters : int
        n, the number of parameters of the model.
    ratio, rounds, cohort, mode : float or None, int or None, int or None, str or None
        As in a configuration; None lets the plan choose.
    spare_attempts : int or "auto"
        Failed attempts to leave room for, see :class:`ClientPrivacy`.
    dropouts, colluders : float
        Fractions of a roster, see :func:`noise_shares`.
    bits : int
        Bits of one number on the wire.
    """
    require_small_delta(delta, clients, allow_large=allow_large_delta)
    checks.at_least("parameters", parameters, 1)
    checks.at_least("bits", bits, 1)
    if spare_attempts != "auto":
        checks.at_least("spare_attempts", spare_attempts, 0)
    if ratio is not None:
        checks.fraction("ratio", ratio)
    if cohort is None:
        everybody = mode == "all" or (mode is None and clients <= _EVERYBODY_UP_TO)
        cohort = clients if everybody else max(1, min(100, clients // 2))
    sampling = make_sampling(mode, population=clients, cohort=cohort)
    if rounds is None:
        rounds = 100 if sampling.mode == "all" else 200
    spare = reserved(rounds, spare_attempts)
    noise, without = (
        calibrate_noise(sampling, epsilon=epsilon, delta=delta, rounds=count) for count in (rounds + spare, rounds)
    )
    shares = noise_shares(sampling.roster_size, dropouts=dropouts, colluders=colluders)
    event = replace(sampling.event(noise, honest=shares.honest), count=rounds + spare)

    def signal(ratio: float) -> float:
        return signal_to_noise(cohort, noise, math.ceil(ratio * parameters))

    if ratio is None:
        ratio = next((r for r in _RATIOS if signal(r) >= ENOUGH_SIGNAL), _RATIOS[-1])
    measurements = math.ceil(ratio * parameters)
    participations = max(1, likely_participations(rounds + spare, sampling.probability))
    protocol = _OVERHEAD_PER_MEMBER * sampling.roster_size
    up, model = math.ceil(measurements * bits / 8) + protocol, 4 * parameters
    asked = sampling.probability * clients
    return Plan(
        event=event,
        rounds=rounds,
        spare_attempts=spare,
        noise_without_spare=without,
        delta=delta,
        released=released_epsilon([event], delta),
        server=server_epsilon(noise, participations, delta, coin=sampling.coin),
        participations=participations,
        shares=shares,
        parameters=parameters,
        ratio=ratio,
        measurements=measurements,
        signal_to_noise=signal(ratio),
        bytes_up_per_client=up,
        bytes_up=rounds * sampling.roster_size * up,
        bytes_down_per_client=model + protocol,
        bytes_down=rounds * round(asked * model + sampling.roster_size * protocol),
        paper_megabits=paper_megabits(parameters, ratio, rounds, event.sampling_probability),
    )


def signal_to_noise(contributors: float, noise_multiplier: float, measurements: int) -> float:
    """Size of one number of the sum over the noise in it, if all contributions pointed the same way: K / (z √m).

    Clipped vectors of norm S have numbers of about S/√m, of which K add up; noise is zS. The clip norm cancels out.
    """
    checks.positive("contributors", contributors)
    checks.positive("noise multiplier", noise_multiplier)
    checks.at_least("measurements", measurements, 1)
    return contributors / (noise_multiplier * math.sqrt(measurements))


def feasibility(signal: float) -> str:
    """One line on a signal-to-noise ratio, for people about to start a run."""
    figure = f"signal to noise {signal:.3f}"
    if signal >= ENOUGH_SIGNAL:
        return f"feasible: {figure}, at least {ENOUGH_SIGNAL:g}"
    return f"doubtful: {figure}, below {ENOUGH_SIGNAL:g}: {LITTLE_SIGNAL}"


def paper_megabits(parameters: int, ratio: float, rounds: int, sampling_probability: float) -> float:
    """The paper's cost column: expected upload of one enrolled client, 32 bits a number, in 10⁶ bits.

    Kerkouche et al. (2021) label it megabytes; their figures are megabits.
    """
    return ratio * parameters * 32 * rounds * sampling_probability / 1e6
