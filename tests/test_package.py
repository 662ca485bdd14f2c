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
LEAVES = {
    "checks", "durable", "errors", "extras", "figures", "graphs", "lazy", "protocols", "registry", "rng", "timing",
    "types",
}  # fmt: skip
CORE = {"analytics", "codec", "features", "privacy", "secagg", "server"}
MAY_IMPORT: dict[str, set[str]] = {
    "codec": LEAVES,
    "analytics": LEAVES,
    "tabular": LEAVES | {"analytics"},
    "features": LEAVES,
    "privacy": LEAVES,
    "secagg": LEAVES,
    "server": LEAVES | {"codec"},
    "federation": LEAVES | CORE,
    "learning": LEAVES | {"analytics"},
    "tasks": LEAVES | {"analytics", "features", "learning", "tabular"},
    "experiments": LEAVES | CORE | {"federation", "learning", "tabular", "tasks"},
}
for _room in ("simulation", "report", "deployment"):
    MAY_IMPORT[_room] = MAY_IMPORT["experiments"] | {"experiments"}
MAY_IMPORT["flower"] = MAY_IMPORT["deployment"] | {"deployment"}
MAY_IMPORT["cli"] = MAY_IMPORT["flower"] | {"flower", "simulation", "report"}
HOMES = {
    "torch": {"features", "learning", "tasks"},
    "flwr": {"flower", "deployment"},
    "matplotlib": {"report"},
    "jinja2": {"report"},
    "typer": {"cli"},
    "click": set(),  # typer has a copy of its own in some releases, so that its classes are not these
    "rich": {"cli"},
    "tensorboard": {"experiments"},
    "pydantic": {"experiments"},
    "polars": {"tabular", "tasks"},
    "sklearn": {"tasks"},
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


def reaches_past_the_face(name: str) -> bool:
    """Whether an import takes something that a room, or a folder in it with a face of its own, does not offer."""
    place, _, wanted = name.rpartition(".")
    if place == "lowkey" or place.split(".")[1] in LEAVES:
        return False
    face = importlib.import_module(place)
    return not hasattr(face, "__path__") or wanted not in face.__all__


FILES = [file for file in ROOT.rglob("*.py") if len(file.relative_to(ROOT).parts) > 1]


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_arrows_point_inward_and_end_at_the_face_of_a_room(file: Path) -> None:
    room = file.relative_to(ROOT).parts[0]
    for name in imports(file):
        parts = name.split(".")
        if parts[0] == "lowkey" and len(parts) > 1 and parts[1] != room:
            assert parts[1] in MAY_IMPORT[room], f"{file} imports {name}"
            assert not reaches_past_the_face(name), f"{file} imports {name}"
        if parts[0] in HOMES:
            assert room in HOMES[parts[0]], f"{file} imports {name}"


REPOSITORY = Path(__file__).parents[1]
USERS = [file for place in ("examples", "tools", "benchmarks") for file in (REPOSITORY / place).glob("*.py")]


@pytest.mark.parametrize("file", USERS, ids=lambda f: str(f.relative_to(REPOSITORY)))
def test_examples_tools_and_benchmarks_use_the_public_api_only(file: Path) -> None:
    for name in imports(file):
        parts = name.split(".")
        if parts[0] != "lowkey" or len(parts) == 1 or parts[1] in lowkey.__all__:
            continue
        assert parts[1] != "cli", f"{file} imports {name}"
        assert not reaches_past_the_face(name), f"{file} imports {name}"


def test_the_face_test_can_fail() -> None:
    assert reaches_past_the_face("lowkey.codec.lasso.LassoDecoder")
    assert reaches_past_the_face("lowkey.privacy.no_such_name")
    assert not reaches_past_the_face("lowkey.codec.LassoDecoder")
    assert not reaches_past_the_face("lowkey.rng.OSSecrets")


def test_leaves_import_no_room() -> None:
    for leaf in LEAVES:
        inside = {name.split(".")[1] for name in imports(ROOT / f"{leaf}.py") if name.startswith("lowkey.")}
        assert inside <= LEAVES, leaf


def test_no_task_is_named_outside_its_folder() -> None:
    """The word for a task's subject is in its own folder, and in texts that point to it."""
    for file in FILES:
        if file.relative_to(ROOT).parts[0] != "tasks":
            text = file.read_text(encoding="utf-8").lower()
            assert "mortality" not in text, file
            assert "fashioncnn" not in text, file


UP_TO_FEDERATION = (
    "import lowkey.federation, lowkey.privacy, lowkey.codec, lowkey.secagg, lowkey.server;"
    "lowkey.scheme('fl-std', clients=2, cohort=1)"
)
TASKS = "import lowkey.tasks, lowkey.learning; lowkey.Task, lowkey.LocalSGD(), lowkey.tasks.TASKS['mortality'].scores"
FEATURES = "import lowkey.features; lowkey.features.FEATURES['scattering']().digest"
MAP = (
    "from lowkey.tasks import TASKS, Study; from lowkey.tasks.fashion_mnist import ImageModelSettings;"
    "assert TASKS['fashion-mnist'].features_of(Study(model=ImageModelSettings(kind='head')))"
)
HELP = (
    "from lowkey.cli.app import app; from typer.testing import CliRunner;"
    "assert CliRunner().invoke(app, ['--help']).exit_code == 0"
)
DEPLOYMENT = "import lowkey.deployment, lowkey.flower"
RUN = (
    "import tempfile; from lowkey.cli.app import app; from typer.testing import CliRunner;"
    "wanted = ['run', 'demo/fl-std', '--rounds', '1', '--quiet', '--out', tempfile.mkdtemp() + '/run'];"
    "assert CliRunner().invoke(app, wanted).exit_code == 0"
)


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        (UP_TO_FEDERATION, {"torch", "matplotlib", "typer", "pydantic", "polars", "sklearn"}),
        (TASKS, {"torch", "matplotlib", "typer", "pydantic", "polars", "sklearn", "scipy"}),
        (FEATURES, {"torch", "scipy", "matplotlib", "pydantic"}),
        (MAP, {"torch", "scipy", "matplotlib", "pydantic"}),
        (HELP, {"torch", "matplotlib", "scipy", "dp_accounting", "pydantic", "polars", "sklearn"}),
        (DEPLOYMENT, {"flwr", "torch", "numpy", "cryptography", "pydantic"}),
        (RUN, {"dp_accounting", "scipy.stats", "numba", "flwr", "matplotlib", "polars", "sklearn"}),
    ],
    ids=[
        "everything up to federation",
        "tasks",
        "features",
        "the map of a task",
        "help",
        "deployment",
        "a run without privacy",
    ],
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
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        lowkey.nonsense  # noqa: B018
