"""Experiments: configuration, presets, run directories, and building a run from them.

What imports PyTorch, or is needed by few, is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowkey.experiments.config import NO_MODEL, Config, parse
from lowkey.experiments.library import find, load_config, presets
from lowkey.experiments.nested import merge, override, read
from lowkey.experiments.running import Connection, ServerParts, run_in_directory
from lowkey.experiments.scores import evaluated_rounds, labels, values
from lowkey.experiments.settings import (
    DeploymentSettings,
    EvaluationSettings,
    FederationSettings,
    Published,
    RuntimeSettings,
)
from lowkey.experiments.store import ENCODER, FAILURE_FILE, RunDirectory
from lowkey.lazy import lazy_names

if TYPE_CHECKING:
    from lowkey.experiments.building import Experiment, build, respondent_of, server_parts, trainer_of
    from lowkey.experiments.candidates import Candidate, Plan
    from lowkey.experiments.checkpoints import Checkpoint, unpack
    from lowkey.experiments.feasibility import prospects
    from lowkey.experiments.norms import first_norms
    from lowkey.experiments.planning import Wishes, plan
    from lowkey.experiments.trackers import TRACKERS, open_tracker

_HOMES = {
    "building": ("Experiment", "build", "respondent_of", "server_parts", "trainer_of"),
    "checkpoints": ("Checkpoint", "unpack"),
    "norms": ("first_norms",),
    "candidates": ("Candidate", "Plan"),
    "planning": ("Wishes", "plan"),
    "feasibility": ("prospects",),
    "trackers": ("TRACKERS", "open_tracker"),
}
__getattr__ = lazy_names(__name__, _HOMES)

__all__ = [
    "ENCODER",
    "FAILURE_FILE",
    "NO_MODEL",
    "TRACKERS",
    "Candidate",
    "Checkpoint",
    "Config",
    "Connection",
    "DeploymentSettings",
    "EvaluationSettings",
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
    "respondent_of",
    "run_in_directory",
    "server_parts",
    "trainer_of",
    "unpack",
    "values",
]
