"""Momentum and error feedback in the compressed domain, the server of FL-CS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lowkey import checks
from lowkey.protocols import Decoder, Operator
from lowkey.server.state import ServerState, ServerStep
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class ErrorFeedback:
    """What a decoder cannot explain in one round is kept, compressed, and tried again in the next.

    Parameters
    ----------
    rate : server rate η_G.
    momentum : ρ in [0, 1).

    References
    ----------
    Kerkouche et al. (2021), Alg. 3, lines 9-13; Rothchild et al. (2020), *FetchSGD*.
    """

    rate: float = 1.0
    momentum: float = 0.9

    def __post_init__(self) -> None:
        checks.positive("server.rate", self.rate)
        checks.fraction("server.momentum", self.momentum, include_zero=True, include_one=False)

    def init(self, operator: Operator) -> ServerState:
        zeros = np.zeros(operator.num_measurements, np.float32)
        return {"momentum": zeros, "error": zeros, "noise": np.zeros(3, np.float32)}

    def step(
        self, state: ServerState, mean: FloatArray, operator: Operator, decoder: Decoder, noise: float = 0.0
    ) -> ServerStep:
        u = np.float32(self.momentum) * state["momentum"] + mean  # line 9
        e = state["error"] + np.float32(self.rate) * u  # line 10
        noise_of = self._noise(state["noise"], noise)
        decoded = decoder.decode(operator, e, float(np.sqrt(noise_of[2])))  # line 11
        e = e - operator.forward(decoded.update)  # line 12; a new array, since the update may share memory with e
        return ServerStep(
            state={"momentum": u, "error": e, "noise": noise_of},
            decoded=decoded,
            residual_norm=float(np.linalg.norm(e)),
        )

    def _noise(self, before: FloatArray, of_mean: float) -> FloatArray:
        """Variance of the noise in u, its covariance with that in e, and its variance in e, per measurement.

        Exact for e as the sum of all that came in. Whatever noise was decoded has left e, so it is an upper bound.
        """
        in_u, shared, in_e = before.astype(np.float64)
        rate, rho = self.rate, self.momentum
        u = rho**2 * in_u + of_mean**2
        return np.array([u, rho * shared + rate * u, in_e + 2 * rate * rho * shared + rate**2 * u], np.float32)
