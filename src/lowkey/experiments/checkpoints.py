"""A run's state as one file: arrays as safetensors, counters as JSON in its header. No pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_safetensors

from lowkey.federation import RunState
from lowkey.types import FloatArray

_FORMAT = 3
_PARTS = ("gathered", "optimiser", "average")  # of a state: mappings of arrays, named part.array in the file


class DamagedCheckpointError(ValueError):
    """The file is cut off or is not a checkpoint of this format."""


@dataclass(frozen=True)
class Checkpoint:
    """A state, the head of the ledger at that time, and a hash of the settings that made it."""

    state: RunState
    ledger_head: str
    settings: str


def pack(checkpoint: Checkpoint) -> bytes:
    """The content of a checkpoint file."""
    state = checkpoint.state
    arrays = {f"{part}.{name}": array for part in _PARTS for name, array in getattr(state, part).items()}
    arrays["weights"] = state.weights
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
            **{part: _under(part, arrays) for part in _PARTS},
            clip_norm=None if counters["clip_norm"] is None else float(counters["clip_norm"]),
            bytes_up=int(counters["bytes_up"]),
            bytes_down=int(counters["bytes_down"]),
        )
        return Checkpoint(state, str(counters["ledger_head"]), str(counters["settings"]))
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise DamagedCheckpointError(str(error)) from error


def _under(part: str, arrays: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    return {name.removeprefix(f"{part}."): array for name, array in arrays.items() if name.startswith(f"{part}.")}
