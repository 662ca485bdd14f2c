"""Client-level differential privacy: sampling, integers, noise, accounting, ledgers, policy, audit.

The analysis (ε, calibration) is imported on first use: clients that only clip, add noise and send do without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowkey.lazy import lazy_names
from lowkey.privacy.adaptive import AdaptiveClip
from lowkey.privacy.client_ledger import ClientLedger, Participation
from lowkey.privacy.contract import Mean, NoPrivacy, Privacy, Promise
from lowkey.privacy.encoding import Encoding, noisy_square
from lowkey.privacy.events import Event, require_delta, require_small_delta
from lowkey.privacy.ledger import Entry, Ledger
from lowkey.privacy.mechanism import ClientMechanism, most_contributors
from lowkey.privacy.policy import Policy, Terms
from lowkey.privacy.records import Bounded, Measurement, Noised, Open, WireFormat
from lowkey.privacy.sampling import (
    SAMPLINGS,
    Cohort,
    FixedSizeSampling,
    PoissonSampling,
    Sampling,
    flip_coin,
    make_sampling,
)
from lowkey.privacy.settings import ClientPrivacy, rounds_within, spare_attempts
from lowkey.privacy.shares import NoiseShares, noise_shares

if TYPE_CHECKING:
    from lowkey.privacy.accounting import Epsilon, claimed_epsilon, released_epsilon
    from lowkey.privacy.auditing import OneRunBound, TwoWorldBound, one_run_bound, two_world_bound
    from lowkey.privacy.calibration import affordable_rounds, calibrate_noise
    from lowkey.privacy.planning import ENOUGH_SIGNAL, LITTLE_SIGNAL, feasibility, paper_megabits, signal_to_noise
    from lowkey.privacy.proofs import NormBound
    from lowkey.privacy.statement import guarantee_lines
    from lowkey.privacy.views import group_epsilon, likely_participations, search_epsilon, server_epsilon, server_view

_HOMES = {
    "auditing": ("OneRunBound", "TwoWorldBound", "one_run_bound", "two_world_bound"),
    "accounting": ("Epsilon", "claimed_epsilon", "released_epsilon"),
    "calibration": ("affordable_rounds", "calibrate_noise"),
    "planning": ("ENOUGH_SIGNAL", "LITTLE_SIGNAL", "feasibility", "paper_megabits", "signal_to_noise"),
    "proofs": ("NormBound",),
    "statement": ("guarantee_lines",),
    "views": ("group_epsilon", "likely_participations", "search_epsilon", "server_epsilon", "server_view"),
}
__getattr__ = lazy_names(__name__, _HOMES)

__all__ = [
    "ENOUGH_SIGNAL",
    "LITTLE_SIGNAL",
    "SAMPLINGS",
    "AdaptiveClip",
    "Bounded",
    "ClientLedger",
    "ClientMechanism",
    "ClientPrivacy",
    "Cohort",
    "Encoding",
    "Entry",
    "Epsilon",
    "Event",
    "FixedSizeSampling",
    "Ledger",
    "Mean",
    "Measurement",
    "NoPrivacy",
    "NoiseShares",
    "Noised",
    "NormBound",
    "OneRunBound",
    "Open",
    "Participation",
    "PoissonSampling",
    "Policy",
    "Privacy",
    "Promise",
    "Sampling",
    "Terms",
    "TwoWorldBound",
    "WireFormat",
    "affordable_rounds",
    "calibrate_noise",
    "claimed_epsilon",
    "feasibility",
    "flip_coin",
    "group_epsilon",
    "guarantee_lines",
    "likely_participations",
    "make_sampling",
    "most_contributors",
    "noise_shares",
    "noisy_square",
    "one_run_bound",
    "paper_megabits",
    "released_epsilon",
    "require_delta",
    "require_small_delta",
    "rounds_within",
    "search_epsilon",
    "server_epsilon",
    "server_view",
    "signal_to_noise",
    "spare_attempts",
    "two_world_bound",
]
