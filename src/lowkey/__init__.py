"""Lowkey: federated learning with updates that are small, keyed (masked) and discreet (differentially private).

>>> import lowkey
>>> scheme = lowkey.make_scheme("fl-cs-dp", num_clients=6000, cohort=100, ratio=0.05,
...                             clip_norm=0.47, noise_multiplier=1.54)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowkey.errors import LowkeyError
    from lowkey.federation import SCHEMES, Scheme, make_scheme
    from lowkey.learning import LocalSGD, Objective
    from lowkey.privacy import Event, affordable_rounds, calibrate_noise, epsilon, make_sampling
    from lowkey.simulation import Simulation, simulate

__version__ = "0.2.0.dev0"  # the only place; pyproject.toml reads it here

_HOME = {
    "LowkeyError": "errors",
    "SCHEMES": "federation",
    "Scheme": "federation",
    "make_scheme": "federation",
    "LocalSGD": "learning",
    "Objective": "learning",
    "Event": "privacy",
    "affordable_rounds": "privacy",
    "calibrate_noise": "privacy",
    "epsilon": "privacy",
    "make_sampling": "privacy",
    "Simulation": "simulation",
    "simulate": "simulation",
}

__all__ = [
    "SCHEMES",
    "Event",
    "LocalSGD",
    "LowkeyError",
    "Objective",
    "Scheme",
    "Simulation",
    "affordable_rounds",
    "calibrate_noise",
    "epsilon",
    "make_sampling",
    "make_scheme",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Import on first use: ``import lowkey`` stays quick, and torch is needed only for what uses it."""
    if name not in _HOME:
        raise AttributeError(f"module 'lowkey' has no attribute {name!r}")
    return getattr(import_module(f"lowkey.{_HOME[name]}"), name)
