"""A module whose trainable parameters are one flat vector."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn

from lowkey.errors import InvalidInput
from lowkey.learning.datasets import SparseBatch
from lowkey.learning.quick import channels_last, quicken, takes_channels_last
from lowkey.types import FloatArray


class FlatModel:
    """A private copy of a module; its trainable parameters are views into one float32 tensor, in their natural order.

    Loading a model vector is then one copy, and a difference of models one pass. Frozen parameters keep the values the
    module came with, and loading puts buffers back to theirs: what one client's data did to a buffer never reaches
    another client.
    """

    def __init__(self, module: nn.Module, device: str = "cpu") -> None:
        try:
            self.module = quicken(copy.deepcopy(module)).to(device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise InvalidInput(f"runtime.device is {device!r}, which cannot be used here: {reason}") from error
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        if not self.parameters:
            raise InvalidInput("the model has no trainable parameters; there is nothing to learn together")
        for parameter in self.parameters:
            if parameter.dtype != torch.float32:
                raise InvalidInput(f"a parameter of the model is {parameter.dtype}; all must be torch.float32")
        self.vector = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        self._buffers = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        self._channels_last: bool | None = None  # known when the first images come
        self._buffers_of_layers = [(layer, dict(layer._buffers)) for layer in self.module.modules()]
        start = 0
        for parameter in self.parameters:
            end = start + parameter.numel()
            parameter.data = self.vector[start:end].view_as(parameter)
            start = end

    def load(self, weights: FloatArray) -> None:
        """Start from a model vector, as if the module had never been used."""
        self.vector.copy_(torch.from_numpy(weights))
        for layer, buffers in self._buffers_of_layers:
            layer._buffers = dict(buffers)  # earlier use may have put others in their places
        for name, initial in self._buffers.items():
            self.module.get_buffer(name).copy_(initial)

    def arranged(self, inputs: Tensor | SparseBatch) -> Tensor | SparseBatch:
        """The same inputs, images in the layout with which the module is quickest."""
        if not (isinstance(inputs, Tensor) and inputs.ndim == 4 and inputs.is_floating_point() and inputs.numel()):
            return inputs
        if self._channels_last is None:
            self._channels_last = inputs.device.type == "cpu" and takes_channels_last(self.module, inputs)
        return channels_last(inputs) if self._channels_last else inputs

    def require_unchanged_buffers(self) -> None:
        """Refuse a module whose training changed a buffer: no update would carry that to the server."""
        for name, buffer in self.module.named_buffers():
            if name in self._buffers and not _same(buffer, self._buffers[name]):
                raise InvalidInput(
                    f"training changes the buffer {name!r} of the model, and only parameters are learned together; "
                    "replace that layer by one without buffers, such as torch.nn.GroupNorm for batch normalisation"
                )


def _same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def require_fixed_buffers(module: nn.Module) -> None:
    """Refuse layers that keep running statistics of the data they see."""
    for name, layer in module.named_modules():
        if getattr(layer, "track_running_stats", False):
            raise InvalidInput(
                f"the layer {name or 'itself'!r} of the model is a {type(layer).__name__}, whose running statistics "
                "are not parameters and would never reach the server; use torch.nn.GroupNorm"
            )


def model_vector(module: nn.Module) -> FloatArray:
    """A copy of a module's trainable parameters as one float32 vector."""
    return FlatModel(module).vector.numpy()


def layer_sizes(module: nn.Module) -> list[int]:
    """Length of each trainable parameter tensor, in the order of the model vector."""
    return [p.numel() for p in module.parameters() if p.requires_grad]


def load_vector(module: nn.Module, weights: FloatArray) -> None:
    """Write a model vector into a module, for instance the result of a run."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    expected = sum(p.numel() for p in parameters)
    if weights.shape != (expected,):
        raise InvalidInput(f"the vector has shape {weights.shape}, but the model has {expected} trainable parameters")
    nn.utils.vector_to_parameters(torch.from_numpy(np.array(weights)), parameters)
