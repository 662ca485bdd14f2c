"""Lowkey: federated learning with updates that are small, keyed (masked) and discreet (differentially private).

>>> import lowkey
>>> privacy = lowkey.ClientPrivacy(clip_norm=0.47, noise_multiplier=1.54)
>>> scheme = lowkey.scheme("fl-cs-dp", clients=6000, cohort=100, codec=lowkey.ChunkedDCT(ratio=0.05), privacy=privacy)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowkey.lazy import lazy_names

if TYPE_CHECKING:
    from lowkey.codec import (
        AdjointDecoder,
        ChunkedDCT,
        LassoDecoder,
        LayeredDecoder,
        LowPassDCT,
        RandomSubset,
        WholeUpdate,
    )
    from lowkey.errors import CannotContribute, LowkeyError
    from lowkey.experiments import Config, Plan, RunDirectory, Wishes, load_config, plan
    from lowkey.federation import SCHEMES, Client, Federation, Schedule, Scheme, scheme
    from lowkey.learning import CentredHead, FullGradient, LinearHead, LocalSGD, Objective, Personal, RiskHead
    from lowkey.privacy import (
        ClientPrivacy,
        Epsilon,
        Event,
        Ledger,
        Policy,
        affordable_rounds,
        calibrate_noise,
        make_sampling,
        released_epsilon,
        server_epsilon,
    )
    from lowkey.report import write_report
    from lowkey.server import (
        Adam,
        DecodeMean,
        ErrorFeedback,
        ExponentialAverage,
        LastIterate,
        Momentum,
        Plain,
        TailAverage,
    )
    from lowkey.simulation import Simulation, run, simulate
    from lowkey.tasks import Score, Study, Task

__version__ = "0.2.0"

_HOMES = {
    "codec": (
        "AdjointDecoder", "ChunkedDCT", "LassoDecoder", "LayeredDecoder", "LowPassDCT", "RandomSubset", "WholeUpdate",
    ),
    "errors": ("CannotContribute", "LowkeyError"),
    "experiments": ("Config", "Plan", "RunDirectory", "Wishes", "load_config", "plan"),
    "federation": ("SCHEMES", "Client", "Federation", "Schedule", "Scheme", "scheme"),
    "learning": ("CentredHead", "FullGradient", "LinearHead", "LocalSGD", "Objective", "Personal", "RiskHead"),
    "privacy": (
        "ClientPrivacy", "Epsilon", "Event", "Ledger", "Policy", "affordable_rounds", "calibrate_noise",
        "make_sampling", "released_epsilon", "server_epsilon",
    ),
    "report": ("write_report",),
    "server": (
        "Adam", "DecodeMean", "ErrorFeedback", "ExponentialAverage", "LastIterate", "Momentum", "Plain", "TailAverage",
    ),
    "simulation": ("Simulation", "run", "simulate"),
    "tasks": ("Score", "Study", "Task"),
}  # fmt: skip
__getattr__ = lazy_names(__name__, _HOMES)

__all__ = [
    "SCHEMES",
    "Adam",
    "AdjointDecoder",
    "CannotContribute",
    "CentredHead",
    "ChunkedDCT",
    "Client",
    "ClientPrivacy",
    "Config",
    "DecodeMean",
    "Epsilon",
    "ErrorFeedback",
    "Event",
    "ExponentialAverage",
    "Federation",
    "FullGradient",
    "LassoDecoder",
    "LastIterate",
    "LayeredDecoder",
    "Ledger",
    "LinearHead",
    "LocalSGD",
    "LowPassDCT",
    "LowkeyError",
    "Momentum",
    "Objective",
    "Personal",
    "Plain",
    "Plan",
    "Policy",
    "RandomSubset",
    "RiskHead",
    "RunDirectory",
    "Schedule",
    "Scheme",
    "Score",
    "Simulation",
    "Study",
    "TailAverage",
    "Task",
    "WholeUpdate",
    "Wishes",
    "affordable_rounds",
    "calibrate_noise",
    "load_config",
    "make_sampling",
    "plan",
    "released_epsilon",
    "run",
    "scheme",
    "server_epsilon",
    "simulate",
    "write_report",
]
