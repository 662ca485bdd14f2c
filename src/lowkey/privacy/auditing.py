"""What an attacker's guesses prove: lower bounds of ε, to compare with the ε that is claimed.

An audit can show that a mechanism breaks its promise, never that it keeps it. There are two tests:

* *two worlds*: the attacker guesses, many times, whether one client's contribution is in the sum. An ε that does not
  allow so few errors is refuted.
* *one run*: many clients each toss a fair coin whether to contribute, and the attacker guesses those coins that it
  is surest about.

These are statistics of counts only; :mod:`lowkey.simulation.audit` makes the counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import beta, binom

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.privacy.distributions import gaussian_epsilon


@dataclass(frozen=True, kw_only=True)
class TwoWorldBound:
    """Errors in many guesses whether one client contributed, and what they refute.

    Attributes
    ----------
    present, absent : int
        Trials in which the client contributed, and in which it did not.
    missed, false_alarms : int
        Wrong guesses in these trials.
    significance : float
        Upper bound of the chance that the bounds are above the truth.
    mu, epsilon : float
        Lower bounds. These errors are unlikely for a Gaussian mechanism with a smaller shift μ (in standard deviations
        of its noise), and so for the (ε, δ) that it has.
    """

    present: int
    absent: int
    missed: int
    false_alarms: int
    delta: float
    significance: float
    mu: float
    epsilon: float


@dataclass(frozen=True, kw_only=True)
class OneRunBound:
    """Guesses of some of many fair coins, and what they refute.

    Attributes
    ----------
    canaries : int
        Number of coins; each decides whether one client contributes.
    guesses : int
        How many coins are guessed; fixed in advance.
    correct : int
        Guesses that were right.
    significance : float
        Upper bound of the chance that the bound is above the truth.
    epsilon : float
        Lower bound. So many right guesses are unlikely for an (ε, δ)-private mechanism with a smaller ε.
    """

    canaries: int
    guesses: int
    correct: int
    delta: float
    significance: float
    epsilon: float


def rate_upper_bound(count: int, trials: int, significance: float) -> float:
    """An upper bound of a rate; it is below the true rate with at most this probability; Clopper and Pearson (1934)."""
    checks.at_least("trials", trials, 1)
    if not 0 <= count <= trials:
        raise InvalidInput(f"{count} of {trials} trials is not possible; the count must lie in 0 … {trials}")
    return 1.0 if count == trials else float(beta.isf(significance, count + 1, trials - count))


def two_world_bound(
    *, present: int, absent: int, missed: int, false_alarms: int, delta: float, significance: float = 0.05
) -> TwoWorldBound:
    """What errors in trials of two worlds refute, with the significance divided between the two kinds of error.

    With Gaussian noise of shift μ, an attacker with a rate α of false alarms misses at least Φ(Φ⁻¹(1−α) − μ). So
    rates of at most α and β need a shift of at least Φ⁻¹(1−α) − Φ⁻¹(β).

    References
    ----------
    Dong, Roth and Su (2022), *Gaussian Differential Privacy*; as an audit, Nasr et al. (2023), *Tight Auditing of
    Differentially Private Machine Learning*.
    """
    checks.fraction("significance", significance, include_one=False)
    alpha = rate_upper_bound(false_alarms, absent, significance / 2)
    missing = rate_upper_bound(missed, present, significance / 2)
    mu = max(0.0, -float(ndtri(alpha)) - float(ndtri(missing)))
    return TwoWorldBound(
        present=present,
        absent=absent,
        missed=missed,
        false_alarms=false_alarms,
        delta=delta,
        significance=significance,
        mu=mu,
        epsilon=gaussian_epsilon(mu, delta) if mu > 0 else 0.0,
    )


def one_run_p_value(*, canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """The largest probability with which an (ε, δ)-private mechanism allows this many right guesses.

    References
    ----------
    Steinke, Nasr and Jagielski (2023), *Privacy Auditing with One (1) Training Run*, Appendix D.
    """
    if not 0 <= correct <= guesses <= canaries:
        raise InvalidInput(f"{correct} correct of {guesses} guesses about {canaries} canaries is not possible")
    right = 1 / (1 + math.exp(-epsilon))
    lucky = float(binom.sf(correct - 1, guesses, right))
    if correct == 0 or delta == 0:
        return lucky
    just_below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, right))  # P[v > Bin ≥ v − i]
    broken = float(np.max(just_below / np.arange(1, correct + 1)))
    return min(1.0, lucky + 2 * canaries * delta * broken)


def one_run_bound(
    *, canaries: int, guesses: int, correct: int, delta: float, significance: float = 0.05
) -> OneRunBound:
    """What right guesses about one run refute: the ε at which the p-value passes the significance."""
    checks.fraction("significance", significance, include_one=False)

    def excess(epsilon: float) -> float:
        return significance - one_run_p_value(
            canaries=canaries, guesses=guesses, correct=correct, epsilon=epsilon, delta=delta
        )

    epsilon, enough = 0.0, 1.0
    if excess(0.0) > 0:
        while excess(enough) > 0:
            enough *= 2
        epsilon = float(brentq(excess, 0.0, enough))
    return OneRunBound(
        canaries=canaries,
        guesses=guesses,
        correct=correct,
        delta=delta,
        significance=significance,
        epsilon=epsilon,
    )
