"""Experiments: configuration, presets, run directories, and building a run from them."""

from lowkey.experiments.config import Config, parse
from lowkey.experiments.nested import merge, override, read
from lowkey.experiments.presets import find, load_config, presets
from lowkey.experiments.store import FAILURE_FILE, RunDirectory

__all__ = [
    "FAILURE_FILE",
    "Config",
    "RunDirectory",
    "find",
    "load_config",
    "merge",
    "override",
    "parse",
    "presets",
    "read",
]
