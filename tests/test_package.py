"""The package as a whole: import arrows, public names, quick start."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import lowkey

ROOT = Path(lowkey.__file__).parent
LEAVES = {"errors", "types", "protocols", "rng", "timing", "checks", "durable", "rounding", "extras"}
MAY_IMPORT: dict[str, set[str]] = {
    "codec": LEAVES,
    "privacy": LEAVES,
    "secagg": LEAVES,
    "server": LEAVES | {"codec"},
    "federation": LEAVES | {"codec", "privacy", "secagg", "server"},
    "learning": LEAVES | {"codec", "privacy", "server"},
    "data": LEAVES,
    "experiments": LEAVES | {"codec", "privacy", "secagg", "server", "federation", "learning", "data"},
}
MAY_IMPORT["simulation"] = MAY_IMPORT["flower"] = MAY_IMPORT["report"] = MAY_IMPORT["experiments"] | {"experiments"}
MAY_IMPORT["cli"] = MAY_IMPORT["experiments"] | {"experiments", "simulation", "flower", "report"}
HOMES = {
    "torch": {"learning"},
    "flwr": {"flower"},
    "matplotlib": {"report"},
    "typer": {"cli"},
    "click": set(),  # typer has a copy of its own in some releases, so that its classes are not these
    "rich": {"cli"},
    "tensorboard": {"experiments"},
    "polars": {"data"},
    "sklearn": {"data"},
}


def imports(file: Path) -> set[str]:
    """Modules a file imports at run time; those for type checking alone do not count."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


FILES = [file for file in ROOT.rglob("*.py") if len(file.relative_to(ROOT).parts) > 1]


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_arrows_point_inward(file: Path) -> None:
    room = file.relative_to(ROOT).parts[0]
    for name in imports(file):
        parts = name.split(".")
        if parts[0] == "lowkey" and len(parts) > 1 and parts[1] != room:
            assert parts[1] in MAY_IMPORT[room] or parts[1] == "__version__", f"{file} imports {name}"
        if parts[0] in HOMES:
            assert room in HOMES[parts[0]], f"{file} imports {name}"


def test_leaves_import_no_room() -> None:
    for leaf in LEAVES:
        inside = {name.split(".")[1] for name in imports(ROOT / f"{leaf}.py") if name.startswith("lowkey.")}
        assert inside <= LEAVES, leaf


CORE = (
    "import lowkey.federation, lowkey.privacy, lowkey.codec, lowkey.secagg, lowkey.server, lowkey.data;"
    "lowkey.make_scheme('fl-std', num_clients=2, cohort=1)"
)
HELP = (
    "from lowkey.cli.app import app; from typer.testing import CliRunner;"
    "assert CliRunner().invoke(app, ['--help']).exit_code == 0"
)


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        (CORE, {"torch", "matplotlib", "typer", "pydantic", "polars", "sklearn"}),
        (HELP, {"torch", "matplotlib", "scipy", "dp_accounting", "pydantic", "polars", "sklearn"}),
    ],
    ids=["everything up to federation", "help"],
)
def test_what_is_not_needed_is_not_imported(code: str, heavy: set[str]) -> None:
    check = f"{code}; import sys; found = {heavy!r} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_public_names_exist_and_are_sorted_out() -> None:
    rooms = [m.name for m in pkgutil.iter_modules([str(ROOT)]) if m.ispkg]
    if find_spec("flwr") is None:
        rooms.remove("flower")
    for room in ["", *(f".{r}" for r in rooms)]:
        module = importlib.import_module(f"lowkey{room}")
        for name in module.__all__:
            assert getattr(module, name) is not None
    with pytest.raises(AttributeError):
        lowkey.nonsense  # noqa: B018
