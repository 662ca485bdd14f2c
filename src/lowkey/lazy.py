"""Packages whose public names are imported when they are first used, so that importing the package stays quick."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """A ``__getattr__`` for a package.

    Parameters
    ----------
    package : str
        The ``__name__`` of the package.
    modules : Mapping
        The names of each module of the package.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return get


def late(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is imported when the function is first called."""

    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(module), name)(*arguments, **named)

    return call
