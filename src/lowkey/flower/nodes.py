"""Which node is which client, and which nodes are online."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass

from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid

from lowkey.errors import InvalidInput, RoundFailed
from lowkey.flower.exchange import exchange, one_line
from lowkey.flower.wire import VERSION, Fields, require_version
from lowkey.secagg import Identity, VerifyKeys, is_signed_by
from lowkey.types import ClientId

_log = logging.getLogger(__name__)
_POLL_SECONDS = 2.0
_GREET_AGAIN_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Greeting:
    """The message by which a node introduces itself, once.

    Attributes
    ----------
    client : ClientId
        Number of the client at this node.
    terms : bytes
        Digest of the settings that it has agreed to, so that differences are found before the first round.
    replays : bool
        Whether its "secrets" are replayed, as in tests.
    signature : bytes
        Signature of run, node and client by the client's enrolled key; empty in schemes without keys.
    """

    client: ClientId
    terms: bytes
    replays: bool
    signature: bytes

    def write(self) -> RecordDict:
        return RecordDict({"greeting": ConfigRecord({"version": VERSION, **vars(self)})})

    @classmethod
    def read(cls, content: RecordDict) -> Greeting:
        fields = Fields(content, "greeting", {"version", "client", "terms", "replays", "signature"}, sender="node")
        if len(content) != 1:
            raise InvalidInput("it has records that are unknown")
        return cls(
            client=fields.get("client", int),
            terms=fields.get("terms", bytes),
            replays=bool(fields.get("replays", bool)),
            signature=fields.get("signature", bytes),
        )


def write_hello() -> RecordDict:
    """The message that asks a node for its greeting."""
    return RecordDict({"hello": ConfigRecord({"version": VERSION})})


def note_version(hello: RecordDict) -> None:
    """Say in the node's own log if the server is of another version, and which side to upgrade.

    The node greets it all the same, so that the server, too, learns both versions and says so.
    """
    record = hello.get("hello")
    try:
        require_version(record.get("version") if isinstance(record, ConfigRecord) else None, sender="server")
    except InvalidInput as error:
        _log.warning("this server is not for this node: %s", error)


def introduction(run: int, node: int, client: ClientId) -> bytes:
    """The text that a client signs to say which node it is at."""
    return f"lowkey/flower/v{VERSION}|greeting|{run}|{node}|{client}".encode()


def sign_introduction(identity: Identity | None, run: int, node: int, client: ClientId) -> bytes:
    """The signature of a greeting."""
    return b"" if identity is None else identity.sign(introduction(run, node, client))


class Nodes:
    """Nodes by client. A node is greeted once in a run, when it is first seen, and then known without more messages.

    Parameters
    ----------
    grid : Grid
        Flower's grid.
    run : int
        Flower's number of the run.
    population : int
        Number of clients; their numbers are below it.
    verify_keys : VerifyKeys or None
        Public keys of the clients; None in schemes without keys, which believe what a node says.
    terms : bytes
        Digest of the settings that everybody must have agreed to.
    features : str
        The public feature map that is part of them, in words, for messages.
    replays : bool
        Whether this server replays its secrets; either all nodes and the server do, or none.
    seconds : float
        How long to wait for greetings.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        run: int,
        population: int,
        verify_keys: VerifyKeys | None,
        terms: bytes,
        features: str = "",
        replays: bool,
        seconds: float,
    ) -> None:
        self._grid, self._run, self._population, self._verify_keys = grid, run, population, verify_keys
        self._terms, self._features, self._replays, self._seconds = terms, features, replays, seconds
        self._nodes: dict[ClientId, int] = {}
        self._refused: dict[int, float] = {}  # node, and when to greet it again
        self._reasons: dict[int, str] = {}  # node, and why it was not admitted
        self._gathered = False

    def online(self) -> dict[ClientId, int]:
        """Clients whose nodes are connected now."""
        there = set(self._grid.get_node_ids())
        now = time.monotonic()
        new = [n for n in there - set(self._nodes.values()) if self._refused.get(n, 0.0) <= now]
        if new:
            self._greet(new)
        return {client: node for client, node in self._nodes.items() if node in there}

    def gather(self, clients: Collection[ClientId], least: int, seconds: float) -> dict[ClientId, int]:
        """Wait until ``least`` of these clients are online; fail if they do not come in time.

        At the start of a run, when nodes are just coming up, it waits for all of them while the time lasts.
        """
        deadline, told = time.monotonic() + seconds, -1
        hoped, self._gathered = least if self._gathered else sum(map(self._takes_part, clients)), True
        while True:
            there, now = self.online(), time.monotonic()
            present = [client for client in clients if client in there]
            if len(present) >= (hoped if now < deadline else least):
                return there
            if now >= deadline:
                raise RoundFailed(
                    f"{len(present)} of {len(clients)} clients are online; at least {least} are needed: start the "
                    "missing nodes, or raise deployment.gather_seconds, the time to wait for them"
                    + "".join(f". A node was not admitted: {reason}" for reason in sorted(self._reasons.values()))
                )
            if told != len(present):
                told = len(present)
                _log.info("waiting for clients: %d of %d are online, %d are needed", told, len(clients), least)
            time.sleep(min(_POLL_SECONDS, deadline - now))

    def _takes_part(self, client: ClientId) -> bool:
        """Whether a client is enrolled and not revoked."""
        return self._verify_keys is None or client in self._verify_keys

    def _greet(self, nodes: list[int]) -> None:
        asked = {node: (node, write_hello()) for node in nodes}
        answered = exchange(self._grid, asked, kind="query.hello", group="hello", seconds=self._seconds)
        self._refused |= {node: time.monotonic() + _GREET_AGAIN_SECONDS for node in nodes}
        for node, content in answered:
            try:
                self._admit(node, Greeting.read(content))
            except Exception as error:  # whatever it is, it comes from what this node has sent
                self._reasons[node] = one_line(error)
                _log.warning("node %s is not admitted: %s", node, self._reasons[node])

    def _admit(self, node: int, greeting: Greeting) -> None:
        client = greeting.client
        if not 0 <= client < self._population:
            raise InvalidInput(f"it says it is client {client}; clients are numbered from 0 to {self._population - 1}")
        if self._verify_keys is not None:
            text = introduction(self._run, node, client)
            if client not in self._verify_keys or not is_signed_by(self._verify_keys[client], text, greeting.signature):
                raise InvalidInput(f"its signature is not that of client {client} in the server's enrolment")
        elif (other := self._nodes.get(client)) is not None and other in set(self._grid.get_node_ids()):
            raise InvalidInput(f"client {client} is at node {other} already; give every node its own client number")
        if greeting.terms != self._terms:
            here = f"; the server's: {self._features}" if self._features else ""
            raise InvalidInput(
                f"client {client} has agreed to other settings, or has another model or feature map{here}; run the "
                "same app everywhere"
            )
        if greeting.replays != self._replays:
            raise InvalidInput(
                f"client {client} replays its secrets and the server does not, or the reverse; start both alike"
            )
        self._nodes[client] = node
        self._refused.pop(node, None)
        self._reasons.pop(node, None)
