"""The encoder: a file that says, for every column of a table, what becomes of it; the same at every client.

Reading it needs no library for tables: a node asks for its width in every run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from lowkey import checks
from lowkey.durable import replace_file
from lowkey.errors import DataError, InvalidInput
from lowkey.tabular.rules import Block, Hashed, Limits, Listed, Rule

FORMAT = 1
MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "NULL", "null")
"""Texts that mean that a field is missing."""
_CONSTANT = Block(("constant",), 1)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a client's table.

    Parameters
    ----------
    name : str
        As in the table.
    kind : {"number", "category", "codes"}
        What a field holds: a number, a text, or any number of texts.
    rule : Limits, Listed or Hashed
        What becomes of it: numbers need limits, texts a list or a hash.
    separator : str
        What stands between the texts of a field, for "codes".
    """

    name: str
    kind: Literal["number", "category", "codes"]
    rule: Rule
    separator: str = ";"

    def __post_init__(self) -> None:
        require_field(self.name, self.kind, self.separator)
        if isinstance(self.rule, Limits) != (self.kind == "number"):
            raise InvalidInput(
                f"the rule of column {self.name!r} is {type(self.rule).__name__}, but its kind is {self.kind!r}; "
                "numbers need Limits, and texts Listed or Hashed"
            )


def require_field(name: object, kind: object, separator: object) -> None:
    """Refuse what cannot be read from a table."""
    if not isinstance(name, str) or not name or name != name.strip():
        raise InvalidInput(f"the name of a column is {name!r}; it must be text without blanks around it")
    checks.one_of(f"kind of column {name!r}", kind, ("number", "category", "codes"))
    if not isinstance(separator, str) or not separator:
        raise InvalidInput(f"separator of column {name!r} is {separator!r}; it must be text, such as ';'")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What the private answers in an encoder cost.

    Parameters
    ----------
    epsilon, delta : float or None
        As the run that asked says; 0 where nothing was asked, None where that was not told.
    unit : {"client", "person"}, or None
        Whom it protects.
    run, ledger : str or None
        The run that asked, and the ledger that has its entries.
    """

    epsilon: float | None = 0.0
    delta: float | None = 0.0
    unit: str | None = None
    run: str | None = None
    ledger: str | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            if getattr(self, name) is not None:
                checks.not_negative(name, getattr(self, name))
        for name in ("unit", "run", "ledger"):
            if not isinstance(getattr(self, name), str | None):
                raise InvalidInput(f"{name} is {getattr(self, name)!r}; it must be text")


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """What becomes of every column of a table, in the order of the features.

    Parameters
    ----------
    columns : tuple of Column
        What is read; other columns of a table are ignored.
    missing : tuple of str
        Texts that mean that a field is missing.
    cost : Cost
        What it cost to find out.
    notes : tuple of str
        What a reader must know, in whole sentences.

    Guarantees
    ----------
    A row of features depends on its own row of the table only, and is not longer than 1. Two encoders with the same
    digest make the same features of the same table.
    """

    columns: tuple[Column, ...]
    missing: tuple[str, ...] = MISSING
    cost: Cost = field(default_factory=Cost)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checks.at_least("number of columns", len(self.columns), 1)
        names = [column.name for column in self.columns]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InvalidInput(f"the column {twice[0]!r} is there twice; list each column once")
        for column in self.columns:
            if isinstance(column.rule, Listed):
                _require_readable(column, self.missing)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all features; the last is the constant."""
        blocks = [block for column in self.columns for block in column.rule.blocks(column.name)]
        return tuple(name for block in (*blocks, _CONSTANT) for name in block.names)

    @property
    def width(self) -> int:
        """How many features a row has."""
        return len(self.names)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that the file says, as hexadecimal text."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return hashlib.sha256(f"lowkey encoder\n{text}".encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The content of the file, without its digest."""
        return {
            "format": FORMAT,
            "columns": [_write_column(column) for column in self.columns],
            "missing": list(self.missing),
            "cost": asdict(self.cost),
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, table: Any) -> Encoder:
        """The encoder that :meth:`to_json` wrote."""
        found = _keys("the encoder", table, format=int, columns=list, missing=list, cost=dict, notes=list)
        if found["format"] != FORMAT:
            raise InvalidInput(
                f"the encoder has format {found['format']}; this release reads {FORMAT}: use the one that wrote it"
            )
        return cls(
            columns=tuple(map(_read_column, found["columns"])),
            missing=_texts("missing", found["missing"]),
            cost=Cost(**_keys("cost", found["cost"], **dict.fromkeys(asdict(Cost()), object))),
            notes=_texts("notes", found["notes"]),
        )

    def save(self, path: Path) -> None:
        """Write the file."""
        content = json.dumps({**self.to_json(), "sha256": self.digest}, indent=1, ensure_ascii=False)
        replace_file(path, f"{content}\n".encode())


def _require_readable(column: Column, missing: tuple[str, ...]) -> None:
    """Refuse listed texts that no field can hold."""
    assert isinstance(column.rule, Listed)
    for value in column.rule.values:
        what = "has blanks around it" if value != value.strip() else "means missing" if value in missing else ""
        if column.kind == "codes" and column.separator in value:
            what = f"holds the separator {column.separator!r}"
        if what:
            raise InvalidInput(f"column {column.name!r} lists {value!r}, which {what}; leave it out")


def load_encoder(path: str | Path, digest: str | None = None) -> Encoder:
    """Read an encoder.

    Parameters
    ----------
    path : str or Path
        The file.
    digest : str or None
        What its digest must be; None takes any.

    Raises
    ------
    DataError
        If it is missing or damaged, was edited by hand, or is another encoder than the one that was agreed on.
    """
    try:
        table = json.loads(Path(path).read_bytes())
        told = table.pop("sha256", None) if isinstance(table, dict) else None
        encoder = Encoder.from_json(table)
        found = encoder.digest
    except OSError as error:
        raise DataError(f"the encoder {path} cannot be read ({error.strerror}); check the path") from None
    except (ValueError, RecursionError, OverflowError) as error:
        raise DataError(f"{path} is not an encoder ({error}); make one with 'lowkey encoder fit'") from None
    if told != found:
        raise DataError(
            f"{path} was changed after it was made: its digest is {found[:16]}, and it says {str(told)[:16]}; get it "
            "again, or make another with 'lowkey encoder fit'"
        )
    if digest is not None and digest != found:
        raise DataError(
            f"{path} has the digest {found[:16]}, but {digest[:16]} was agreed on; get the encoder that all clients use"
        )
    return encoder


def _write_column(column: Column) -> dict[str, Any]:
    rule, about = column.rule, {"name": column.name, "kind": column.kind}
    if isinstance(rule, Limits):
        fill = None if rule.fill is None else float(rule.fill)
        return {**about, "low": float(rule.low), "high": float(rule.high), "fill": fill, "missing": rule.missing}
    if column.kind == "codes":
        about["separator"] = column.separator
    if isinstance(rule, Listed):
        return {**about, "values": list(rule.values), "other": rule.other, "missing": rule.missing}
    return {**about, "hashed": [[length, count] for length, count in rule.columns.items()], "missing": rule.missing}


def _read_column(table: Any) -> Column:
    if not isinstance(table, dict):
        raise InvalidInput("a column is not a table")
    where = f"column {table.get('name')!r}"
    about: dict[str, type] = {"name": str, "kind": str}
    if table.get("kind") == "codes":
        about["separator"] = str
    rule: Rule
    if table.get("kind") == "number":
        found = _keys(where, table, **about, low=float, high=float, fill=object, missing=bool)
        if not isinstance(found["fill"], float | None):
            raise InvalidInput(f"{where} has a fill that is no number")
        rule = Limits(found["low"], found["high"], found["fill"], found["missing"])
    elif "values" in table:
        found = _keys(where, table, **about, values=list, other=bool, missing=bool)
        rule = Listed(_texts(where, found["values"]), found["other"], found["missing"])
    else:
        found = _keys(where, table, **about, hashed=list, missing=bool)
        rule = Hashed(_hashes(where, found["hashed"]), found["missing"])
    return Column(name=found["name"], kind=found["kind"], rule=rule, separator=found.get("separator", ";"))


def _hashes(where: str, pairs: list[Any]) -> dict[int | None, int]:
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and type(pair[0]) in (int, type(None))):
            raise InvalidInput(f"{where} has hashes that are no pairs of a length and a number of columns")
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidInput(f"{where} hashes the same number of letters twice")
    return found


def _keys(where: str, table: Any, **needed: type) -> dict[str, Any]:
    """A table with exactly these keys, each of this type."""
    if not isinstance(table, Mapping):
        raise InvalidInput(f"{where} is not a table")
    if table.keys() != needed.keys():
        raise InvalidInput(f"{where} has the keys {', '.join(map(str, table))}; it must have {', '.join(needed)}")
    for key, kind in needed.items():
        if kind is not object and type(table[key]) is not kind:
            raise InvalidInput(f"{where} has a {key} that is not of type {kind.__name__}")
    return dict(table)


def _texts(where: str, values: list[Any]) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise InvalidInput(f"{where} lists something that is no text")
    return tuple(values)
