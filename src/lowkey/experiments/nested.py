"""Nested tables before they are checked: read from TOML, changed by assignments, laid over each other."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lowkey.errors import ConfigError


def read(path: Path) -> dict[str, Any]:
    """The table of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path} does not exist; check the path") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); check the path") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def override(table: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Apply ``a.b=c`` assignments to a nested table; values are TOML, bare words are strings."""
    result = _copy(table)
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set is {assignment!r}; write it as section.key=value")
        *sections, last = key.strip().split(".")
        place = result
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{key.strip()}: {section} is a value, not a table")
        place[last] = _value(text.strip())
    return result


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables, the second laid over the first; a table that names its kind replaces the one below."""
    result = _copy(base)
    for key, value in over.items():
        nested = isinstance(value, Mapping) and isinstance(result.get(key), dict) and "kind" not in value
        result[key] = merge(result[key], value) if nested else value
    return result


def _copy(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in table.items()}


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
