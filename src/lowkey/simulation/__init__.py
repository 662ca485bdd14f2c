"""Simulation on one machine, with the same clients and rounds as in a deployment. Names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowkey.lazy import lazy_names

if TYPE_CHECKING:
    from lowkey.simulation.audit import Audit, run_audit
    from lowkey.simulation.evaluation import evaluate_run, evaluation_config
    from lowkey.simulation.experiment import run
    from lowkey.simulation.in_process import InProcess
    from lowkey.simulation.keys import SimulatedKeys
    from lowkey.simulation.library import Simulation, simulate
    from lowkey.simulation.memory import Memory
    from lowkey.simulation.runtime import open_runtime
    from lowkey.simulation.workers import WorkerPool

_HOMES = {
    "audit": ("Audit", "run_audit"),
    "evaluation": ("evaluate_run", "evaluation_config"),
    "experiment": ("run",),
    "in_process": ("InProcess",),
    "keys": ("SimulatedKeys",),
    "library": ("Simulation", "simulate"),
    "memory": ("Memory",),
    "runtime": ("open_runtime",),
    "workers": ("WorkerPool",),
}
__getattr__ = lazy_names(__name__, _HOMES)

__all__ = [
    "Audit",
    "InProcess",
    "Memory",
    "SimulatedKeys",
    "Simulation",
    "WorkerPool",
    "evaluate_run",
    "evaluation_config",
    "open_runtime",
    "run",
    "run_audit",
    "simulate",
]
