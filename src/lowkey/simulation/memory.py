"""What simulated clients remember between requests, kept on their behalf by the runtime."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from lowkey.durable import read_numbers, replace_file
from lowkey.errors import RunError
from lowkey.federation import ClientState, Request
from lowkey.types import ClientId


class Memory:
    """States of all clients that were ever asked.

    Parameters
    ----------
    path : Path or None
        File for the numbers of contributions, so that a client's limit outlives a crash; None keeps them in memory. It
        belongs to the clients: it tells who took part how often.

    Guarantees
    ----------
    A contribution is counted on disk before the client computes it, and stays counted if the attempt fails.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._states: dict[ClientId, ClientState] = {}
        if path is not None and path.exists():
            self._states = {client: ClientState(client, contributions=n) for client, n in _read(path).items()}

    def __getitem__(self, client: ClientId) -> ClientState:
        return self._states.get(client) or ClientState(client)

    def keep(self, state: ClientState) -> None:
        self._states[state.client] = state

    def prepare(self, requests: Mapping[ClientId, Request]) -> None:
        """Count, on disk, the contributions that the clients are about to make."""
        if self._path is None:
            return
        asked = {client: 1 for client, request in requests.items() if request.weights is not None}
        if not asked:
            return
        counts = self._counts()
        for client in asked:
            counts[client] = counts.get(client, 0) + 1
        replace_file(self._path, json.dumps({str(client): n for client, n in sorted(counts.items())}).encode())

    def _counts(self) -> dict[ClientId, int]:
        return {client: state.contributions for client, state in self._states.items() if state.contributions}


def _read(path: Path) -> dict[ClientId, int]:
    try:
        return {int(client): n for client, n in read_numbers(path).items()}
    except ValueError as error:  # InvalidInput is one
        raise RunError(f"{error}; restore it from a copy: it counts contributions for the clients' limits") from error
