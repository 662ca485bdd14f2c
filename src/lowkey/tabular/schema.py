"""What is public about every column of a table, and what shall be asked: the plan of an encoder, a small TOML file.

Every column has a public rule, which costs no ε. Where ``ask`` is set, a private answer makes it narrower: limits from
quantiles, lists from frequent texts. If the answer drowns in noise, the public rule stays.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

from lowkey import checks
from lowkey.errors import ConfigError, InvalidInput
from lowkey.registry import nearest
from lowkey.tabular.encoder import MISSING, require_field
from lowkey.tabular.rules import Hashed, Limits, Listed


@dataclass(frozen=True, kw_only=True)
class NumberPlan:
    """A column of numbers.

    Parameters
    ----------
    name : str
        As in the table.
    low, high : float
        Public limits; wide ones if narrower ones are asked for.
    ask : bool
        Whether to ask for the 5 % and 95 % quantiles, as limits, and for the median, which stands for missing numbers.
    bins : int
        Into how many equal parts the public limits are divided for this question.
    fill : float or None
        What stands for missing numbers; None is the median, if it is asked for, or the middle.
    missing : bool or "ask"
        Whether a column of its own says that the number is missing; "ask" makes one if that happens.
    """

    name: str
    low: float
    high: float
    ask: bool = False
    bins: int = 64
    fill: float | None = None
    missing: bool | Literal["ask"] = False
    kind: Literal["number"] = "number"
    separator: str = ";"

    def __post_init__(self) -> None:
        require_field(self.name, self.kind, self.separator)
        for key in ("low", "high"):
            checks.number(f"{key} of column {self.name!r}", getattr(self, key))
        if self.fill is not None:
            checks.number(f"fill of column {self.name!r}", self.fill)
        checks.at_least(f"bins of column {self.name!r}", self.bins, 2)
        _require_choice(self.name, ask=(self.ask, (True, False)), missing=(self.missing, (True, False, "ask")))
        self.rule(missing=False)

    def rule(self, *, missing: bool) -> Limits:
        """The public rule."""
        return Limits(float(self.low), float(self.high), None if self.fill is None else float(self.fill), missing)


@dataclass(frozen=True, kw_only=True)
class TextPlan:
    """A column of texts.

    Parameters
    ----------
    name : str
        As in the table.
    kind : {"category", "codes"}
        One text in a field, or any number of them.
    values : tuple of str
        A public list of texts.
    buckets : int or None
        Without a list, the number of columns that a public hash gives to texts.
    prefixes : mapping of int to int
        With a hash, more columns for the first so many letters of each text.
    ask : bool
        Whether to ask which texts are frequent; others then count as other.
    alphabet, characters : str or None, int or None
        With a hash, for the question about frequent texts: of which characters they consist, and of how many at most.
        None takes what the question takes, digits and capital letters. Other texts cannot be found.
    other : bool
        Whether texts that are not listed share a column.
    missing : bool or "ask"
        Whether a missing text has a column; "ask" makes one if that happens.
    separator : str
        What stands between codes.
    """

    name: str
    kind: Literal["category", "codes"] = "category"
    values: tuple[str, ...] = ()
    buckets: int | None = None
    prefixes: Mapping[int, int] = field(default_factory=dict)
    ask: bool = False
    alphabet: str | None = None
    characters: int | None = None
    other: bool = True
    missing: bool | Literal["ask"] = False
    separator: str = ";"

    def __post_init__(self) -> None:
        require_field(self.name, self.kind, self.separator)
        if not all(isinstance(value, str) for value in self.values):
            raise InvalidInput(f"values of column {self.name!r} must be texts; put quotes around each")
        if bool(self.values) == (self.buckets is not None):
            raise InvalidInput(
                f"column {self.name!r} needs either values (a public list) or buckets (a public hash); give one"
            )
        if self.values and self.prefixes:
            raise InvalidInput(f"prefixes of column {self.name!r} are for a hash; leave them out, or give buckets")
        if (self.values or not self.ask) and (self.alphabet is not None or self.characters is not None):
            raise InvalidInput(
                f"alphabet and characters of column {self.name!r} are for asking without a list; set ask and buckets"
            )
        _require_choice(
            self.name,
            ask=(self.ask, (True, False)),
            other=(self.other, (True, False)),
            missing=(self.missing, (True, False, "ask")),
        )
        self.rule(missing=False)

    def rule(self, *, missing: bool) -> Listed | Hashed:
        """The public rule."""
        if self.buckets is None:
            return Listed(self.values, self.other, missing)
        columns: dict[int | None, int] = dict(self.prefixes.items())
        return Hashed({**columns, None: self.buckets}, missing)


Plan: TypeAlias = NumberPlan | TextPlan


@dataclass(frozen=True, kw_only=True)
class Schema:
    """What is public about a table.

    Parameters
    ----------
    columns : tuple of NumberPlan or TextPlan
        The columns, in the order of the features.
    missing : tuple of str
        Texts that mean that a field is missing.
    """

    columns: tuple[Plan, ...]
    missing: tuple[str, ...] = MISSING

    def __post_init__(self) -> None:
        checks.at_least("number of columns", len(self.columns), 1)
        if not all(isinstance(text, str) for text in self.missing):
            raise InvalidInput("missing lists something that is no text; put quotes around each")


def read_schema(path: str | Path) -> Schema:
    """The schema in a TOML file: a table ``[columns.NAME]`` for each column, and ``missing`` for the whole."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); check the path") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    try:
        _require_known("", table, ("columns", "missing"))
        columns = table.get("columns", {})
        if not isinstance(columns, dict) or not isinstance(table.get("missing", []), list):
            raise InvalidInput("columns must be tables, and missing a list")
        plans = tuple(_plan(name, settings) for name, settings in columns.items())
        return Schema(columns=plans, missing=tuple(table.get("missing", MISSING)))
    except InvalidInput as error:
        raise ConfigError(f"{path}: {error}") from None


def _plan(name: str, table: Any) -> Plan:
    if not isinstance(table, dict):
        raise InvalidInput(f"columns.{name} is {table!r}; it must be a table")
    kind: Any = NumberPlan if table.get("kind") == "number" else TextPlan
    known = [key.name for key in fields(kind) if key.name not in ("name", "separator" if kind is NumberPlan else "")]
    _require_known(f"columns.{name}.", table, known)
    if kind is NumberPlan:
        for key in ("low", "high"):
            if key not in table:
                raise InvalidInput(f"columns.{name}.{key} is missing; a number needs public limits, which may be wide")
    if "kind" not in table:
        raise InvalidInput(f"columns.{name}.kind is missing; it must be one of number, category, codes")
    settings = dict(table)
    for key, wanted in (("values", list), ("prefixes", dict)):
        if not isinstance(settings.get(key, wanted()), wanted):
            raise InvalidInput(f"columns.{name}.{key} is {settings[key]!r}; it must be a {wanted.__name__}")
    if "values" in settings:
        settings["values"] = tuple(settings["values"])
    if "prefixes" in settings:
        settings["prefixes"] = {_letters(name, key): count for key, count in settings["prefixes"].items()}
    made: Plan = kind(name=name, **settings)
    return made


def _letters(name: str, key: str) -> int:
    if not key.isdecimal():
        raise InvalidInput(f"columns.{name}.prefixes has the key {key!r}; it must be a number of letters")
    return int(key)


def _require_known(place: str, table: Mapping[str, Any], known: Any) -> None:
    for key in table:
        if key not in known:
            raise InvalidInput(f"unknown key {place}{key}{nearest(key, known)}")


def _require_choice(name: str, **choices: tuple[object, tuple[object, ...]]) -> None:
    for key, (value, allowed) in choices.items():
        if type(value) not in map(type, allowed) or value not in allowed:
            raise InvalidInput(
                f"{key} of column {name!r} is {value!r}; it must be one of {', '.join(map(repr, allowed))}"
            )
