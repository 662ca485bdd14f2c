"""What a node's owner should know about its last training; kept in the node's home, and sent nowhere."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from lowkey.durable import replace_file
from lowkey.errors import ConfigError

STATUS_FILE = "status.json"


def write_status(home: Path, round_number: int, excuse: str | None) -> None:
    """Write how the training of a round went; ``excuse`` says why the client could not contribute, None if it could."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    status = {"round": round_number, "time": now, "contributed": excuse is None, "reason": excuse}
    replace_file(home / STATUS_FILE, (json.dumps(status, ensure_ascii=False) + "\n").encode())


def read_status(home: Path) -> dict[str, Any]:
    """What :func:`write_status` wrote last."""
    try:
        status: dict[str, Any] = json.loads((home / STATUS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"{home} has no {STATUS_FILE}: this node has not trained yet, or this is not a node's home"
        ) from None
    except ValueError as error:
        raise ConfigError(
            f"{home / STATUS_FILE} cannot be read ({error}); it is written again after the next training"
        ) from None
    return status
