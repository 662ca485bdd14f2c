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
        return {"momentum": zeros, "error": zeros}

    def step(self, state: ServerState, mean: FloatArray, operator: Operator, decoder: Decoder) -> ServerStep:
        u = np.float32(self.momentum) * state["momentum"] + mean  # line 9
        e = state["error"] + np.float32(self.rate) * u  # line 10
        decoded = decoder.decode(operator, e)  # line 11
        e = e - operator.forward(decoded.update)  # line 12; a new array, since the update may share memory with e
        return ServerStep(state={"momentum": u, "error": e}, decoded=decoded, residual_norm=float(np.linalg.norm(e)))
