"""Client-level differential privacy: sampling, clipping, noise, accounting, ledgers and policy."""

from lowkey.privacy.accounting import Epsilon, Event, affordable_rounds, calibrate_noise, claimed_epsilon, epsilon
from lowkey.privacy.client_ledger import ClientLedger, Participation
from lowkey.privacy.clipping import clip
from lowkey.privacy.ledger import Entry, Ledger
from lowkey.privacy.mechanism import ClientLevelPrivacy, NoPrivacy, Privacy
from lowkey.privacy.noise import add_noise_share
from lowkey.privacy.policy import Policy, Terms
from lowkey.privacy.records import Bounded, Measurement, Noised, Open
from lowkey.privacy.sampling import Cohort, FixedSizeSampling, PoissonSampling, Sampling, SamplingKind

__all__ = [
    "Bounded",
    "ClientLedger",
    "ClientLevelPrivacy",
    "Cohort",
    "Entry",
    "Epsilon",
    "Event",
    "FixedSizeSampling",
    "Ledger",
    "Measurement",
    "NoPrivacy",
    "Noised",
    "Open",
    "Participation",
    "PoissonSampling",
    "Policy",
    "Privacy",
    "Sampling",
    "SamplingKind",
    "Terms",
    "add_noise_share",
    "affordable_rounds",
    "calibrate_noise",
    "claimed_epsilon",
    "clip",
    "epsilon",
]
