"""Flower fetches and unpacks the replies of nodes before Lowkey sees them; here that is bounded.

A reply is a tree of objects, each fetched by one request. Flower fetches as many as its sender announces, however
large, waits up to two hours for one that was announced and never sent, and joins an array from as many pieces as its
header says, the same piece a million times, say. An object that it cannot unpack ends the run, or loses the replies of
other nodes that were fetched with it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

Fetch: TypeAlias = Callable[..., dict[str, bytes]]

_MOST_OBJECTS = 2000  # Flower cuts arrays into pieces of 5 MB
_ARRAY_HEADER_BYTES = 2**18  # it names all pieces, by 65 bytes each
_LONGEST_PAUSE = 1.0  # seconds between two requests for an object that is still being sent


@dataclass(frozen=True, kw_only=True)
class ReplyLimits:
    """What one reply may cost before Lowkey reads it.

    Attributes
    ----------
    arrays : int
        Bytes of all its arrays, joined.
    rest : int
        Bytes of all its other objects. Flower needs up to 33 times as much, in the worst form that we found (a table of
        many short names), and 0.4 seconds of one core for each megabyte, to unpack them; that is done twice.
    """

    arrays: int
    rest: int


@contextmanager
def bounded_pulls(limits: ReplyLimits, seconds: Callable[[], float]) -> Iterator[None]:
    """Within this context Flower's grid takes a reply beyond its limits for an error of its sender alone.

    Parameters
    ----------
    limits : ReplyLimits
        Of each reply.
    seconds : function
        How long to wait, from now, for objects that were announced and are not there yet.

    Guarantees
    ----------
    Of one reply, the process of the server's app holds at most three times ``arrays``, what ``rest`` unpacks to, and
    two objects more while they are fetched; the proxy in front of the SuperLink bounds an object (64 MB in
    deploy/nginx.conf).
    Whatever fails while a reply is unpacked makes an error message in its place. What the SuperLink keeps is not
    bounded here: it stores what nodes send until a run ends.
    """
    grid: Any = import_module("flwr.superlink.grid.http_grid")
    fetch = grid.pull_objects
    grid.pull_objects = lambda object_ids, pull_object_fn: fetch_reply(
        fetch, object_ids, pull_object_fn, limits, seconds()
    )
    try:
        yield
    finally:
        grid.pull_objects = fetch


def fetch_reply(
    fetch: Fetch, object_ids: list[str], pull: Callable[[str], bytes], limits: ReplyLimits, seconds: float
) -> dict[str, bytes]:
    """Fetch the objects of one reply; whatever is wrong with them raises Flower's ``ObjectPullError``.

    Parameters
    ----------
    fetch : function
        Flower's own, which calls ``pull`` for each object and waits for those that are not there yet.
    object_ids : list of str
        All objects of the reply, the message itself last.
    """
    from flwr.supercore.inflatable.inflatable_utils import ObjectPullError

    message = object_ids[-1]
    if len(object_ids) > _MOST_OBJECTS:
        raise ObjectPullError(message, f"it has {len(object_ids)} objects, more than {_MOST_OBJECTS}")
    contents = fetch(
        object_ids, _within(limits.arrays + limits.rest, pull), max_time=seconds, backoff_cap=_LONGEST_PAUSE
    )
    try:
        _unpack(message, contents, limits)
    except Exception as error:
        reason = str(error) if isinstance(error, _TooLargeError) else type(error).__name__
        raise ObjectPullError(message, f"it cannot be unpacked ({reason})") from None
    return contents


class _TooLargeError(Exception):
    """A reply is larger than it may be."""


def _within(most: int, pull: Callable[[str], bytes]) -> Callable[[str], bytes]:
    """Fetch objects until they have this many bytes together."""
    from flwr.supercore.inflatable.inflatable_utils import ObjectPullError

    left, lock = most, threading.Lock()

    def pull_within(object_id: str) -> bytes:
        nonlocal left
        content = pull(object_id)
        with lock:
            left -= len(content)
            if left < 0:
                raise ObjectPullError(object_id, f"the reply has more than {most} bytes")
        return content

    return pull_within


def _unpack(message: str, contents: Mapping[str, bytes], limits: ReplyLimits) -> None:
    """Unpack a reply for trial, once it is known what its arrays and its other objects will need."""
    from flwr.app import Message
    from flwr.supercore.inflatable.inflatable_object import get_object_head_values_from_object_content as head_of
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    arrays = rest = 0
    for content in contents.values():
        kind, children, _ = head_of(content)
        if kind == "ArrayChunk":
            continue
        rest += len(content)
        if kind == "Array":
            if len(content) > _ARRAY_HEADER_BYTES:
                raise _TooLargeError("the header of an array is too long")
            header: dict[str, Any] = json.loads(content[_body(content) :])
            pieces = [contents[children[index]] for index in header["arraychunk_ids"]]
            arrays += sum(len(piece) - _body(piece) for piece in pieces)
    if rest > limits.rest:
        raise _TooLargeError(f"it has {rest} bytes beside arrays; it may have {limits.rest}")
    if arrays > limits.arrays:
        raise _TooLargeError(f"its arrays have {arrays} bytes; they may have {limits.arrays}")
    if not isinstance(inflate_object_from_contents(message, dict(contents)), Message):
        raise TypeError


def _body(content: bytes) -> int:
    """Where the body of an object begins: after its head, which ends in a zero."""
    return content.find(b"\0") + 1
