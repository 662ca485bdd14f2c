"""How large an app's model is, and which part of it is which, also when the model cannot be made any more.

A node needs these numbers in every step, and some models are made after a look at the data. If that data becomes
unreadable, the node must not drop out, which would tell something about it: so it remembers the numbers in its home.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from pathlib import Path

from lowkey.deployment import SIZES_FILE
from lowkey.durable import read_numbers, replace_file
from lowkey.errors import InvalidInput
from lowkey.experiments import Config
from lowkey.protocols import ModelShape

_log = logging.getLogger(__name__)


def shape_of_app(config: Config, home: Path | None) -> ModelShape:
    """Sizes of the model's parts; those that the node has seen before if the model cannot be made.

    Parameters
    ----------
    config : Config
        Settings of the app.
    home : Path or None
        The node's home; None, in schemes without privacy, remembers nothing.
    """
    known = {} if home is None else _read(home)
    key = hashlib.sha256(config.to_toml().encode()).hexdigest()
    try:
        from lowkey.learning import model_shape

        shape = model_shape(config.find_task().model(config.study))
    except KeyboardInterrupt:
        raise
    except BaseException:  # also of a library that gives up in its own way, or of a loader that ends Python
        if key not in known:
            raise
        _log.exception("the model cannot be made; this node goes on, and will send noise only")
        return from_numbers(*(known.get(name, 0) for name in _names(key)))
    numbers = dict(zip(_names(key), to_numbers(shape), strict=True))
    if home is not None and not numbers.items() <= known.items():
        with contextlib.suppress(OSError):  # it is only needed when something goes wrong later
            replace_file(home / SIZES_FILE, json.dumps(known | numbers).encode())
    return shape


def to_numbers(shape: ModelShape) -> tuple[int, int, int]:
    """What a client must know of a shape: the size of the model, of its centre, and of its calibration."""
    return shape.size, shape.centre, shape.calibration


def from_numbers(size: int, centre: int, calibration: int) -> ModelShape:
    """A shape with these sizes; only the server needs to know single layers."""
    parts = (centre, size - centre - calibration, calibration)
    return ModelShape(tuple(part for part in parts if part), centre=centre, calibration=calibration)


def _names(key: str) -> tuple[str, str, str]:
    return key, f"{key} centre", f"{key} calibration"


def _read(home: Path) -> dict[str, int]:
    try:
        return read_numbers(home / SIZES_FILE)
    except InvalidInput:
        return {}
