"""Figures of the messages: ours are counted, Flower's own requests estimated."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from lowkey.flower import traffic
from lowkey.flower.traffic import Traffic, content_bytes


def content(vector_bytes: int = 0, message_bytes: int = 100) -> RecordDict:
    records = RecordDict({"request": ConfigRecord({"version": 1, "message": b"x" * message_bytes})})
    if vector_bytes:
        records["vector"] = ArrayRecord({"vector": Array(np.zeros(vector_bytes, np.uint8))})
    return records


def test_vectors_and_the_rest_are_counted_apart() -> None:
    assert content_bytes(content(vector_bytes=1000)) == (1128, 108)


def test_figures_are_per_member_and_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"now": 100.0}
    monkeypatch.setattr("lowkey.flower.traffic.time.monotonic", lambda: clock["now"])
    counted = Traffic()
    counted.opened(2)
    for _ in range(2):
        counted.sent(content())
        counted.received(content(vector_bytes=1000), seconds=10.0)
    clock["now"] += 16.0
    taken = counted.take()
    assert taken["protocol_bytes_up_per_client"] == taken["protocol_bytes_down_per_client"] == 108
    # three requests around a message, one for each of its 3 objects, one for each of the 6 of the answer (message,
    # content, 2 records, array, piece); of 16 seconds the node worked 8.5 and polled 2.5 times, and half a heartbeat
    requests = 3 + 3 + 6 + 7.5 / 3 + 16 / 30
    assert taken["transport_bytes_up_per_client"] == round(requests * 1080)
    assert set(counted.take().values()) == {0}


def test_large_arrays_travel_in_pieces() -> None:
    small, large = content(vector_bytes=1000), content(vector_bytes=11_000_000)
    assert traffic._objects(large) - traffic._objects(small) == 2
