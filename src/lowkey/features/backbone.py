"""A frozen network as a feature map: an encoder that somebody trained before, on other data."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.features.maps import BlockMap, Rows, Shape, as_array
from lowkey.types import FloatArray

_TOLERANCE = 1e-2
"""How far, relative to the largest feature, rounding may move a row that is computed alone."""


class Backbone(BlockMap):
    """The outputs of a frozen module, flattened.

    The module is copied to the CPU, set to evaluation mode and frozen, so that later changes of yours do not reach the
    map. After every use it is checked that no parameter and no buffer changed, and that the first row has the same
    features when it is computed alone.

    Parameters
    ----------
    module : torch.nn.Module
        Takes a float32 batch of rows and returns one tensor with an entry for each.
    batch_size : int
        How many rows go through the module together; no part of the digest.

    Guarantees
    ----------
    The digest covers the names of all classes, what the module prints of itself, and the exact bytes of all parameters
    and buffers. It does not cover the code of ``forward``, which comes with the app that nodes approve.
    """

    kind: ClassVar[str] = "backbone"

    def __init__(self, module: nn.Module, *, batch_size: int = 256) -> None:
        if not isinstance(module, nn.Module):
            raise InvalidInput(f"a backbone is made of a torch.nn.Module, not of a {type(module).__name__}")
        checks.at_least("backbone: batch_size", batch_size, 1)
        _require_plain_state(module)
        self._module = copy.deepcopy(module).to("cpu").requires_grad_(False).eval()
        self._batch_size = batch_size
        self._widths: dict[tuple[int, ...], int] = {}
        _require_fixed(self._module)
        self._state = {name: tensor.clone() for name, tensor in _state(self._module).items()}
        self._digest = _digest(self._module, self._state)

    def __repr__(self) -> str:
        return f"Backbone({type(self._module).__name__}, digest={self.digest[:12]}…)"

    @property
    def digest(self) -> str:
        return self._digest

    def width(self, inputs: Shape) -> int:
        shape = inputs if isinstance(inputs, tuple) else (inputs,)
        if shape not in self._widths:
            self._widths[shape] = int(self._run(np.zeros((1, *shape), np.float32)).shape[1])
        return self._widths[shape]

    def __call__(self, rows: Rows) -> Rows:
        mapped = super().__call__(rows)
        self._require_unchanged()
        if len(mapped):
            alone = self._run(as_array(self.kind, rows[:1]))[0]
            if np.abs(alone - mapped[0]).max() > _TOLERANCE * np.abs(mapped[0]).max():
                raise InvalidInput(
                    f"the backbone {type(self._module).__name__} gives row 0 other features when it is computed alone: "
                    "it draws at random or looks at the other rows of a batch; take that out of its forward"
                )
        return mapped

    def _block(self, rows: FloatArray) -> FloatArray:
        starts = range(0, len(rows), self._batch_size)
        return np.concatenate([self._run(rows[start : start + self._batch_size]) for start in starts])

    def _run(self, rows: FloatArray) -> FloatArray:
        name = type(self._module).__name__
        try:
            with torch.no_grad():
                outputs = self._module(torch.tensor(rows))
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise InvalidInput(
                f"the backbone {name} cannot take rows of shape {rows.shape[1:]}: {reason[0]}"
            ) from error
        if not isinstance(outputs, Tensor) or outputs.ndim < 1 or len(outputs) != len(rows) or outputs.is_complex():
            found = f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
            raise InvalidInput(
                f"the backbone {name} made {found} of {len(rows)} row(s); it must return one tensor of real numbers "
                "with an entry for each row: wrap it in a module that does"
            )
        return np.asarray(outputs.reshape(len(rows), -1).float().numpy(), np.float32)

    def _require_unchanged(self) -> None:
        now = _state(self._module)
        for name in sorted(self._state.keys() | now.keys()):
            if name not in now or name not in self._state or not _same(now[name], self._state[name]):
                raise InvalidInput(
                    f"using the backbone {type(self._module).__name__} changed its parameter or buffer {name!r}, so "
                    "that each client would compute other features; it must leave it alone in evaluation mode"
                )


def _state(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, also buffers that are not saved."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    return {**parameters, **dict(module.named_buffers(remove_duplicate=False))}


def _same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)


def _require_plain_state(module: nn.Module) -> None:
    """Refuse what cannot be hashed: weights that do not exist yet, or that are no tensors."""
    for name, tensor in _state(module).items():
        if nn.parameter.is_lazy(tensor):
            raise InvalidInput(
                f"the parameter {name!r} of the backbone has no shape yet; run one batch through it first"
            )
        if tensor.is_floating_point() and bool(tensor.isnan().any()):
            raise InvalidInput(f"the parameter or buffer {name!r} of the backbone holds NaN; train it anew")
    for name, value in module.state_dict().items():
        if not isinstance(value, Tensor):
            raise InvalidInput(
                f"the state {name!r} of the backbone is a {type(value).__name__}, no tensor, and cannot be part of the "
                "digest; use a module whose state is tensors, such as one that is not quantised"
            )


def _require_fixed(module: nn.Module) -> None:
    """Refuse layers whose outputs depend on the other rows of a batch, or that stay in training mode."""
    for name, layer in module.named_modules():
        if layer.training:
            raise InvalidInput(
                f"the layer {name or 'itself'!r} of the backbone, a {type(layer).__name__}, stays in training mode "
                "after eval(), so that its features would change from client to client; let its train() follow the mode"
            )
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.running_mean is None:
            raise InvalidInput(
                f"the layer {name or 'itself'!r} of the backbone, a {type(layer).__name__} without running statistics, "
                "normalises by the batch that it sees, so that a row's features would depend on other rows; use one "
                "with track_running_stats=True, or torch.nn.GroupNorm"
            )


def _digest(module: nn.Module, state: dict[str, Tensor]) -> str:
    """SHA-256 of a module's structure and state."""
    kinds = [f"{name}: {type(layer).__module__}.{type(layer).__qualname__}" for name, layer in module.named_modules()]
    printed = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(module))
    hashed = hashlib.sha256(json.dumps(["lowkey feature map 1", "backbone", kinds, printed]).encode())
    for name in sorted(state):
        tensor = state[name].detach().contiguous().reshape(-1)
        described = json.dumps([name, str(tensor.dtype), list(state[name].shape)])
        hashed.update(f"\n{described}\n".encode())
        hashed.update(tensor.view(torch.uint8).numpy().tobytes())  # little-endian wherever PyTorch runs
    return hashed.hexdigest()
