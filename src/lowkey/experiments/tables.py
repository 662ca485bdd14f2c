"""From a table of TOML to a checked record, and back. The fields of the record are the keys of the table."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from lowkey.errors import ConfigError

RecordT = TypeVar("RecordT")

_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}

_MOVED = {  # in 0.2.0
    "data.clients": "federation.clients",
    "data.partition": "data.division",
    "federation.attempts": "schedule.attempts",
    "federation.rounds": "schedule.rounds",
    "privacy.ledger": "federation.ledger",
    "privacy.secagg": "privacy.aggregation",
    "privacy.target_epsilon": "privacy.epsilon",
    "training.local_steps": "training.steps",
}


def to_record(section: str, kind: type[RecordT], table: Any) -> RecordT:
    """The record that a table describes; errors name the dotted key and, for unknown ones, the nearest valid key."""
    if isinstance(table, kind):
        return table
    if not isinstance(table, Mapping):
        raise ConfigError(f"{section} is {table!r}; it must be a table")
    known = [field.name for field in fields(kind) if field.init]  # type: ignore[arg-type]
    problems = [
        unknown_key(f"{section}.{key}", (f"{section}.{name}" for name in known)) for key in table if key not in known
    ]
    if problems:
        raise ConfigError("; ".join(problems))
    types = get_type_hints(kind)
    wrong = [
        f"{section}.{key} is {value!r}; it must be {allowed}"
        for key, value in table.items()
        if (allowed := _other_type(types[key], value))
    ]
    if wrong:
        raise ConfigError("; ".join(wrong))
    try:
        record: RecordT = _adapter(cast(Hashable, kind)).validate_python(dict(table))
        return record
    except ValidationError as error:
        raise ConfigError("; ".join(dict.fromkeys(_explain(section, detail) for detail in error.errors()))) from None


def _other_type(hint: Any, value: Any) -> str:
    """What a field takes, where it gets a truth value or a text and takes none; pydantic would make a number of it."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    choices = [choice for option in options if get_origin(option) is Literal for choice in get_args(option)]
    if not isinstance(value, bool | str) or {type(value), Any} & {*options, *map(type, choices)}:
        return ""
    return " or ".join([*(_WORDS[option] for option in options if option in _WORDS), *map(repr, choices)]) or "a table"


def to_table(record: Any) -> dict[str, Any]:
    """The table that a record stands for; fields that are None are left out, since TOML has no null."""
    if isinstance(record, Mapping):
        return dict(record)
    return {
        field.name: _plain(value)
        for field in fields(record)
        if field.init and (value := getattr(record, field.name)) is not None
    }


def unknown_key(path: str, known: Iterable[str]) -> str:
    """What to say of a key that nothing reads."""
    if path in _MOVED:
        return f"unknown key {path}; since version 0.2.0 it is {_MOVED[path]}"
    near = difflib.get_close_matches(path, list(known), n=1, cutoff=0.0)
    return (
        f"unknown key {path}; did you mean {near[0]}?" if near else f"unknown key {path}; there is nothing to set here"
    )


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return to_table(value)
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def _explain(section: str, detail: Mapping[str, Any]) -> str:
    """One of pydantic's errors in our words."""
    path = ".".join([section, *(str(part) for part in detail["loc"][:1])])
    if detail["type"] == "missing":
        return f"{path} is missing; add it"
    message = str(detail["msg"]).removeprefix("Value error, ")
    if detail["type"] == "value_error":
        return message
    return f"{path}: {message} (it is {detail['input']!r})"
