"""A run's state as one file: arrays as safetensors, counters and a checksum in its header. No pickle."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save as to_safetensors

from lowkey import checks
from lowkey.errors import RunError
from lowkey.federation import RunState
from lowkey.types import FloatArray

_FORMAT = 4
_PARTS = (
    "gathered",
    "optimiser",
    "average",
    "evaluated",
)  # of a state: mappings of arrays, named part.array in the file
_LARGEST_HEADER = 10_000_000
_NO_CHECKSUM = b"0" * 64
_CHECKSUM = re.compile(rb'"sha256":"([0-9a-f]{64})"')


class DamagedCheckpointError(ValueError):
    """The file is cut off, was changed or is not a checkpoint."""


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
    metadata = {"lowkey": json.dumps(counters), "sha256": _NO_CHECKSUM.decode()}
    content = to_safetensors(contiguous, metadata=metadata)
    place = _find_checksum(content[: _header_end(content)])
    return content[:place] + hashlib.sha256(content).hexdigest().encode() + content[place + len(_NO_CHECKSUM) :]


def unpack(path: Path) -> Checkpoint:
    """Read a checkpoint file.

    Guarantees
    ----------
    A file in which any bit differs from what :func:`pack` made is refused with DamagedCheckpointError, and one of
    another version of Lowkey with RunError. The checksum protects from accidents, not from somebody who computes it
    anew: for that, nothing in the file chooses a class or runs code.
    """
    try:
        with path.open("rb") as file:
            header = file.read(_header_end(file.read(8)) - 8)
            if _CHECKSUM.search(header):  # files of earlier versions have none
                _require_checksum(file, header)
            _require_version(path, header)
        with safe_open(path, framework="numpy") as arrays:
            counters = json.loads(arrays.metadata()["lowkey"])
            found = {name: arrays.get_tensor(name) for name in arrays.keys()}  # noqa: SIM118
        return _checkpoint(counters, found)
    except RunError:
        raise
    except Exception as error:  # whatever the libraries raise: this is no checkpoint
        reason = str(error) if isinstance(error, ValueError) else type(error).__name__
        raise DamagedCheckpointError(reason[:200]) from error


def _header_end(start: bytes) -> int:
    """Where the header of a safetensors file ends: its length is in the first 8 bytes."""
    length = int.from_bytes(start[:8], "little")
    if len(start) < 8 or not 0 < length <= _LARGEST_HEADER:
        raise ValueError("its header is missing or too long")
    return 8 + length


def _find_checksum(header: bytes) -> int:
    found = _CHECKSUM.search(header)
    if found is None:
        raise ValueError("it has no checksum")
    return found.start(1)


def _require_version(path: Path, header: bytes) -> None:
    """Refuse a file of another version, and one of this version that lost its checksum."""
    counters = json.loads(json.loads(header)["__metadata__"]["lowkey"])
    made = counters["format"]
    if type(made) is int and 0 < made < _FORMAT:
        raise RunError(
            f"{path} has format {made}, of an earlier version of Lowkey, and this one reads format {_FORMAT}; continue "
            "the run with the version that wrote it, or start a new run"
        )
    if type(made) is int and made > _FORMAT:
        raise RunError(f"{path} has format {made}, and this version of Lowkey reads format {_FORMAT}; upgrade Lowkey")
    _find_checksum(header)


def _require_checksum(file: BinaryIO, header: bytes) -> None:
    """Compare the checksum of the file, which stands after its header, with the one that the header names."""
    place = _find_checksum(header)
    end = place + len(_NO_CHECKSUM)
    digest = hashlib.sha256(len(header).to_bytes(8, "little") + header[:place] + _NO_CHECKSUM + header[end:])
    while piece := file.read(2**20):
        digest.update(piece)
    if digest.hexdigest().encode() != header[place:end]:
        raise ValueError("its checksum is not that of its content")


def _checkpoint(counters: Mapping[str, Any], arrays: dict[str, FloatArray]) -> Checkpoint:
    clip_norm, head, settings = counters["clip_norm"], counters["ledger_head"], counters["settings"]
    for name in ("round", "bytes_up", "bytes_down"):
        checks.at_least(name, counters[name], 0)
    if clip_norm is not None:
        checks.positive("clip_norm", clip_norm)
    weights = arrays.pop("weights")
    checks.vector_of("weights", weights, weights.size)
    if not isinstance(head, str) or not isinstance(settings, str):
        raise ValueError("its counters are of another type")
    state = RunState(
        round=counters["round"],
        weights=weights,
        **{part: _under(part, arrays) for part in _PARTS},
        clip_norm=None if clip_norm is None else float(clip_norm),
        bytes_up=counters["bytes_up"],
        bytes_down=counters["bytes_down"],
    )
    return Checkpoint(state, head, settings)


def _under(part: str, arrays: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    return {name.removeprefix(f"{part}."): array for name, array in arrays.items() if name.startswith(f"{part}.")}
