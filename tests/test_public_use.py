"""Benchmarks, tools and examples are users like any other: they import public names alone."""

from __future__ import annotations

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [file for place in ("benchmarks", "tools", "examples") for file in sorted((ROOT / place).rglob("*.py"))]


def private_uses(source: str) -> list[str]:
    """Names of the package that a file takes from behind a room's public face, or from the command line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.startswith("lowkey.")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lowkey":
            assert node.module is not None
            found += [f"{node.module}.{a.name}" for a in node.names if not _is_public(node.module, a.name)]
    return found


def _is_public(module: str, name: str) -> bool:
    """Whether a room, a part of one that it offers, or a module outside all rooms offers a name."""
    parts = module.split(".")
    if parts[1:2] == ["cli"] or name.startswith("_"):
        return False
    for number in range(2, len(parts) + 1):  # lowkey.codec offers solvers, and lowkey.codec.solvers offers certify
        inside, outer = parts[number - 1], importlib.import_module(".".join(parts[: number - 1]))
        if number > 2 and inside not in getattr(outer, "__all__", ()):
            return False
    found = importlib.import_module(module)
    if module == "lowkey" and find_spec(f"lowkey.{name}") is not None:  # a room, or a module outside all rooms
        return name != "cli"
    return name in getattr(found, "__all__", vars(found))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_only_public_names_are_used(file: Path) -> None:
    assert private_uses(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("line", "private"),
    [
        ("from lowkey import ChunkedDCT, secagg", False),
        ("from lowkey.codec.solvers import certify", False),
        ("from lowkey.rng import generator", False),
        ("from lowkey.experiments import build, load_config", False),
        ("from lowkey import cli", True),
        ("from lowkey.cli.run import simulate", True),
        ("from lowkey.experiments.building import build", True),
        ("from lowkey.codec import _GROUP", True),
        ("from lowkey.simulation.runtime import open_runtime", True),
        ("import lowkey.simulation.runtime", True),
    ],
)
def test_what_is_private_is_found(line: str, private: bool) -> None:
    assert bool(private_uses(line)) is private
