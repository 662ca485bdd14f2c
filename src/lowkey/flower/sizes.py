"""How many parameters an app's model has, also when the model cannot be made any more.

A node needs the number in every step, and some models are made after a look at the data. If that data becomes
unreadable, the node must not drop out, which would tell something about it: so it remembers the number in its home.
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

_log = logging.getLogger(__name__)


def model_size(config: Config, home: Path | None) -> int:
    """The number of trainable parameters; the one that the node has seen before if the model cannot be made.

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
        from lowkey.learning import layer_sizes

        size = sum(layer_sizes(config.find_task().model(config.study)))
    except KeyboardInterrupt:
        raise
    except BaseException:  # also of a library that gives up in its own way, or of a loader that ends Python
        if key not in known:
            raise
        _log.exception("the model cannot be made; this node goes on, and will send noise only")
        return known[key]
    if home is not None and known.get(key) != size:
        with contextlib.suppress(OSError):  # it is only needed when something goes wrong later
            replace_file(home / SIZES_FILE, json.dumps(known | {key: size}).encode())
    return size


def _read(home: Path) -> dict[str, int]:
    try:
        return read_numbers(home / SIZES_FILE)
    except InvalidInput:
        return {}
