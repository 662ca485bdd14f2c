"""Everything that uses Flower: real nodes answer the requests that a simulation answers in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowkey.lazy import lazy_names

if TYPE_CHECKING:
    from lowkey.flower.node import REPLAY_VARIABLE, client_app
    from lowkey.flower.server import server_app

__getattr__ = lazy_names(__name__, {"node": ("REPLAY_VARIABLE", "client_app"), "server": ("server_app",)})

__all__ = ["REPLAY_VARIABLE", "client_app", "server_app"]
