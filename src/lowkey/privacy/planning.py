"""Whether the signal of a round can be seen in its noise, and what a run costs as the paper counts."""

from __future__ import annotations

import math

from lowkey import checks

ENOUGH_SIGNAL = 0.1
LITTLE_SIGNAL = (
    "a round shows little but noise, and only small server steps (server.rate) add up to something; consider more "
    "clients, smaller m, or privacy of persons (privacy.unit)"
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
