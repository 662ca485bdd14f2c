"""Experiments: configuration, presets, run directories, and building a run from them.

What imports PyTorch, or is needed by few, is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowkey.experiments.config import Config, parse
from lowkey.experiments.library import find, load_config, presets
from lowkey.experiments.nested import merge, override, read
from lowkey.experiments.running import Connection, ServerParts, run_in_directory
from lowkey.experiments.scores import evaluated_rounds, labels, values
from lowkey.experiments.settings import DeploymentSettings, FederationSettings, Published, RuntimeSettings
from lowkey.experiments.store import FAILURE_FILE, RunDirectory
from lowkey.lazy import lazy_names

if TYPE_CHECKING:
    from lowkey.experiments.building import Experiment, build, server_parts, trainer_of
    from lowkey.experiments.checkpoints import Checkpoint, unpack
    from lowkey.experiments.feasibility import prospects
    from lowkey.experiments.norms import first_norms
    from lowkey.experiments.planning import Candidate, Plan, Wishes, plan
    from lowkey.experiments.trackers import TRACKERS, open_tracker

_HOMES = {
    "building": ("Experiment", "build", "server_parts", "trainer_of"),
    "checkpoints": ("Checkpoint", "unpack"),
    "norms": ("first_norms",),
    "planning": ("Candidate", "Plan", "Wishes", "plan"),
    "feasibility": ("prospects",),
    "trackers": ("TRACKERS", "open_tracker"),
}
__getattr__ = lazy_names(__name__, _HOMES)

__all__ = [
    "FAILURE_FILE",
    "TRACKERS",
    "Candidate",
    "Checkpoint",
    "Config",
    "Connection",
    "DeploymentSettings",
    "Experiment",
    "FederationSettings",
    "Plan",
    "Published",
    "RunDirectory",
    "RuntimeSettings",
    "ServerParts",
    "Wishes",
    "build",
    "evaluated_rounds",
    "find",
    "first_norms",
    "labels",
    "load_config",
    "merge",
    "open_tracker",
    "override",
    "parse",
    "plan",
    "presets",
    "prospects",
    "read",
    "run_in_directory",
    "server_parts",
    "trainer_of",
    "unpack",
    "values",
]
