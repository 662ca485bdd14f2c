"""One hostile node sends a reply that Flower cannot unpack, or that grows when it is unpacked, or that never comes.

The attacker is a registered node that does not use Flower's own program. A reply is a tree of objects: the message, its
records, arrays, and pieces of arrays. Flower's grid fetches and unpacks all of it before the app of the server sees
anything. So the attacker names one piece of an array hundreds of times, nests what does not nest, or announces an
object and never sends it.

Until now an object that could not be unpacked ended the run, and with it the replies of others that were fetched at the
same time; an array grew to as many bytes as its header asked for; and the server waited up to two hours, whatever the
deadline of the step was, for an object that did not come.
"""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Metadata, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.supercore.inflatable.inflatable_object import (
    add_header_to_object_body,
    get_all_nested_objects,
    get_object_tree,
)
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid.http_grid import HttpGrid

from lowkey.flower.exchange import exchange

DEFENDS = (
    "A reply that Flower cannot unpack, that grows beyond its limits or that does not come within the step is a "
    "dropout of its sender alone."
)

RUN, SECONDS = 17, 1.0
PIECE = 2**20
HONEST, HOSTILE = 1001, 1002


class ForgedArray(Array):
    """An array whose header says what the attacker wants."""

    header: str

    def deflate(self) -> bytes:
        self.slice_array()
        return add_header_to_object_body(self.header.encode(), self)


class ForgedRecord(ConfigRecord):
    """A table of settings whose bytes are chosen by the attacker."""

    body: bytes

    def deflate(self) -> bytes:
        return add_header_to_object_body(self.body, self)


ForgedArray.__qualname__, ForgedRecord.__qualname__ = "Array", "ConfigRecord"


def array(header: str, size: int = 100) -> RecordDict:
    forged = ForgedArray(dtype="uint8", shape=(size,), stype="lowkey.raw", data=bytes(size))
    forged.header = header
    record = ArrayRecord()
    record.__dict__["_data"]["vector"] = forged  # Flower's own constructor would make an honest copy
    return RecordDict({"vector": record})


def table(body: bytes) -> RecordDict:
    forged = ForgedRecord()
    forged.body = body
    return RecordDict({"reply": forged})


def header(pieces: list[Any], shape: str = "[100]") -> str:
    return f'{{"dtype": "uint8", "shape": {shape}, "stype": "lowkey.raw", "arraychunk_ids": {json.dumps(pieces)}}}'


class SuperLink:
    """What the grid speaks to. It answers every message of the server at once, with the reply of its node."""

    def __init__(self, replies: dict[int, Callable[[], RecordDict]], lost: Callable[[str], bool]) -> None:
        self._replies, self._lost = replies, lost
        self._waiting: list[tuple[Any, Any]] = []
        self._objects: dict[str, bytes] = {}

    def PushMessages(self, request: Any) -> Any:  # noqa: N802
        for sent in request.messages_list:
            about = sent.metadata
            reply = make_message(
                Metadata(RUN, "", about.dst_node_id, 1, about.message_id, "", time.time(), 60.0, about.message_type),
                self._replies[about.dst_node_id](),
            )
            reply.metadata.__dict__["_message_id"] = reply.object_id
            contents = {name: part.deflate() for name, part in get_all_nested_objects(reply).items()}
            self._objects |= contents
            self._waiting.append((message_to_proto(remove_content_from_message(reply)), get_object_tree(reply)))
        ids = [sent.metadata.message_id for sent in request.messages_list]
        return SimpleNamespace(message_ids=ids, objects_to_push=[], session_id="")

    def PullMessages(self, request: Any) -> Any:  # noqa: N802
        waiting, self._waiting = self._waiting, []  # Flower hands out a reply once
        return SimpleNamespace(
            messages_list=[proto for proto, _ in waiting], message_object_trees=[tree for _, tree in waiting]
        )

    def PullObject(self, request: Any) -> Any:  # noqa: N802
        content = self._objects[request.object_id]
        there = not self._lost(request.object_id)
        return SimpleNamespace(object_found=True, object_available=there, object_content=content if there else b"")

    def PushObject(self, request: Any) -> None: ...  # noqa: N802

    def ConfirmMessageReceived(self, request: Any) -> None: ...  # noqa: N802


def outcome(forged: Callable[[], RecordDict], *, keep: bool = True, **options: int) -> tuple[object, float, float]:
    """Whose replies the server gets, or what ended its run; and how many megabytes and seconds that took."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN, 1, 1
    began, grid = time.monotonic(), HttpGrid(token="token")

    def lost(_object: str) -> bool:
        if time.monotonic() > began + 10 * SECONDS:
            raise TimeoutError("the server still waits")
        return not keep and _object in lost_ids

    honest = lambda: RecordDict({"reply": ConfigRecord({"answer": 42})})  # noqa: E731
    lost_ids = {part.object_id for part in forged().values()}
    grid._client = SuperLink({HOSTILE: forged, HONEST: honest}, lost)  # type: ignore[assignment]
    grid.set_run(Run.create_empty(RUN))
    hello = RecordDict({"hello": ConfigRecord({"version": 1})})
    contents = {node: (node, hello) for node in (HOSTILE, HONEST)}
    tracemalloc.start()
    try:
        answers: Iterable[tuple[int, Any]] = exchange(
            grid, contents, kind="query.x", group="", seconds=SECONDS, **options
        )
        got: object = sorted(node for node, _ in answers)
    except Exception as error:
        got = type(error).__name__
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return got, peak / 1e6, time.monotonic() - began


FORMS: dict[str, Callable[[], RecordDict]] = {
    "a piece that does not exist": lambda: array(header([7])),
    "no list of pieces": lambda: array('{"dtype": "uint8", "shape": [100], "stype": "lowkey.raw"}'),
    "a header that is not JSON": lambda: array("{"),
    "a header of nested lists": lambda: array("[" * 5000),
    "a shape that is no number": lambda: array(header([0], '["many"]')),
    "a shape that is no list": lambda: array(header([0], "7")),
    "a table that is no table": lambda: table(b"\xff" * 100),
    "a table with text that is no text": lambda: table(b"\x0a\x04\x0a\x02\xff\xff"),
}


@pytest.mark.parametrize("name", FORMS)
def test_what_cannot_be_unpacked_leaves_out_its_sender_and_nobody_else(name: str) -> None:
    got, _, _ = outcome(FORMS[name])
    assert got == [HONEST]


def test_an_array_cannot_grow_when_it_is_unpacked() -> None:
    got, megabytes, _ = outcome(lambda: array(header([0] * 300), PIECE))
    assert megabytes < 30  # 300 pieces of one megabyte, of which one is on the wire
    assert got == [HONEST]


def test_a_table_cannot_grow_when_it_is_unpacked() -> None:
    """A list of a million truth values is one megabyte on the wire; it is larger than any message of ours."""
    got, megabytes, _ = outcome(lambda: RecordDict({"reply": ConfigRecord({"a": [True] * 4_000_000})}))
    assert got == [HONEST]
    assert megabytes < 60


def test_an_object_that_is_announced_and_never_sent_costs_the_time_of_the_step() -> None:
    got, _, seconds = outcome(lambda: array(header([0])), keep=False)
    assert got == [HONEST]
    assert seconds < 5 * SECONDS


@pytest.mark.parametrize("size", [208_000, 12_000_000])
def test_an_honest_vector_of_any_size_arrives(size: int) -> None:
    honest = ArrayRecord(
        {"vector": Array(dtype="uint8", shape=(size,), stype="lowkey.raw", data=bytes(range(250)) * (size // 250))}
    )
    got, megabytes, _ = outcome(lambda: RecordDict({"vector": honest}), vector_bytes=size)
    assert got == [HONEST, HOSTILE]
    assert megabytes < 10 * size / 1e6 + 5  # on both sides
    got, _, _ = outcome(lambda: RecordDict({"vector": honest}), vector_bytes=0)
    assert got == [HONEST]
