"""What speaks Flower: real nodes answer the requests that a simulation answers in one process. Knows ``flwr``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowkey.flower.node import client_app
    from lowkey.flower.server import server_app

_HOME = {"client_app": "node", "server_app": "server"}

__all__ = ["client_app", "server_app"]


def __getattr__(name: str) -> Any:
    """Import on first use: a node's process has no need of the server's half."""
    if name not in _HOME:
        raise AttributeError(f"module 'lowkey.flower' has no attribute {name!r}")
    return getattr(import_module(f"lowkey.flower.{_HOME[name]}"), name)
