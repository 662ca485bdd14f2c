"""Client-level differential privacy: sampling, clipping, noise, accounting and the ledger."""

from lowkey.privacy.accounting import Epsilon, claimed_epsilon, epsilon, require_small_delta
from lowkey.privacy.calibration import affordable_rounds, calibrate_noise
from lowkey.privacy.clipping import clip
from lowkey.privacy.events import Event, SamplingMode
from lowkey.privacy.ledger import Entry, Ledger
from lowkey.privacy.mechanism import ClientLevelPrivacy, NoPrivacy, Privacy
from lowkey.privacy.noise import add_noise_share
from lowkey.privacy.planning import Plan, feasibility, paper_megabits, plan, signal_to_noise
from lowkey.privacy.records import Bounded, Measurement, Noised, Open
from lowkey.privacy.sampling import (
    Cohort,
    FixedSizeSampling,
    PoissonSampling,
    Sampling,
    flip_coin,
    make_sampling,
)
from lowkey.privacy.shares import NoiseShares, effective_noise, noise_shares, split_noise
from lowkey.privacy.statement import guarantee_lines
from lowkey.privacy.views import group_epsilon, likely_participations, search_epsilon, server_epsilon

__all__ = [
    "Bounded",
    "ClientLevelPrivacy",
    "Cohort",
    "Entry",
    "Epsilon",
    "Event",
    "FixedSizeSampling",
    "Ledger",
    "Measurement",
    "NoPrivacy",
    "NoiseShares",
    "Noised",
    "Open",
    "Plan",
    "PoissonSampling",
    "Privacy",
    "Sampling",
    "SamplingMode",
    "add_noise_share",
    "affordable_rounds",
    "calibrate_noise",
    "claimed_epsilon",
    "clip",
    "effective_noise",
    "epsilon",
    "feasibility",
    "flip_coin",
    "group_epsilon",
    "guarantee_lines",
    "likely_participations",
    "make_sampling",
    "noise_shares",
    "paper_megabits",
    "plan",
    "require_small_delta",
    "search_epsilon",
    "server_epsilon",
    "signal_to_noise",
    "split_noise",
]
