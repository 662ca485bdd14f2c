"""Tasks: data, models, objectives and presets, a folder each: the paper's two, and one for tables of your own.

Others are your own modules.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from lowkey.errors import ConfigError
from lowkey.registry import Registry, nearest
from lowkey.tasks.fashion_mnist import FASHION_MNIST
from lowkey.tasks.mortality import MORTALITY
from lowkey.tasks.partition import Partition, by_ids, dirichlet_shards, iid_shards
from lowkey.tasks.table import TABLE
from lowkey.tasks.task import (
    ClientTables,
    NodeSettings,
    NoSettings,
    Presentation,
    Score,
    Study,
    Table,
    Task,
    Words,
    client_of,
)

TASKS: Registry[Task] = Registry("task", {"fashion-mnist": FASHION_MNIST, "mortality": MORTALITY, "table": TABLE})


def find_task(name: str) -> Task:
    """A task by its name, or the ``task`` of the module of this name."""
    if name in TASKS:
        return TASKS[name]
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # something else is missing, which the module imports
        raise ConfigError(
            f"task is {name!r}, which is neither a task of Lowkey ({', '.join(TASKS)}) nor a module that can be "
            f"imported here; go to its directory, or name its TOML file{nearest(name, TASKS)}"
        ) from None
    found = getattr(module, "task", None)
    if not isinstance(found, Task):
        raise ConfigError(f"the module {name} has no Task called 'task'; write: task = lowkey.Task(model=..., ...)")
    return found


def look_in(directory: Path) -> None:
    """Also look for modules in this directory, after all other places."""
    place = str(directory.resolve())
    if place not in sys.path:
        sys.path.append(place)


def place_of(name: str) -> Path | None:
    """The directory from which the module of a task can be imported; None for tasks of Lowkey."""
    if name in TASKS:
        return None
    find_task(name)
    file = sys.modules[name].__file__
    return None if file is None else Path(file).resolve().parents[name.count(".") + (Path(file).stem == "__init__")]


__all__ = [
    "FASHION_MNIST",
    "MORTALITY",
    "TABLE",
    "TASKS",
    "ClientTables",
    "NoSettings",
    "NodeSettings",
    "Partition",
    "Presentation",
    "Score",
    "Study",
    "Table",
    "Task",
    "Words",
    "by_ids",
    "client_of",
    "dirichlet_shards",
    "find_task",
    "iid_shards",
    "look_in",
    "place_of",
]
