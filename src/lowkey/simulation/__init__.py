"""Simulation on one machine, with the same clients and rounds as in a deployment."""

from lowkey.simulation.audit import Audit, run_audit
from lowkey.simulation.experiment import run
from lowkey.simulation.in_process import InProcess
from lowkey.simulation.keys import SimulatedKeys
from lowkey.simulation.library import Simulation, simulate
from lowkey.simulation.memory import Memory
from lowkey.simulation.runtime import open_runtime
from lowkey.simulation.workers import WorkerPool

__all__ = [
    "Audit",
    "InProcess",
    "Memory",
    "SimulatedKeys",
    "Simulation",
    "WorkerPool",
    "open_runtime",
    "run",
    "run_audit",
    "simulate",
]
