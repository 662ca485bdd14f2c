"""What a node's owner should know about its last training and its last error; kept in the node's home, sent nowhere.

It may quote data: no other account can read it.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from pathlib import Path
from typing import Any

from lowkey.deployment.home import LEDGER_FILE, POLICY_FILE, STATUS_FILE
from lowkey.deployment.policies import read_policy
from lowkey.durable import replace_file
from lowkey.errors import ConfigError
from lowkey.privacy import ClientLedger


def note_training(home: Path, round_number: int, reason: str | None) -> None:
    """Write how the training of a round went; ``reason`` says why it sent noise only, None if it contributed."""
    _note(home, {"round": round_number, "time": _now(), "contributed": reason is None, "reason": reason})


def note_error(home: Path, text: str) -> None:
    """Write down an error that ended a step; the server hears of its kind only."""
    _note(home, {"error": text, "error_time": _now()})


def read_status(home: Path) -> dict[str, Any]:
    """What was noted last: of a training round, time, contributed and reason; of an error error and error_time."""
    try:
        status: Any = json.loads((home / STATUS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"{home} has no {STATUS_FILE}: this node has not trained yet, or this is not a node's home"
        ) from None
    except (ValueError, RecursionError, OSError) as error:
        raise ConfigError(
            f"{home / STATUS_FILE} cannot be read ({error}); it is written again after the next training"
        ) from None
    if not isinstance(status, dict):
        raise ConfigError(f"{home / STATUS_FILE} is not a status; it is written again after the next training")
    return status


def node_status(home: Path) -> dict[str, Any]:
    """What was noted last and, at a node with a policy, how much of its limits is used, by its own ledger."""
    status, ledger = read_status(home), home / LEDGER_FILE
    if (home / POLICY_FILE).exists():
        policy, given = read_policy(home), ClientLedger.read(ledger) if ledger.exists() else ClientLedger(None)
        status |= {
            "participations": len(given.participations()),
            "max_participations": policy.max_participations,
            "epsilon": policy.spent(given),
            "max_epsilon": policy.max_epsilon,
        }
    return status


def _note(home: Path, news: dict[str, Any]) -> None:
    known: dict[str, Any] = {}
    with contextlib.suppress(ConfigError):
        known = read_status(home)
    replace_file(home / STATUS_FILE, (json.dumps(known | news, ensure_ascii=False) + "\n").encode(), mode=0o600)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
