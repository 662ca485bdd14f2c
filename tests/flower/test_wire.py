"""The wire format: what is written is read back, and nothing else is accepted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from lowkey.codec import ChunkedDCT
from lowkey.errors import InvalidInput
from lowkey.federation import Reply, Request, scheme
from lowkey.federation.records import Adverts, Confirmations, FromMember, Invite, Survivors, ToMember
from lowkey.flower.traffic import content_bytes
from lowkey.flower.wire import (
    VERSION,
    read_reply,
    read_request,
    write_model,
    write_reply,
    write_request,
)
from lowkey.privacy import ClientPrivacy, WireFormat
from lowkey.secagg import Advert, Confirmation, Delivery, Revealed, SealedShares

ADVERT = Advert(sender=3, sealing_key=b"a" * 32, mask_key=b"b" * 32, seed_digest=b"c" * 32, signature=b"d" * 64)
TO_MEMBER: list[ToMember] = [
    Invite(run="r", roster=(1, 3, 5)),
    Adverts(adverts=(ADVERT,)),
    Delivery(sharers=(1, 3), sealed={1: b"x" * 90}),
    Survivors(survivors=(1, 3, 5)),
    Confirmations(confirmations=(Confirmation(sender=1, signature=b"s" * 64),)),
]
FROM_MEMBER: list[FromMember] = [
    ADVERT,
    SealedShares(sealed={1: b"y" * 90, 7: b""}),
    Confirmation(sender=2, signature=b"t" * 64),
    Revealed(seed_shares={1: b"1" * 33}, mask_shares={2: b"2" * 33}),
]
FLOATS, INTEGERS = WireFormat(bits=None, length=9), WireFormat(bits=20, length=9)


def same(a: Request | Reply, b: Request | Reply) -> bool:
    """Equal in every field, arrays also in their type."""
    return all(
        np.array_equal(x, y) and x.dtype == y.dtype if isinstance(x, np.ndarray) else x == y
        for x, y in zip(vars(a).values(), vars(b).values(), strict=True)
    )


@pytest.mark.parametrize("message", [None, *TO_MEMBER], ids=lambda m: type(m).__name__)
def test_requests_come_back_as_they_were(message: ToMember | None) -> None:
    weights = np.arange(6, dtype=np.float32) if message is None or isinstance(message, Delivery) else None
    request = Request(round=3, attempt=1, weights=weights, clip_norm=0.25, message=message)
    content = write_request(request, None if weights is None else write_model(weights))
    assert same(read_request(content, 6), request)


@pytest.mark.parametrize("message", FROM_MEMBER, ids=lambda m: type(m).__name__)
def test_replies_of_steps_come_back_as_they_were(message: FromMember) -> None:
    request = Request(round=3, attempt=1, message=TO_MEMBER[0])
    reply = Reply(round=3, attempt=1, message=message)
    assert read_reply(write_reply(reply, INTEGERS), request, INTEGERS) == reply


@given(st.lists(st.integers(0, 2**20 - 1), min_size=9, max_size=9))
def test_integers_come_back_and_take_the_bits_they_need(values: list[int]) -> None:
    reply = Reply(round=1, vector=np.array(values, np.uint32))
    content = write_reply(reply, INTEGERS)
    assert same(read_reply(content, Request(round=1), INTEGERS), reply)
    assert content.array_records["vector"]["vector"].shape == (23,)  # ceil(9 · 20 / 8)


def test_floats_and_weights_come_back() -> None:
    reply = Reply(round=1, vector=np.linspace(-1, 1, 9, dtype=np.float32), weight=12.0)
    assert same(read_reply(write_reply(reply, FLOATS), Request(round=1), FLOATS), reply)


def test_a_twentieth_of_the_model_is_less_than_a_twentieth_of_the_bytes() -> None:
    size = 1_663_370
    privacy = ClientPrivacy(clip_norm=1, noise_multiplier=1)
    small = scheme("fl-cs-dp", clients=6000, cohort=100, codec=ChunkedDCT(ratio=0.05), privacy=privacy)
    whole = scheme("fl-std", clients=6000, cohort=100)
    bytes_of = {}
    for made in (small, whole):
        wire = made.wire(size)
        vector = np.zeros(wire.length, np.uint32) if wire.bits else np.zeros(wire.length, np.float32)
        bytes_of[made.name] = content_bytes(write_reply(Reply(round=1, vector=vector), wire))[0]
    assert bytes_of["fl-cs-dp"] == 83_200 * 20 // 8 + 128  # and the header of an array
    assert bytes_of["fl-cs-dp"] * 20 < bytes_of["fl-std"]


def vector_of(array: Array) -> RecordDict:
    fields = ConfigRecord({"version": VERSION, "round": 1, "attempt": 0})
    return RecordDict({"reply": fields, "vector": ArrayRecord({"vector": array})})


def fields_of(**changes: Any) -> RecordDict:
    fields: dict[str, Any] = {"version": VERSION, "round": 1, "attempt": 0} | changes
    content = RecordDict({"reply": ConfigRecord({k: v for k, v in fields.items() if v is not None})})
    content["vector"] = ArrayRecord({"vector": Array(np.zeros(9, np.float32))})
    return content


GOOD = np.zeros(9, np.float32)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (RecordDict({}), "no reply"),
        (fields_of(version=2), "version 2"),
        (fields_of(version=None), "version None"),
        (fields_of(round="1"), "'round' is missing or not of type int"),
        (fields_of(round=2), "round 2"),
        (fields_of(attempt=1), "attempt 1"),
        (fields_of(weight=-1.0), "its weight"),
        (fields_of(weight=float("nan")), "its weight"),
        (fields_of(kind="Session", message=b""), "unknown kind"),
        (fields_of(kind="Advert", message=b"\xff" * 40), "not an encoded Advert"),
        (vector_of(Array(np.zeros(8, np.float32))), "shape"),
        (vector_of(Array(np.zeros(9, np.float64))), "float64"),
        (vector_of(Array(np.array([0] * 8 + [np.inf], np.float32))), "finite"),
        (vector_of(Array(dtype="float32", shape=(9,), stype="numpy.ndarray", data=b"junk")), "cannot be read"),
        (vector_of(Array(dtype="float32", shape=(9,), stype="pickle", data=Array(GOOD).data)), "cannot be read"),
        (
            vector_of(Array(dtype="float32", shape=(9,), stype="numpy.ndarray", data=Array(np.zeros(99)).data)),
            "does not match its header",
        ),
        (RecordDict({"reply": ConfigRecord({"version": VERSION, "round": 1, "attempt": 0})}), "vector is missing"),
    ],
)
def test_anything_else_is_refused(content: RecordDict, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        read_reply(content, Request(round=1), FLOATS)


def test_a_vector_that_nobody_asked_for_is_refused() -> None:
    with pytest.raises(InvalidInput, match="not asked for"):
        read_reply(fields_of(), Request(round=1, message=TO_MEMBER[0]), FLOATS)


def test_packed_integers_of_another_size_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"\(23,\)"):
        read_reply(vector_of(Array(np.zeros(24, np.uint8))), Request(round=1), INTEGERS)


def test_a_model_of_another_size_is_refused_by_the_client() -> None:
    content = write_request(Request(round=1), write_model(np.zeros(5, np.float32)))
    with pytest.raises(InvalidInput, match=r"shape \(6,\)"):
        read_request(content, 6)
