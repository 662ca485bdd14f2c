"""Simulation on one machine: the same clients and rounds as deployed, in worker processes."""

from lowkey.simulation.audit import Audit, run_audit
from lowkey.simulation.experiment import run_experiment
from lowkey.simulation.faults import Vanishing
from lowkey.simulation.in_process import InProcess
from lowkey.simulation.keys import SimulatedKeys
from lowkey.simulation.library import Simulation, simulate
from lowkey.simulation.memory import Memory
from lowkey.simulation.workers import WorkerPool

__all__ = [
    "Audit",
    "InProcess",
    "Memory",
    "SimulatedKeys",
    "Simulation",
    "Vanishing",
    "WorkerPool",
    "run_audit",
    "run_experiment",
    "simulate",
]
