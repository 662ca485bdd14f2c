"""Requests and replies as Flower's records and back: typed, versioned, checked for size, without pickle.

Vectors travel as arrays, integers packed to the bits they need; everything else is one flat table of numbers and bytes.
Whatever comes in is refused with ``InvalidInput`` unless it is exactly what was asked for.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

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
    Revealed,
    SealedShares,
    decode,
    encode,
    pack,
    packed_size,
    unpack,
)
from lowkey.types import FloatArray

VERSION = 1

_TO_MEMBER: dict[str, type] = {kind.__name__: kind for kind in (Invite, Adverts, Delivery, Survivors, Confirmations)}
_FROM_MEMBER: dict[str, type] = {kind.__name__: kind for kind in (Advert, SealedShares, Confirmation, Revealed)}

Plain = TypeVar("Plain", int, float, str, bytes)


def write_vector(vector: NDArray[Any], wire: WireFormat) -> Array:
    """A client's vector, packed to the bits that it needs."""
    return Array(vector if wire.bits is None else np.frombuffer(pack(vector, wire.bits), np.uint8))


def read_vector(array: Array, wire: WireFormat) -> NDArray[Any]:
    """What :func:`write_vector` wrote in this format."""
    if wire.bits is None:
        vector = _numbers(array, "float32", wire.length)
        checks.finite_norm("its vector", vector)
        return vector
    size = packed_size(wire.length, wire.bits)
    return unpack(_numbers(array, "uint8", size).tobytes(), wire.bits, wire.length)


def write_model(weights: FloatArray) -> ArrayRecord:
    """The common model; made once, since all contributors of a round get the same."""
    return ArrayRecord({"weights": Array(weights)})


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
    fields = Fields(content, "request")
    weights = None
    if "model" in content:
        weights = _numbers(cast(ArrayRecord, content["model"])["weights"], "float32", num_coordinates)
    return Request(
        round=fields.get("round", int),
        attempt=fields.get("attempt", int),
        weights=weights,
        clip_norm=fields.get("clip_norm", float) if "clip_norm" in fields else None,
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
        content["vector"] = ArrayRecord({"vector": write_vector(reply.vector, wire)})
    return content


def read_reply(content: RecordDict, request: Request, wire: WireFormat) -> Reply:
    """The answer to exactly this request; any other is refused."""
    fields = Fields(content, "reply")
    number, attempt = fields.get("round", int), fields.get("attempt", int)
    if (number, attempt) != (request.round, request.attempt):
        raise InvalidInput(
            f"it answers attempt {attempt} at round {number} instead of attempt {request.attempt} at {request.round}"
        )
    weight = fields.get("weight", float) if "weight" in fields else 1.0
    checks.positive("its weight", weight)
    contributes = request.message is None or isinstance(request.message, Delivery)
    if contributes != ("vector" in content):
        raise InvalidInput("its vector is missing" if contributes else "it has a vector that was not asked for")
    return Reply(
        round=number,
        attempt=attempt,
        vector=read_vector(cast(ArrayRecord, content["vector"])["vector"], wire) if contributes else None,
        weight=weight,
        message=_message(fields, _FROM_MEMBER),
    )


class Fields:
    """The fields of a message, each read with its type."""

    def __init__(self, content: RecordDict, name: str) -> None:
        self._fields = content.config_records.get(name)
        if self._fields is None:
            raise InvalidInput(f"it has no {name}")
        version = self._fields.get("version")
        if version != VERSION:
            raise InvalidInput(
                f"it speaks version {version!r} of the wire format, and this is {VERSION}; run the same release of "
                "Lowkey on the server and on all nodes"
            )

    def __contains__(self, name: str) -> bool:
        return name in cast(ConfigRecord, self._fields)

    def get(self, name: str, kind: type[Plain]) -> Plain:
        value = cast(ConfigRecord, self._fields).get(name)
        if type(value) is not kind:
            raise InvalidInput(f"its field {name!r} is missing or not of type {kind.__name__}")
        return value


def _message(fields: Fields, kinds: dict[str, type]) -> Any:
    if "kind" not in fields:
        return None
    kind = kinds.get(fields.get("kind", str))
    if kind is None:
        raise InvalidInput("its message is of an unknown kind")
    return decode(kind, fields.get("message", bytes))


def _numbers(array: Array, dtype: str, length: int) -> NDArray[Any]:
    """The numbers of an array; its header and its content must have this type and length."""
    if array.dtype != dtype or tuple(array.shape) != (length,):
        shown = f"{array.dtype} of shape {tuple(array.shape)}"[:80]
        raise InvalidInput(f"its vector is {shown}; it must be {dtype} of shape ({length},)")
    try:
        numbers = array.numpy()
    except (ValueError, TypeError, EOFError, OSError) as error:
        raise InvalidInput(f"its vector cannot be read ({error})") from None
    if numbers.dtype != dtype or numbers.shape != (length,):
        raise InvalidInput("its vector does not match its header")
    return numbers
