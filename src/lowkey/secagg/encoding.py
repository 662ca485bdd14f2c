"""Records as bytes and back. Each value has exactly one encoding, so that the bytes can be signed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from lowkey.errors import InvalidInput

Value = TypeVar("Value")


def encode(kind: type[Value], value: Value) -> bytes:
    """Bytes of a value whose type is built from int (0 … 2^64 - 1), str, bytes, tuple[X, ...], dict and dataclasses."""
    parts: list[bytes] = []
    _write(kind, value, parts.append)
    return b"".join(parts)


def decode(kind: type[Value], data: bytes) -> Value:
    """The value that :func:`encode` wrote; anything else is refused with ``InvalidInput``.

    Guarantees
    ----------
    The result has the types that ``kind`` declares, whatever the bytes are, and encodes to the same bytes again.
    Nothing in the bytes chooses a class or runs code.
    """
    reader = _Reader(data)
    try:
        value: Value = _read(kind, reader)
    except (UnicodeDecodeError, ValueError) as error:
        raise InvalidInput(
            f"these {len(data)} bytes are not an encoded {getattr(kind, '__name__', kind)}: {error}"
        ) from None
    if reader.position != len(data):
        raise InvalidInput(f"{len(data) - reader.position} bytes too many after a {getattr(kind, '__name__', kind)}")
    return value


def _is_record(kind: Any) -> bool:
    return is_dataclass(kind)


@lru_cache
def _hints(kind: Any) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in fields(kind))


def _write(kind: Any, value: Any, put: Callable[[bytes], None]) -> None:
    origin = get_origin(kind)
    if origin is tuple:
        put(len(value).to_bytes(4, "big"))
        for item in value:
            _write(get_args(kind)[0], item, put)
    elif origin is dict:
        put(len(value).to_bytes(4, "big"))
        for key in sorted(value):
            _write(get_args(kind)[0], key, put)
            _write(get_args(kind)[1], value[key], put)
    elif _is_record(kind):
        for name, hint in _hints(kind):
            _write(hint, getattr(value, name), put)
    elif issubclass(kind, int):
        put(int(value).to_bytes(8, "big"))
    else:
        data = value.encode() if kind is str else value
        put(len(data).to_bytes(4, "big"))
        put(data)


class _Reader:
    """Hands out the next bytes; raises ``InvalidInput`` when there are too few."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def take(self, count: int) -> bytes:
        taken = self.data[self.position : self.position + count]
        if len(taken) < count:
            raise InvalidInput("they end too early")
        self.position += count
        return taken

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")


def _read(kind: Any, reader: _Reader) -> Any:
    origin = get_origin(kind)
    if origin is tuple:
        return tuple(_read(get_args(kind)[0], reader) for _ in range(reader.number(4)))
    if origin is dict:
        pairs = [tuple(_read(part, reader) for part in get_args(kind)) for _ in range(reader.number(4))]
        if any(a[0] >= b[0] for a, b in pairwise(pairs)):
            raise InvalidInput("keys out of order")
        return dict(pairs)
    if _is_record(kind):
        return kind(**{name: _read(hint, reader) for name, hint in _hints(kind)})
    if issubclass(kind, int):
        return kind(reader.number(8))
    data = reader.take(reader.number(4))
    return data.decode() if kind is str else data
