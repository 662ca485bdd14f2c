"""The simplest runtime: clients answer block after block, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lowkey.errors import CannotContribute, ClientFailed
from lowkey.federation import Client, ClientState, Reply, Request, Requests
from lowkey.secagg import Delivery
from lowkey.simulation.memory import Memory
from lowkey.simulation.register import Register
from lowkey.types import ClientId


class InProcess:
    """Satisfies :class:`lowkey.protocols.Ask` without any other process."""

    def __init__(self, client: Client, memory: Memory | None = None) -> None:
        self._client, self._memory, self._register = client, memory or Memory(), Register()
        self.take_figures = self._register.take

    def __call__(self, requests: Mapping[ClientId, Request]) -> Iterator[tuple[ClientId, Reply]]:
        requests = requests if isinstance(requests, Requests) else Requests(requests)
        self._memory.prepare(requests)
        self._register.begin()
        for block in requests.blocks:
            try:
                answers = answer(
                    self._client, [self._memory[client] for client in block], [requests[client] for client in block]
                )
            finally:
                self._register.add(*self._client.attendance.take())
            for client, answered in zip(block, answers, strict=True):
                if answered is not None:  # else, in a scheme without privacy, the client has dropped out
                    self._memory.keep(answered[0])
                    yield client, answered[1]
        self._register.close()


def answer(
    client: Client, states: Sequence[ClientState], requests: Sequence[Request]
) -> list[tuple[ClientState, Reply] | None]:
    """Let the clients of a block handle their requests; None for those that dropped out.

    Errors name the client and the stage.
    """
    try:
        if all(request.message is None or isinstance(request.message, Delivery) for request in requests):
            answers = client.contribute(states, requests)
            return [None if isinstance(one, CannotContribute) else one for one in answers]
        return [client.handle(state, request) for state, request in zip(states, requests, strict=True)]
    except ClientFailed:
        raise
    except Exception as error:
        whose = states[0].client if client.clock.client is None else client.clock.client
        raise ClientFailed(whose, client.clock.current, str(error) or type(error).__name__) from error
