"""Records as bytes and back. Each value has exactly one encoding, so that the bytes can be signed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from lowkey.errors import InvalidInput

Value = TypeVar("Value")


def encode(kind: type[Value], value: Value) -> bytes:
    """Bytes of a value whose type is built from int (0 … 2^64 - 1), str, bytes, tuple[X, ...], dict and dataclasses.

    Tables of bytes have keys below 2^32.
    """
    parts: list[bytes] = []
    _write(kind, value, parts.append)
    return b"".join(parts)


def decode(kind: type[Value], data: bytes) -> Value:
    """The value that :func:`encode` wrote; anything else is refused with ``InvalidInput``.

    Guarantees
    ----------
    The result has the types that ``kind`` declares, whatever the bytes are, and encodes to the same bytes again.
    Nothing in the bytes chooses a class or runs code. No other exception leaves it. A value is made only when its bytes
    are there, whatever a count in front of them says, and nesting follows ``kind`` alone: time and memory grow with
    the number of bytes, and with nothing else.
    """
    reader, name, parser = _Reader(data), getattr(kind, "__name__", kind), _parser(cast(Hashable, kind))
    try:
        value: Value = parser(reader)
    except Exception as error:  # whatever the checks of a record raise: these bytes do not encode one
        reason = error if isinstance(error, ValueError) else type(error).__name__
        raise InvalidInput(f"these {len(data)} bytes are not an encoded {name}: {reason}") from None
    if reader.position != len(data):
        raise InvalidInput(f"{len(data) - reader.position} bytes too many after a {name}")
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
        key_kind, value_kind = get_args(kind)
        keys = sorted(value)
        if value_kind is bytes:
            width = _width(value)
            put(width.to_bytes(4, "big"))
            for key in keys:
                put(int(key).to_bytes(4, "big"))
                put(value[key]) if width != _MIXED else _write(bytes, value[key], put)
            return
        for key in keys:
            _write(key_kind, key, put)
            _write(value_kind, value[key], put)
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

    def number(self) -> int:
        return int.from_bytes(self.take(8), "big")

    def count(self) -> int:
        return int.from_bytes(self.take(4), "big")


@lru_cache
def _parser(kind: Any) -> Callable[[_Reader], Any]:
    """The function that reads a value of this kind; made once, since a message may have many values."""
    origin = get_origin(kind)
    if origin is tuple:
        item = _parser(get_args(kind)[0])
        return lambda reader: tuple([item(reader) for _ in range(reader.count())])
    if origin is dict and get_args(kind)[1] is bytes:
        return _read_table
    if origin is dict:
        key, value = map(_parser, get_args(kind))
        return lambda reader: _ordered([(key(reader), value(reader)) for _ in range(reader.count())])
    if _is_record(kind):
        parts = [(name, _parser(hint)) for name, hint in _hints(kind)]
        return lambda reader: kind(**{name: part(reader) for name, part in parts})
    if kind is int:
        return _Reader.number
    if issubclass(kind, int):
        return lambda reader: kind(reader.number())
    if kind is str:
        return lambda reader: reader.take(reader.count()).decode()
    return lambda reader: reader.take(reader.count())


_MIXED = 2**32 - 1


def _width(table: dict[Any, bytes]) -> int:
    """The length of all values, if they have one; a table of many short values then takes little more than they do."""
    widths = {len(value) for value in table.values()}
    return widths.pop() if len(widths) == 1 else _MIXED


def _read_table(reader: _Reader) -> dict[int, bytes]:
    count, width = reader.count(), reader.count()

    def value() -> bytes:
        return reader.take(reader.count() if width == _MIXED else width)

    found: dict[int, bytes] = _ordered([(reader.count(), value()) for _ in range(count)])
    if _width(found) != width:
        raise InvalidInput("a table whose values are not as long as it says, or all of one length")
    return found


def _ordered(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    if any(a[0] >= b[0] for a, b in pairwise(pairs)):
        raise InvalidInput("keys out of order")
    return dict(pairs)
