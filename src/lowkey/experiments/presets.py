"""Named settings that come with the package: every row of the paper's two tables, and the demo."""

from __future__ import annotations

import difflib
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from lowkey.errors import ConfigError
from lowkey.experiments.nested import merge, read


@cache
def presets() -> dict[str, dict[str, Any]]:
    """Configuration tables by name. A file holds a [base] and, per preset, what differs from it.

    Where the same presets exist for several sources of data, ``[sources.NAME]`` has what differs for a source: a base
    and presets again. A source may have presets that others have not.
    """
    found = {}
    for file in sorted(resources.files("lowkey.experiments").joinpath("presets").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            content = tomllib.loads(file.read_text(encoding="utf-8"))
            group = file.name.removesuffix(".toml")
            for source, differing in content.get("sources", {"": {}}).items():
                base = merge(content["base"], differing.get("base", {}))
                rows = merge(content["presets"], differing.get("presets", {}))
                for row, table in rows.items():
                    name = "/".join(part for part in (group, source, row) if part)
                    found[name] = merge(base, table) | {"name": name}
    return found


def find(name: str) -> dict[str, Any]:
    """The table of a preset, or of a TOML file when ``name`` is a path to one."""
    if name in presets():
        return presets()[name]
    path = Path(name)
    if path.suffix == ".toml":
        return {"name": path.stem} | read(path)
    near = difflib.get_close_matches(name, presets(), n=1, cutoff=0.0)
    raise ConfigError(f"no preset is called {name!r}; did you mean {near[0]}? 'lowkey presets list' shows all")
