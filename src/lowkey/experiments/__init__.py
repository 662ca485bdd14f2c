"""Experiments: configuration, presets, run directories, and building a run from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowkey.experiments.config import Config, parse
from lowkey.experiments.nested import merge, override, read
from lowkey.experiments.presets import find, load_config, presets
from lowkey.experiments.store import FAILURE_FILE, RunDirectory
from lowkey.lazy import lazy_names

if TYPE_CHECKING:
    from lowkey.experiments.building import Experiment, build
    from lowkey.experiments.norms import first_norms

__getattr__ = lazy_names(__name__, {"building": ("Experiment", "build"), "norms": ("first_norms",)})

__all__ = [
    "FAILURE_FILE",
    "Config",
    "Experiment",
    "RunDirectory",
    "build",
    "find",
    "first_norms",
    "load_config",
    "merge",
    "override",
    "parse",
    "presets",
    "read",
]
