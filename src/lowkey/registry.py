"""Parts by name: a configuration chooses from them, and your own code may add more."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Generic, TypeVar

from lowkey.errors import InvalidInput

PartT = TypeVar("PartT")


class Registry(Generic[PartT]):
    """The parts of one kind, in the order in which they were added.

    Parameters
    ----------
    setting : str
        The key that chooses one, such as ``"codec.kind"``; errors name it.
    parts : Mapping
        The parts by name.
    """

    def __init__(self, setting: str, parts: Mapping[str, PartT]) -> None:
        self._setting, self._parts = setting, dict(parts)

    def add(self, name: str, part: PartT) -> None:
        """Add a part; a name that is taken is refused."""
        if name in self._parts:
            raise InvalidInput(f"{self._setting} has a part called {name!r} already; choose another name")
        self._parts[name] = part

    def __getitem__(self, name: str) -> PartT:
        if not isinstance(name, str) or name not in self._parts:
            raise InvalidInput(
                f"{self._setting} is {name!r}; it must be one of {', '.join(self._parts)}{nearest(name, self._parts)}"
            )
        return self._parts[name]

    def name_of(self, part: PartT) -> str:
        """The name of a part."""
        for name, known in self._parts.items():
            if known is part:
                return name
        raise InvalidInput(f"{part!r} is not registered; add it with the registry of {self._setting}")

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


def nearest(name: object, known: Iterable[str]) -> str:
    """The words "did you mean ...?" with the nearest known name; empty if none is near."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def describe(name: str, record: Any) -> str:
    """A part with all its settings in one line; equal parts give equal lines."""
    settings = ", ".join(f"{field.name}={getattr(record, field.name)!r}" for field in fields(record))
    return f"{name}({settings})"
