"""How large an app's model is, which part of it is which, and what it takes, also when it cannot be made any more.

A node needs these in every step, and some models are made after a look at the data. If that data becomes unreadable,
the node must not drop out, which would tell something about it: so it remembers them in its home.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from lowkey.deployment import SIZES_FILE
from lowkey.durable import read_table, replace_file
from lowkey.errors import InvalidInput
from lowkey.experiments import NO_MODEL, Config
from lowkey.protocols import ModelShape

Record: TypeAlias = dict[str, int | str]
"""What is remembered of a model."""

_SIZES = ("size", "centre", "calibration")
_log = logging.getLogger(__name__)


class AppModel(NamedTuple):
    """What a client must know of a model without having it: its shape, and the public features that it takes."""

    shape: ModelShape
    features: str


def model_of_app(config: Config, home: Path | None) -> AppModel:
    """Shape and features of the model; those that the node has seen before if they cannot be made.

    Parameters
    ----------
    config : Config
        Settings of the app.
    home : Path or None
        The node's home; None, in schemes without privacy, remembers nothing.
    """
    if config.only_asks:
        return AppModel(NO_MODEL, "")
    known = {} if home is None else _read(home)
    key = hashlib.sha256(config.to_toml().encode()).hexdigest()
    try:
        from lowkey.learning import model_shape

        made = AppModel(model_shape(config.find_task().model(config.study)), config.features())
    except KeyboardInterrupt:
        raise
    except BaseException:  # also of a library that gives up in its own way, or of a loader that ends Python
        if key not in known:
            raise
        _log.exception("the model cannot be made; this node goes on, and will send noise only")
        return from_record(known[key])
    if home is not None and known.get(key) != (record := to_record(made)):
        with contextlib.suppress(OSError):  # it is only needed when something goes wrong later
            replace_file(home / SIZES_FILE, json.dumps(known | {key: record}).encode())
    return made


def to_record(model: AppModel) -> Record:
    """What a client must remember: the size of the model, of its centre, of its calibration, and its features."""
    shape = model.shape
    return {name: getattr(shape, name) for name in _SIZES} | {"features": model.features}


def from_record(record: Record) -> AppModel:
    """The model of a record; only the server needs to know single layers."""
    size, centre, calibration = (int(record[name]) for name in _SIZES)
    parts = (centre, size - centre - calibration, calibration)
    shape = ModelShape(tuple(part for part in parts if part), centre=centre, calibration=calibration)
    return AppModel(shape, str(record["features"]))


def _read(home: Path) -> dict[str, Record]:
    try:
        found = read_table(home / SIZES_FILE)
    except InvalidInput:
        return {}
    return {key: record for key, record in found.items() if is_record(record)}


def is_record(found: Any) -> TypeGuard[Record]:
    """Whether something is a record of a model."""
    return (
        isinstance(found, dict)
        and all(type(found.get(name)) is int for name in _SIZES)
        and type(found.get("features")) is str
    )
