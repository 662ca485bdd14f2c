"""The simplest runtime: clients answer one after the other, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lowkey.errors import CannotContribute, ClientFailed
from lowkey.federation import Client, ClientState, Reply, Request
from lowkey.simulation.memory import Memory
from lowkey.simulation.register import Register
from lowkey.types import ClientId


class InProcess:
    """Satisfies :class:`lowkey.protocols.Ask` without any other process."""

    def __init__(self, client: Client, memory: Memory | None = None) -> None:
        self._client, self._memory, self._register = client, memory or Memory(), Register()
        self.take_figures = self._register.take

    def __call__(self, requests: Mapping[ClientId, Request]) -> Iterator[tuple[ClientId, Reply]]:
        self._memory.prepare(requests)
        self._register.begin()
        for number, request in requests.items():
            try:
                state, reply = answer(self._client, self._memory[number], request)
            except CannotContribute:
                continue  # a scheme without privacy: the client has dropped out
            finally:
                self._register.add(*self._client.attendance.take())
            self._memory.keep(state)
            yield number, reply
        self._register.close()


def answer(client: Client, state: ClientState, request: Request) -> tuple[ClientState, Reply]:
    """Let one client handle one request; errors name the client and the stage."""
    try:
        return client.handle(state, request)
    except (ClientFailed, CannotContribute):
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ClientFailed(state.client, client.clock.current, reason) from error
