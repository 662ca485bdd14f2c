"""Figures of the messages: ours are counted, Flower's own requests estimated."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from lowkey.flower import traffic
from lowkey.flower.traffic import Traffic, content_bytes


def content(vector_bytes: int = 0, message_bytes: int = 100) -> RecordDict:
    records = RecordDict({"request": ConfigRecord({"version": 1, "message": b"x" * message_bytes})})
    if vector_bytes:
        records["vector"] = ArrayRecord({"vector": Array(np.zeros(vector_bytes, np.uint8))})
    return records


def test_vectors_and_the_rest_are_counted_apart() -> None:
    assert content_bytes(content(vector_bytes=1000)) == (1128, 108)  # Flower's own arrays have a header of 128 bytes


def test_figures_are_per_member_and_start_again() -> None:
    counted = Traffic(model_bytes=11_000_000)
    counted.opened(2)
    for _ in range(2):
        counted.sent(content(), trains=True)
        counted.received(content(vector_bytes=1000))
    taken = counted.take()
    assert taken["protocol_bytes_up_per_client"] == taken["protocol_bytes_down_per_client"] == 108
    # three requests around a message, one for each of its 3 objects, 5 for the model (record, array, 3 pieces), one for
    # each of the 6 objects of the answer (message, content, 2 records, array, piece)
    assert taken["transport_bytes_up_per_client"] == (3 + 3 + 5 + 6) * 1080
    assert set(counted.take().values()) == {0}


def test_who_gets_the_model_makes_no_difference() -> None:
    taken = []
    for contributes in (False, True):
        counted, message = Traffic(model_bytes=1000), content()
        if contributes:
            message["model"] = ArrayRecord({"model": Array(np.zeros(1000, np.uint8))})
        counted.sent(message, trains=True)
        taken.append(counted.take())
    assert taken[0] == taken[1]


def test_large_arrays_travel_in_pieces() -> None:
    small, large = content(vector_bytes=1000), content(vector_bytes=11_000_000)
    assert traffic._objects(large) - traffic._objects(small) == 2
