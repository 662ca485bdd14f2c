"""The simplest runtime: clients answer one after the other, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lowkey.errors import ClientFailed
from lowkey.federation import Client, ClientState, Reply, Request
from lowkey.types import ClientId


class InProcess:
    """Satisfies :class:`lowkey.protocols.Ask` without any other process."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __call__(self, requests: Mapping[ClientId, Request]) -> Iterator[tuple[ClientId, Reply]]:
        for number, request in requests.items():
            yield number, answer(self._client, number, request)


def answer(client: Client, number: ClientId, request: Request) -> Reply:
    """Let one client handle one request; whatever it raises names the client and the stage."""
    try:
        return client.handle(ClientState(number), request)[1]
    except ClientFailed:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ClientFailed(number, client.clock.current, reason) from error
