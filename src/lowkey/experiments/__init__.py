"""Experiments: configuration, presets, run directories, and building a run from them."""

from lowkey.experiments.config import Config, parse
from lowkey.experiments.nested import merge, override, read
from lowkey.experiments.presets import find, presets
from lowkey.experiments.store import RunDirectory

__all__ = ["Config", "RunDirectory", "find", "merge", "override", "parse", "presets", "read"]
