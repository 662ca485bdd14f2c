"""A run's state as one file: arrays as safetensors, counters as JSON in its header. No pickle."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_safetensors

from lowkey.federation import RunState

_FORMAT = 2
_SERVER = "server."


class DamagedCheckpointError(ValueError):
    """The file is cut off or is no checkpoint of this format."""


@dataclass(frozen=True)
class Checkpoint:
    """A state, the head of the ledger then, and a hash of the settings that made it."""

    state: RunState
    ledger_head: str
    settings: str


def pack(checkpoint: Checkpoint) -> bytes:
    """The content of a checkpoint file."""
    state = checkpoint.state
    arrays = {"weights": state.weights} | {f"{_SERVER}{name}": array for name, array in state.server.items()}
    counters = {
        "format": _FORMAT,
        "round": state.round,
        "clip_norm": state.clip_norm,
        "bytes_up": state.bytes_up,
        "bytes_down": state.bytes_down,
        "ledger_head": checkpoint.ledger_head,
        "settings": checkpoint.settings,
    }
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return to_safetensors(contiguous, metadata={"lowkey": json.dumps(counters)})


def unpack(path: Path) -> Checkpoint:
    """Read a checkpoint file; raises DamagedCheckpointError."""
    try:
        with safe_open(path, framework="numpy") as file:
            counters = json.loads(file.metadata()["lowkey"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if counters["format"] != _FORMAT:
            raise ValueError(f"format {counters['format']} instead of {_FORMAT}")
        state = RunState(
            round=int(counters["round"]),
            weights=arrays.pop("weights"),
            server={name.removeprefix(_SERVER): array for name, array in arrays.items()},
            clip_norm=None if counters["clip_norm"] is None else float(counters["clip_norm"]),
            bytes_up=int(counters["bytes_up"]),
            bytes_down=int(counters["bytes_down"]),
        )
        return Checkpoint(state, str(counters["ledger_head"]), str(counters["settings"]))
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise DamagedCheckpointError(str(error)) from error
