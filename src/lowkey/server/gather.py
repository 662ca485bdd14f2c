"""From the mean of a round to an update: decode it as it is, or with what earlier rounds left over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lowkey import checks
from lowkey.protocols import Operator
from lowkey.server.parts import Decode, Gathered, State
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class DecodeMean:
    """The identity twin: the mean is decoded, and nothing is remembered."""

    adds_rounds: ClassVar[bool] = False

    def init(self, operator: Operator) -> State:
        return {}

    def gather(self, state: State, mean: FloatArray, operator: Operator, decode: Decode, noise: float) -> Gathered:
        return Gathered(state={}, decoded=decode(mean, noise), noise=noise)


@dataclass(frozen=True, kw_only=True)
class ErrorFeedback:
    """What the decoder cannot recover in one round is kept, compressed, and added to the next round.

    Parameters
    ----------
    rate : float
        Server rate η_G, above 0.
    momentum : float
        Momentum ρ in [0, 1).

    References
    ----------
    Kerkouche et al. (2021), Alg. 3, lines 9-13; Rothchild et al. (2020), *FetchSGD*.
    """

    rate: float = 0.35
    momentum: float = 0.9
    adds_rounds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.positive("gather.rate", self.rate)
        checks.fraction("gather.momentum", self.momentum, include_zero=True, include_one=False)

    def init(self, operator: Operator) -> State:
        zeros = np.zeros(operator.num_measurements, np.float32)
        return {"momentum": zeros, "error": zeros, "noise": np.zeros(3, np.float32)}

    def gather(self, state: State, mean: FloatArray, operator: Operator, decode: Decode, noise: float) -> Gathered:
        u = np.float32(self.momentum) * state["momentum"] + mean  # line 9
        e = state["error"] + np.float32(self.rate) * u  # line 10
        variances = self._noise(state["noise"], noise)
        noise_of_e = float(np.sqrt(variances[2]))
        decoded = decode(e, noise_of_e)  # line 11
        left = e - operator.forward(decoded.update)  # line 12; a new array, since the update may share memory with e
        before, after = float(np.linalg.norm(e)), float(np.linalg.norm(left))
        kept = after / before if before > 0 else 0.0
        return Gathered(
            state={"momentum": u, "error": left, "noise": variances * np.array([1.0, kept, kept**2], np.float32)},
            decoded=decoded,
            noise=noise_of_e,
            residual_norm=after,
        )

    def _noise(self, before: FloatArray, of_mean: float) -> FloatArray:
        """Variance of the noise in u, its covariance with that in e, and its variance in e, per measurement.

        Noise leaves e with what is decoded: what stays is taken to fall as the norm of e does. That is exact for the
        adjoint, which decodes everything.
        """
        in_u, shared, in_e = before.astype(np.float64)
        rate, rho = self.rate, self.momentum
        u = rho**2 * in_u + of_mean**2
        return np.array([u, rho * shared + rate * u, in_e + 2 * rate * rho * shared + rate**2 * u], np.float32)
