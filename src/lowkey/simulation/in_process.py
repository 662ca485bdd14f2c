"""The simplest runtime: clients answer one after the other, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lowkey.errors import ClientFailed
from lowkey.federation import Client, ClientState, Reply, Request
from lowkey.simulation.memory import Memory
from lowkey.types import ClientId


class InProcess:
    """Satisfies :class:`lowkey.protocols.Ask` without any other process."""

    def __init__(self, client: Client, memory: Memory | None = None) -> None:
        self._client, self._memory = client, memory or Memory()

    def __call__(self, requests: Mapping[ClientId, Request]) -> Iterator[tuple[ClientId, Reply]]:
        self._memory.prepare(requests)
        for number, request in requests.items():
            state, reply = answer(self._client, self._memory[number], request)
            self._memory.keep(state)
            yield number, reply


def answer(client: Client, state: ClientState, request: Request) -> tuple[ClientState, Reply]:
    """Let one client handle one request; whatever it raises names the client and the stage."""
    try:
        return client.handle(state, request)
    except ClientFailed:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ClientFailed(state.client, client.clock.current, reason) from error
