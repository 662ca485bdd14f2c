"""A node runs the apps that its owner has approved, and no other.

Flower ships an app from the server to the nodes and runs it there: whoever commands the server could ship another one.
The guard stands in for Flower's own ``flwr-clientapp``, which a node starts for every message. It looks up the SHA-256
of the bundle in a list of the node's own before anything of it is unpacked.

Guarantees
----------
Code and settings that are not on the list do not run at the node. It fails closed: also when the list is missing, or
when Flower has changed so much that the guard finds nothing to guard.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from lowkey.errors import ConfigError, PolicyRefused

PROGRAM = "flwr-clientapp"
_LIST_VARIABLE = "LOWKEY_APPROVED_APPS"


def write_guard(directory: Path, approved: Path) -> None:
    """Put the guard into a directory that must come first in the PATH of the node."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / PROGRAM
    program.write_text(
        f"#!/bin/sh\n{_LIST_VARIABLE}={shlex.quote(str(approved.resolve()))} "
        f'exec {shlex.quote(sys.executable)} -m lowkey.flower.guard "$@"\n',
        encoding="utf-8",
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def approve(approved: Path, digest: str, comment: str) -> None:
    """Add an app to a node's list."""
    if digest not in _approved(approved, missing_ok=True):
        with approved.open("a", encoding="utf-8") as file:
            file.write(f"{digest}  {comment}\n")


def require_approved(content: bytes, approved: Path) -> None:
    """Refuse a bundle that is not on the list."""
    digest = hashlib.sha256(content).hexdigest()
    if digest not in _approved(approved):
        raise PolicyRefused(
            f"the app {digest[:16]} is not approved at this node; its owner reviews it and runs 'lowkey flower approve'"
        )


def _approved(path: Path, *, missing_ok: bool = False) -> set[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        if missing_ok:
            return set()
        raise ConfigError(f"{path} is missing: no app is approved at this node; 'lowkey flower approve' does") from None
    return {words[0] for line in lines if (words := line.split()) and not line.startswith("#")}


def main() -> None:
    """What the node starts in place of Flower's program."""
    runtime: Any = import_module("flwr.supernode.runtime.run_clientapp")
    _skip_package("flwr.supernode.cli", Path(runtime.__file__).parents[1] / "cli")
    program: Any = import_module("flwr.supernode.cli.flwr_clientapp")
    approved, install = Path(os.environ[_LIST_VARIABLE]), runtime.install_from_fab

    def install_approved(content: bytes, *args: Any, **kwargs: Any) -> Any:
        require_approved(content, approved)
        return install(content, *args, **kwargs)

    runtime.install_from_fab = install_approved
    program.flwr_clientapp()


def _skip_package(name: str, place: Path) -> None:
    """Let a module be imported without the rest of its package: here it halves the work before every message."""
    package = ModuleType(name)
    package.__path__ = [str(place)]
    sys.modules[name] = package


if __name__ == "__main__":
    main()
