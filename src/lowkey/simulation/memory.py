"""What simulated clients remember between requests, kept on their behalf by the runtime."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lowkey.durable import append_line, replace_file
from lowkey.errors import RunError
from lowkey.federation import ClientState, Request
from lowkey.types import ClientId


class Memory:
    """States of all clients that were ever asked.

    Parameters
    ----------
    path : Path or None
        File of contributions, so that a client's limit outlives a crash; None keeps them in memory. Each line has the
        clients that were asked for data together, as a list of first and last numbers. It belongs to the clients: it
        tells who took part how often.
    clients : int
        N, needed with a file.

    Guarantees
    ----------
    A contribution is counted on disk before the client computes it, and stays counted if the attempt fails. Counting
    costs what those asked cost, however many clients there are. A half-written last line, which a crash leaves, asked
    nobody yet and is removed.
    """

    def __init__(self, path: Path | None = None, clients: int = 0) -> None:
        self._path = path
        self._states: dict[ClientId, ClientState] = {}
        if path is not None and (older := path.with_suffix(".json")).exists():
            raise RunError(
                f"{older} was written by an earlier version of Lowkey; go on with that version, or begin a new run on "
                "the same federation.ledger"
            )
        if path is not None and path.exists():
            self._states = {client: ClientState(client, contributions=n) for client, n in _read(path, clients).items()}

    def __getitem__(self, client: ClientId) -> ClientState:
        return self._states.get(client) or ClientState(client)

    def keep(self, state: ClientState) -> None:
        self._states[state.client] = state

    def prepare(self, requests: Mapping[ClientId, Request]) -> None:
        """Count, on disk, the contributions that the clients are about to make."""
        if self._path is None:
            return
        if asked := sorted(client for client, request in requests.items() if request.weights is not None):
            append_line(self._path, json.dumps(_ranges(np.array(asked))))


def _ranges(clients: NDArray[np.int64]) -> list[list[ClientId]]:
    """First and last of each run of consecutive numbers."""
    ends = np.flatnonzero(np.diff(clients) != 1)
    first, last = np.append(clients[0], clients[ends + 1]), np.append(clients[ends], clients[-1])
    return np.column_stack([first, last]).tolist()  # type: ignore[no-any-return]


def _read(path: Path, clients: int) -> dict[ClientId, int]:
    counts = np.zeros(clients, np.int64)
    try:
        complete, _, torn = path.read_bytes().rpartition(b"\n")
        for number, line in enumerate(complete.splitlines(), 1):
            for first, last in json.loads(line):
                if not (type(first) is int and type(last) is int and 0 <= first <= last < clients):
                    raise ValueError(f"line {number} names other clients than 0 … {clients - 1}")
                counts[first : last + 1] += 1
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise RunError(
            f"{path} is damaged ({error}); restore it from a copy: it counts contributions for the clients' limits"
        ) from None
    if torn:
        replace_file(path, complete + b"\n" if complete else b"")
    asked = np.flatnonzero(counts)
    return dict(zip(asked.tolist(), counts[asked].tolist(), strict=True))
