"""One exchange over Flower's grid: messages out to many nodes, replies back as they come, until our own deadline."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

Key = TypeVar("Key", bound=Hashable)

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.25
_GRACE_SECONDS = 5.0  # a message expires this long after nobody waits for its answer any more


def exchange(
    grid: Grid, contents: Mapping[Key, tuple[int, RecordDict]], *, kind: str, group: str, seconds: float
) -> Iterator[tuple[Key, RecordDict]]:
    """Send each content to its node and yield the answers as they arrive.

    An answer belongs to the message that it answers, whatever sender it names. This tells apart answers that were not
    asked for, second answers, and errors that Flower makes on behalf of a node.

    Parameters
    ----------
    contents : mapping of Key to tuple of int and RecordDict
        Node and content of each message, by a key that names the receiver.
    kind : str
        Message type, which chooses the handler.
    group : str
        Name of the group of messages in Flower's own logs.
    seconds : float
        How long to wait. A node that is later, absent or fails is left out.
    """
    keys = list(contents)
    messages = [
        Message(contents[key][1], contents[key][0], kind, group_id=group, ttl=seconds + _GRACE_SECONDS) for key in keys
    ]
    waiting = {sent: key for sent, key in zip(grid.push_messages(messages), keys, strict=True) if sent}
    deadline = time.monotonic() + seconds
    while waiting:
        for reply in grid.pull_messages(list(waiting)):
            key = waiting.pop(reply.metadata.reply_to_message_id, None)
            if key is None:
                continue
            if reply.has_error():
                _log.warning("%s: %s failed: %s", kind, key, _printable(reply.error.reason or ""))
            else:
                yield key, reply.content
        if time.monotonic() >= deadline:
            break
        if waiting:
            time.sleep(_POLL_SECONDS)
    for key in waiting.values():
        _log.warning("%s: %s did not answer within %.0f seconds", kind, key, seconds)


def _printable(text: str) -> str:
    """A node's text, cut to one line of a log."""
    return "".join(c if c.isprintable() else " " for c in text)[:300]
