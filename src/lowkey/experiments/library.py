"""Named settings that come with the package: every row of the paper's two tables, and the demo."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from lowkey.errors import ConfigError
from lowkey.experiments.config import Config, parse
from lowkey.experiments.nested import merge, override, read
from lowkey.tasks import TASKS, look_in


@cache
def presets() -> dict[str, dict[str, Any]]:
    """Configuration tables by name. A file of a task holds a [base] and, per preset, what differs from it.

    Where the same presets exist for several sources of data, ``[sources.NAME]`` has what differs for a source: a base
    and presets again. A source may have presets that others have not.
    """
    found: dict[str, dict[str, Any]] = {}
    for task in TASKS:
        package = TASKS[task].presets
        if package is None:
            continue
        for file in sorted(resources.files(package).joinpath("presets").iterdir(), key=lambda f: f.name):
            if file.name.endswith(".toml"):
                found.update(_of_file(task, file.name.removesuffix(".toml"), tomllib.loads(file.read_text("utf-8"))))
    return found


def _of_file(task: str, group: str, content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for source, differing in content.get("sources", {"": {}}).items():
        base = merge(content["base"], differing.get("base", {}))
        rows = merge(content["presets"], differing.get("presets", {}))
        for row, table in rows.items():
            name = "/".join(part for part in (group, source, row) if part)
            yield name, {"task": task} | merge(base, table) | {"name": name}


def find(name: str) -> dict[str, Any]:
    """The table of a preset, or of a TOML file when ``name`` is a path to one."""
    if name in presets():
        return presets()[name]
    path = Path(name)
    if path.suffix == ".toml":
        look_in(path.parent)  # a module with a task may lie beside the TOML file
        return {"name": path.stem} | read(path)
    near = difflib.get_close_matches(name, presets(), n=1, cutoff=0.0)
    raise ConfigError(f"no preset is called {name!r}; did you mean {near[0]}? 'lowkey presets list' shows all")


def load_config(source: str | Path | Config, changes: Iterable[str] = (), *, nodes: int | None = None) -> Config:
    """A resolved configuration.

    Parameters
    ----------
    source : str, Path or Config
        The name of a preset, the path of a TOML file, or the configuration of an earlier run.
    changes : iterable of str
        Assignments such as ``"codec.ratio=0.1"``; values are TOML, bare words are strings.
    nodes : int or None
        Number of real nodes, each of them one client. None keeps the number of clients of the configuration.
    """
    table = source.to_table() if isinstance(source, Config) else find(str(source))
    config = parse(override(table, changes))
    return (config if nodes is None else config.for_nodes(nodes)).resolve()
