"""Flower's grid without its processes: messages go straight to the handlers of the nodes, with faults on demand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from flwr.app import Context, Error, Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from lowkey.deployment import prepare
from lowkey.experiments import Config, load_config
from lowkey.flower import client_app
from lowkey.flower.server import serve

RUN = 17
Fault = Callable[[int, Message, Callable[[], Message]], list[Message]]
"""Called with a client, a message to it, and its handler; returns the replies that reach the server."""


class LoopbackGrid(Grid):
    """Nodes 1000, 1001, ... are clients 0, 1, ...; each has a context, as its SuperNode would keep it."""

    def __init__(self, app: ClientApp, home: Path, clients: int) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN, 1, 1
        self.app, self.offline, self.kinds = app, set[int](), list[str]()
        self.contexts = {
            1000 + client: Context(
                run_id=RUN,
                node_id=1000 + client,
                node_config={"client": client, "home": str(home / "nodes" / f"{client:04d}")},
                state=RecordDict(),
                run_config={},
            )
            for client in range(clients)
        }
        self.fault: Fault = lambda _client, _message, handle: [handle()]
        self.asked: list[tuple[int, str]] = []
        self._replies: list[Message] = []
        self._sent = 0

    def lose_state(self, client: int) -> None:
        """The node was restarted."""
        self.contexts[1000 + client].state = RecordDict()

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in self.contexts if node - 1000 not in self.offline]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            self._sent += 1
            ids.append(f"message {self._sent}")
            message.metadata.__dict__["_message_id"] = ids[-1]
            self._deliver(message)
        return ids

    def _deliver(self, message: Message) -> None:
        node = message.metadata.dst_node_id
        self.asked.append((node - 1000, message.metadata.message_type))

        def handle() -> Message:
            try:
                return self.app(message, self.contexts[node])
            except Exception as error:
                return error_reply(message, str(error))

        self._replies += self.fault(node - 1000, message, handle)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        wanted = set(message_ids)
        found = [reply for reply in self._replies if reply.metadata.reply_to_message_id in wanted]
        self._replies = [reply for reply in self._replies if reply not in found]
        return found

    def set_run(self, run: Run) -> None: ...

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def create_message(self, *args: object, **kwargs: object) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError


def error_reply(message: Message, reason: str) -> Message:
    """What Flower makes of a handler that raised, or of a node that is gone: it does not come from the node itself."""
    about = Metadata(RUN, "", 1, 1, message.metadata.message_id, "", time.time(), 60.0, message.metadata.message_type)
    return make_message(about, error=Error(code=2, reason=reason))


def reply_with(message: Message, content: RecordDict) -> Message:
    """A reply of the node with other content."""
    return Message(content, reply_to=message)


def reason_of(reply: Message) -> str:
    """Of a reply that is an error."""
    assert reply.error.reason is not None
    return reply.error.reason


class Setting:
    """A federation of presets over a loopback grid."""

    def __init__(self, tmp: Path, preset: str, changes: Iterable[str] = (), *, nodes: int = 4, rounds: int = 1) -> None:
        waits = ["deployment.agree_seconds=0.3", "deployment.train_seconds=0.3", "deployment.gather_seconds=0.1"]
        settings = [f"schedule.rounds={rounds}", *waits, *changes]
        self.config: Config = load_config(preset, settings, nodes=nodes)
        self.home, self.out, self.nodes = tmp / "home", tmp / "run", nodes
        prepare(self.home, self.config)
        self.grid = LoopbackGrid(client_app(self.home / "app/preset/lowkey.toml"), self.home, nodes)

    def serve(self) -> None:
        """What the server's app does."""
        context = Context(
            run_id=RUN,
            node_id=1,
            node_config={},
            state=RecordDict(),
            run_config={"out": str(self.out), "enrolled": str(self.home / "enrolled.toml")},
        )
        serve(self.grid, context, self.config, self.out)


PRIVATE = (
    "demo/fl-cs-dp",
    [
        "privacy.epsilon=100",
        "privacy.noise_multiplier=1.0",
        "privacy.dropouts=0.25",
        "privacy.colluders=0",
    ],
)
OPEN = ("demo/fl-std", list[str]())
