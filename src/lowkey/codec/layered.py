"""Recovery that knows where layers begin and end: an empirical-Bayes estimate with one variance per layer.

Coordinates of small layers (biases, the first convolution, the last dense layer) move ten to fifty times as far as
those of a large dense layer. Once that is known, few measurements tell most of an update's energy. The
prior is normal with a variance v for each layer; the estimate is the minimiser of

    ½‖y − Θs‖² + ½ν² Σ s²/v,   s = VΘᵀx with (ΘVΘᵀ + ν²) x = y,

where ν² is the variance of the known noise, or a hundredth of the signal's where there is none. The variances are
estimated from y itself, which has been released: no privacy is spent and nothing is remembered between rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.fft

from lowkey import checks
from lowkey.codec.adjoint import AdjointDecoder
from lowkey.codec.blocks import as_blocks
from lowkey.codec.result import Certificates, Decoded
from lowkey.errors import InvalidInput
from lowkey.protocols import BlockOperator, Operator
from lowkey.types import FloatArray

_SIZE_EXPONENT = 0.75  # the guess before data is seen: variance falls with this power of a layer's size
_LEAST_NOISE = 0.01  # ν² where no noise is known, relative to the signal in a measurement


@dataclass(frozen=True, kw_only=True)
class LayeredDecoder:
    """Recovers an update whose size differs between layers.

    Parameters
    ----------
    tolerance : float
        Relative duality gap at which to stop.
    max_iterations : int
        Iterations after which to stop; the result then says "iteration limit".
    """

    tolerance: float = 1e-3
    max_iterations: int = 1000
    needs_blocks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.positive("decoder.tolerance", self.tolerance)
        checks.at_least("decoder.max_iterations", self.max_iterations, 1)

    def decode(
        self, operator: Operator, measurements: FloatArray, noise: float = 0.0, layers: Sequence[int] = ()
    ) -> Decoded:
        blocks, y = as_blocks("layered", operator, measurements)
        if sum(layers) != operator.num_coordinates:
            raise InvalidInput(
                f"the layered decoder has layers of sizes {tuple(layers)}, which make {sum(layers)} parameters, but "
                f"the model has {operator.num_coordinates}; use scheme.for_layers(layer_sizes(model))"
            )
        if not measurements.any():
            return AdjointDecoder().decode(operator, measurements)
        variances, noise_variance = self.prior(blocks, y, noise, layers)
        ends = np.cumsum(layers)
        certificates = Certificates()

        def solved() -> Iterator[FloatArray]:
            for group in blocks.groups:
                prior = variances[np.searchsorted(ends, blocks.coordinates(group), side="right")]
                yield self.solve(y[group], prior, noise_variance, certificates)

        return certificates.decoded(blocks.assemble(solved()), self.tolerance)

    @staticmethod
    def prior(
        operator: BlockOperator, y: FloatArray, noise: float, layers: Sequence[int]
    ) -> tuple[FloatArray, np.float32]:
        """Variance of each layer and, last, of padding; and ν². For ``y`` of shape (P, k).

        The shuffle spreads every layer evenly, so the mean square of Θᵀy over layer l is, on average, r²·v_l + A −
        r²·v̄, where A is its mean square over all positions and v̄ the mean variance. Solved for v_l that is unbiased;
        its error, 2A²/(n_l r⁴), is large for small layers and under noise. So it is averaged, by precision, with a
        guess that falls with the size of the layer and is trusted to a factor of about two.
        """
        ratio = operator.block_measurements / operator.block_length
        positions = operator.num_blocks * operator.block_length
        sizes = np.array(layers, np.float64)
        square = float(np.einsum("ij,ij->", y, y, dtype=np.float64))
        mean_square = square / positions
        signal = max(square / y.size - noise**2, _LEAST_NOISE * square / y.size)
        parts = np.split(operator.adjoint(y.reshape(-1)), np.cumsum(layers)[:-1])
        of_layer = np.array([np.einsum("i,i->", part, part, dtype=np.float64) for part in parts]) / sizes
        measured = signal + (of_layer - mean_square) / ratio**2
        guess = sizes**-_SIZE_EXPONENT
        guess *= signal * positions / (guess @ sizes)
        trust = sizes * (ratio**2 / mean_square) ** 2 / 2
        estimate = (measured * trust + 1 / guess) / (trust + 1 / guess**2)
        variances = np.append(np.maximum(estimate, 0.1 * guess), 0.0).astype(np.float32)
        return variances, np.float32(max(noise**2, _LEAST_NOISE * signal))

    def solve(self, y: FloatArray, prior: FloatArray, noise: np.float32, certificates: Certificates) -> FloatArray:
        """Conjugate gradients on (ΘVΘᵀ + ν²) x = y in every block. The duality gap is half the squared residual."""
        length = prior.shape[1]

        def apply(x: FloatArray) -> tuple[FloatArray, FloatArray]:
            s: FloatArray = scipy.fft.idct(x, n=length, norm="ortho")
            s *= prior
            return s, scipy.fft.dct(s, norm="ortho")[:, : y.shape[1]] + noise * x

        x = np.zeros_like(y)
        residual, direction = y.copy(), y.copy()
        square = _dot(residual, residual)
        for iteration in range(1, self.max_iterations + 1):  # noqa: B007
            image = apply(direction)[1]
            step = square / np.maximum(_dot(direction, image), np.finfo(np.float32).tiny)
            x += step[:, None] * direction
            residual -= step[:, None] * image
            before, square = square, _dot(residual, residual)
            if 0.5 * square.sum() <= self.tolerance * _objective(y, x, residual, noise):
                break
            direction *= (square / np.maximum(before, np.finfo(np.float32).tiny))[:, None]
            direction += residual
        s, image = apply(x)
        residual = y - image  # computed again: the running residual has gathered rounding errors
        certificates.add(_objective(y, x, residual, noise), 0.5 * float(_dot(residual, residual).sum()), iteration)
        return s


def _dot(a: FloatArray, b: FloatArray) -> FloatArray:
    products: FloatArray = np.einsum("ij,ij->i", a, b)
    return products


def _objective(y: FloatArray, x: FloatArray, residual: FloatArray, noise: np.float32) -> float:
    """½‖y − Θs‖² + ½ν²Σs²/v at s = VΘᵀx, from y − Θs = residual + ν²x and Σs²/v = xᵀΘs."""
    unexplained = residual + noise * x
    return 0.5 * float(_dot(unexplained, unexplained).sum() + noise * _dot(x, y - unexplained).sum())
