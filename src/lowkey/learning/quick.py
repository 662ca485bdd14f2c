"""The same function, sooner: what Lowkey changes in its own copy of a module before it computes on the CPU.

Results differ in rounding alone. On one core of a processor of 2024 the paper's step takes 0.65 of its time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.function import once_differentiable

_LARGE = 2**17  # weights of a dense layer from which oneDNN is worth its call


def quicken(module: nn.Module) -> nn.Module:
    """Let large dense layers of a module multiply with oneDNN; changes the module, and returns it."""
    for layer in module.modules():
        if type(layer) is nn.Linear and layer.weight.numel() >= _LARGE:
            layer.__class__ = FastLinear
    return module


def channels_last(images: Tensor) -> Tensor:
    """The same images, in memory with the channels of a pixel side by side: what convolutions on the CPU want.

    Strides say so even for images of one channel, where ``Tensor.contiguous`` would leave them as they are.
    """
    _, channels, height, width = images.shape
    strides = (height * width * channels, 1, width * channels, channels)
    return images.permute(0, 2, 3, 1).reshape(-1).as_strided(images.shape, strides)


def takes_channels_last(module: nn.Module, images: Tensor) -> bool:
    """Whether a module computes with such images; one that calls ``Tensor.view`` on what comes out of them does not.

    It is tried with two black images of this size, so that the answer depends on nobody's data.
    """
    training = module.training
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            module.eval()(channels_last(images.new_zeros(2, *images.shape[1:])))
    except Exception:  # of the user's module; whatever else is wrong shows when it trains
        return False
    finally:
        module.train(training)
    return True


class FastLinear(nn.Linear):
    """A dense layer that multiplies with oneDNN on the CPU, as convolutions do, where PyTorch's own layer takes BLAS.

    With a few dozen rows that is about twice as fast on processors for which the BLAS library is not tuned. Results
    differ in rounding alone. Elsewhere, and inside transforms of ``torch.func``, it is PyTorch's layer.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        if _ONEDNN is None or not _plain(inputs, self.weight):
            return super().forward(inputs)
        outputs: Tensor = _Product.apply(inputs, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return outputs


_ONEDNN: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None


def _plain(inputs: Tensor, weight: Tensor) -> bool:
    """Whether these are matrices of float32 in main memory, and the inputs row by row."""
    here = inputs.device.type == "cpu" == weight.device.type and inputs.dtype == weight.dtype == torch.float32
    rows = inputs.ndim == 2 and len(inputs) > 0 and inputs.is_contiguous()
    return here and rows and not (is_functorch_wrapped_tensor(inputs) or is_functorch_wrapped_tensor(weight))


def _times(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """inputs · weightᵀ + bias by oneDNN."""
    product: Tensor = _ONEDNN(inputs, weight, bias, "none", [], "")
    return product


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return _times(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        inputs, weight = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_inputs, of_weight, of_bias = ctx.needs_input_grad
        return (
            _times(gradient, weight.t()) if of_inputs else None,
            _times(gradient.t().contiguous(), inputs.t().contiguous()) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )
