"""Federated averaging with a server rate and heavy-ball momentum."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lowkey import checks
from lowkey.protocols import Decoder, Operator
from lowkey.server.state import ServerState, ServerStep
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class Averaging:
    """u ← ρ·u + y, then the model moves by D(η·u); at the default η = 1, ρ = 0 by the decoded mean itself.

    Parameters
    ----------
    rate : server rate η.
    momentum : ρ in [0, 1).
    changing_operator : measurements of different rounds have no common domain (a new random subset each round).
        Momentum is then kept with the model's own coordinates, n numbers instead of m.
    """

    rate: float = 1.0
    momentum: float = 0.0
    changing_operator: bool = False

    def __post_init__(self) -> None:
        checks.positive("server.rate", self.rate)
        checks.fraction("server.momentum", self.momentum, include_zero=True, include_one=False)

    def init(self, operator: Operator) -> ServerState:
        if self.momentum == 0.0:
            return {}
        length = operator.num_coordinates if self.changing_operator else operator.num_measurements
        return {"momentum": np.zeros(length, np.float32)}

    def step(
        self,
        state: ServerState,
        mean: FloatArray,
        operator: Operator,
        decoder: Decoder,
        noise: float = 0.0,  # noqa: ARG002
    ) -> ServerStep:
        rate, rho = np.float32(self.rate), np.float32(self.momentum)
        if self.momentum == 0.0:
            return ServerStep(state={}, decoded=decoder.decode(operator, mean if rate == 1 else rate * mean))
        if self.changing_operator:
            decoded = decoder.decode(operator, mean)
            u = rho * state["momentum"] + decoded.update
            return ServerStep(state={"momentum": u}, decoded=replace(decoded, update=rate * u))
        u = rho * state["momentum"] + mean
        return ServerStep(state={"momentum": u}, decoded=decoder.decode(operator, rate * u))
