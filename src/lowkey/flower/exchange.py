"""One exchange over Flower's grid: messages out to many nodes, replies back as they come, until our own deadline."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from lowkey.errors import LowkeyError
from lowkey.flower.pulling import ReplyLimits, bounded_pulls
from lowkey.flower.wire import MESSAGE_BYTES

Key = TypeVar("Key", bound=Hashable)

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.25
_GRACE_SECONDS = 5.0  # a message expires this long after nobody waits for its answer any more
_OVERHEAD_BYTES = 2**16  # of a reply: names and headers of Flower


def exchange(
    grid: Grid,
    contents: Mapping[Key, tuple[int, RecordDict]],
    *,
    kind: str,
    group: str,
    seconds: float,
    vector_bytes: int = 0,
) -> Iterator[tuple[Key, RecordDict]]:
    """Send each content to its node and yield the answers as they arrive.

    An answer belongs to the message that it answers, whatever sender it names. This tells apart answers that were not
    asked for, second answers, and errors that Flower makes on behalf of a node.

    Which message that is, the answer's own metadata say, as its sender has written them. A node that wants to answer
    in the place of another must name the message that the other one got. Its id is a SHA-256 hash of, among others,
    the number of the other node, which is 64 random bits that nodes are not told of each other, so it cannot be
    guessed. Should somebody learn it, a private scheme loses no more than a dropout: greetings and all that members
    send under masks are signed by the client, and what has the wrong signature is left out.

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
    vector_bytes : int
        Bytes of the vector that an answer has; 0 if it has none.

    Guarantees
    ----------
    An answer that is too large, incomplete or cannot be unpacked leaves its sender out, and nobody else: answers that
    have arrived are fetched even if waiting for another one took all the time. What one answer may cost is said at
    :func:`~lowkey.flower.pulling.bounded_pulls`, here with ``vector_bytes`` of arrays and ``MESSAGE_BYTES`` of others.
    """
    keys = list(contents)
    messages = [
        Message(contents[key][1], contents[key][0], kind, group_id=group, ttl=seconds + _GRACE_SECONDS) for key in keys
    ]
    waiting = {sent: key for sent, key in zip(grid.push_messages(messages), keys, strict=True) if sent}
    deadline = time.monotonic() + seconds
    limits = ReplyLimits(arrays=vector_bytes, rest=MESSAGE_BYTES + _OVERHEAD_BYTES)
    while waiting:
        last = time.monotonic() >= deadline
        with bounded_pulls(limits, lambda: max(0.0, deadline - time.monotonic())):
            replies = list(grid.pull_messages(list(waiting)))
        for reply in replies:
            key = waiting.pop(reply.metadata.reply_to_message_id, None)
            if key is None:
                continue
            if reply.has_error():
                _log.warning("%s: %s failed: %s", kind, key, one_line(reply.error.reason or ""))
            else:
                yield key, reply.content
        if last:
            break
        if waiting:
            time.sleep(_POLL_SECONDS)
    for key in waiting.values():
        _log.warning("%s: %s did not answer within %.0f seconds", kind, key, seconds)


def one_line(reason: str | Exception) -> str:
    """A reason for one line of the server's log: at most 300 characters, of other libraries' errors the kind alone."""
    if isinstance(reason, Exception):
        reason = str(reason) if isinstance(reason, LowkeyError) else type(reason).__name__
    return "".join(c if c.isprintable() else " " for c in reason[:300])
