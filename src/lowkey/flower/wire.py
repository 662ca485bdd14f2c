"""Requests and replies as Flower's records and back: typed, versioned, checked for size, without pickle.

A vector travels as one array of raw bytes, integers packed to the bits they need; everything else is one flat table of
numbers and bytes. Whatever comes in is refused with ``InvalidInput`` unless it is exactly what this module would have
written: each message has one form.

What a message may cost
-----------------------
Lengths are compared before anything is copied, so that reading a message costs, beside the bytes that Flower holds
already, at most

* for its vector or model: 64 bytes for each number that was agreed on, and the time to unpack as many;
* for the rest: ``MESSAGE_BYTES`` of input, twelve times as much memory, and a second of one core.

What Flower itself does before, :mod:`lowkey.flower.exchange` bounds.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.federation import Adverts, Confirmations, Invite, Reply, Request, Survivors
from lowkey.privacy import WireFormat
from lowkey.secagg import (
    Advert,
    Confirmation,
    Delivery,
    Masked,
    Revealed,
    SealedShares,
    decode,
    encode,
    pack,
    packed_size,
    unpack,
)
from lowkey.types import FloatArray

VERSION = 2
"""Of the wire format. Version 1, of Lowkey 0.1, sent vectors as files of NumPy."""

MESSAGE_BYTES = 2**21
"""The longest message of a secure aggregation that is read: it has room for the keys of 11,000 members."""

_RAW = "lowkey.raw"  # how Flower names the way an array became bytes; Flower itself reads only its own
_NUMBER_LIMIT = 2**32  # of rounds and attempts
_FIELDS = {"version", "round", "attempt", "kind", "message"}
_TO_MEMBER: dict[str, type] = {kind.__name__: kind for kind in (Invite, Adverts, Delivery, Survivors, Confirmations)}
_FROM_MEMBER: dict[str, type] = {kind.__name__: kind for kind in (Advert, SealedShares, Masked, Confirmation, Revealed)}

Plain = TypeVar("Plain", int, float, str, bytes)
Side: TypeAlias = Literal["node", "server"]


def write_vector(vector: NDArray[Any], wire: WireFormat) -> ArrayRecord:
    """A client's vector, packed to the bits that it needs."""
    if wire.bits is None:
        return _floats("vector", vector)
    return _array("vector", pack(vector, wire.bits))


def read_vector(content: RecordDict, wire: WireFormat) -> NDArray[Any]:
    """What :func:`write_vector` wrote in this format."""
    if wire.bits is None:
        vector = _read_floats(content, "vector", wire.length)
        checks.finite("its vector", vector)
        return vector
    return unpack(_bytes(content, "vector", packed_size(wire.length, wire.bits)), wire.bits, wire.length)


def write_model(weights: FloatArray) -> ArrayRecord:
    """The common model; made once, since all contributors of a round get the same."""
    return _floats("model", weights)


def write_request(request: Request, model: ArrayRecord | None) -> RecordDict:
    """A request as a record; ``model`` holds its weights."""
    fields: dict[str, Any] = {"version": VERSION, "round": request.round, "attempt": request.attempt}
    if request.clip_norm is not None:
        fields["clip_norm"] = request.clip_norm
    if request.message is not None:
        kind = type(request.message)
        fields |= {"kind": kind.__name__, "message": encode(kind, request.message)}
    content = RecordDict({"request": ConfigRecord(fields)})
    if model is not None:
        content["model"] = model
    return content


def read_request(content: RecordDict, num_coordinates: int) -> Request:
    """What :func:`write_request` wrote for a model of this size."""
    fields = Fields(content, "request", {*_FIELDS, "clip_norm"}, sender="server")
    _require_records(content, {"request"}, {"model"})
    number, attempt = fields.get("round", int), fields.get("attempt", int)
    if not (1 <= number < _NUMBER_LIMIT and 0 <= attempt < _NUMBER_LIMIT):
        raise InvalidInput("its round must be from 1 and its attempt from 0, both below 2^32")
    clip_norm = fields.get("clip_norm", float) if "clip_norm" in fields else None
    if clip_norm is not None:
        checks.positive("its clip norm", clip_norm)
    return Request(
        round=number,
        attempt=attempt,
        weights=_read_floats(content, "model", num_coordinates) if "model" in content else None,
        clip_norm=clip_norm,
        message=_message(fields, _TO_MEMBER),
    )


def write_reply(reply: Reply, wire: WireFormat) -> RecordDict:
    """A client's answer as a record."""
    fields: dict[str, Any] = {"version": VERSION, "round": reply.round, "attempt": reply.attempt}
    if reply.weight != 1.0:
        fields["weight"] = reply.weight
    if reply.message is not None:
        kind = type(reply.message)
        fields |= {"kind": kind.__name__, "message": encode(kind, reply.message)}
    content = RecordDict({"reply": ConfigRecord(fields)})
    if reply.vector is not None:
        content["vector"] = write_vector(reply.vector, wire)
    return content


def read_reply(content: RecordDict, request: Request, wire: WireFormat) -> Reply:
    """The answer to exactly this request; any other is refused."""
    fields = Fields(content, "reply", {*_FIELDS, "weight"}, sender="node")
    number, attempt = fields.get("round", int), fields.get("attempt", int)
    if (number, attempt) != (request.round, request.attempt):
        raise InvalidInput(
            f"it answers attempt {attempt} at round {number} instead of attempt {request.attempt} at {request.round}"
        )
    weight = fields.get("weight", float) if "weight" in fields else 1.0
    checks.positive("its weight", weight)
    if "weight" in fields and weight == 1.0:
        raise InvalidInput("its weight is 1, which is not sent")
    contributes = request.message is None or isinstance(request.message, Delivery)
    if contributes != ("vector" in content):
        raise InvalidInput("its vector is missing" if contributes else "it has a vector that was not asked for")
    _require_records(content, {"reply"}, {"vector"})
    return Reply(
        round=number,
        attempt=attempt,
        vector=read_vector(content, wire) if contributes else None,
        weight=weight,
        message=_message(fields, _FROM_MEMBER),
    )


class Fields:
    """The fields of a message, each read with its type.

    Parameters
    ----------
    content : RecordDict
        The message.
    name : str
        Name of the record with the fields.
    known : collection of str
        Names of the fields that it may have.
    sender : Side
        Who has sent the message; the other side reads it.
    """

    def __init__(self, content: RecordDict, name: str, known: Collection[str], *, sender: Side) -> None:
        record = content.get(name)
        if not isinstance(record, ConfigRecord):
            raise InvalidInput(f"it has no {name}")
        require_version(record.get("version"), sender=sender)
        if not record.keys() <= set(known):
            raise InvalidInput("it has fields that are unknown")
        self._fields = record

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def get(self, name: str, kind: type[Plain]) -> Plain:
        value = self._fields.get(name)
        if type(value) is not kind:
            raise InvalidInput(f"its field {name!r} is missing or not of type {kind.__name__}")
        return value


def require_version(found: object, *, sender: Side) -> None:
    """Refuse a message of another version of the wire format, and say which side is the older one."""
    receiver = "server" if sender == "node" else "node"
    if type(found) is not int or not 0 < found < _NUMBER_LIMIT:
        raise InvalidInput(f"the {sender} states no version of the wire format; this {receiver} speaks {VERSION}")
    if found != VERSION:
        older = sender if found < VERSION else receiver
        raise InvalidInput(
            f"the {sender} speaks version {found} of the wire format and this {receiver} version {VERSION}; upgrade "
            f"Lowkey at the {older}"
        )


def _message(fields: Fields, kinds: dict[str, type]) -> Any:
    if "kind" not in fields:
        if "message" in fields:
            raise InvalidInput("its message has no kind")
        return None
    kind = kinds.get(fields.get("kind", str))
    if kind is None:
        raise InvalidInput("its message is of an unknown kind")
    data = fields.get("message", bytes)
    if len(data) > MESSAGE_BYTES:
        raise InvalidInput(f"its message has {len(data)} bytes; it may have {MESSAGE_BYTES}")
    return decode(kind, data)


def _require_records(content: RecordDict, needed: set[str], allowed: set[str]) -> None:
    if not needed <= content.keys() <= needed | allowed:
        raise InvalidInput("it has records that are unknown")


def _floats(name: str, vector: NDArray[Any]) -> ArrayRecord:
    return _array(name, vector.astype("<f4", copy=False).tobytes())


def _read_floats(content: RecordDict, name: str, length: int) -> FloatArray:
    return np.frombuffer(_bytes(content, name, 4 * length), "<f4").astype(np.float32)  # a copy, which may be written to


def _array(name: str, data: bytes) -> ArrayRecord:
    return ArrayRecord({name: Array(dtype="uint8", shape=(len(data),), stype=_RAW, data=data)})


def _bytes(content: RecordDict, name: str, size: int) -> bytes:
    """The bytes of the only array of a record; there must be this many."""
    record = content.get(name)
    array = record.get(name) if isinstance(record, ArrayRecord) and len(record) == 1 else None
    if not isinstance(array, Array) or not isinstance(array.data, bytes):
        raise InvalidInput(f"its {name} is not one array")
    if (array.dtype, array.shape, array.stype) != ("uint8", (size,), _RAW) or len(array.data) != size:
        raise InvalidInput(f"its {name} has {len(array.data)} bytes or another form; it must be {size} raw bytes")
    return array.data
