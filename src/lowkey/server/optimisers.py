"""Server optimisers: from a decoded update to the step that the model takes.

All of them are post-processing of released sums: they cost no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.server.parts import State
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class Plain:
    """step = rate · update; with the default rate this is federated averaging.

    Parameters
    ----------
    rate : float or "auto"
        Server rate η. "auto" is the rule for private heads, see docs/private-learning.md.
    """

    rate: float | Literal["auto"] = 1.0

    def __post_init__(self) -> None:
        if self.rate != "auto":
            checks.positive("server.rate", self.rate)

    def init(self, weights: FloatArray) -> State:
        return {}

    def apply(self, state: State, update: FloatArray, noise: float) -> tuple[State, FloatArray]:
        if self.rate == "auto":
            raise InvalidInput("server.rate is 'auto'; resolve the configuration first, or set the rate")
        return state, _scaled(update, self.rate)


@dataclass(frozen=True, kw_only=True)
class Momentum:
    """u ← momentum · u + update, step = rate · u: heavy-ball momentum.

    Parameters
    ----------
    rate : float
        Server rate η.
    momentum : float
        Momentum ρ in [0, 1).
    """

    rate: float = 1.0
    momentum: float = 0.9

    def __post_init__(self) -> None:
        checks.positive("server.rate", self.rate)
        checks.fraction("server.momentum", self.momentum, include_zero=True, include_one=False)

    def init(self, weights: FloatArray) -> State:
        return {"momentum": np.zeros_like(weights)}

    def apply(self, state: State, update: FloatArray, noise: float) -> tuple[State, FloatArray]:
        u = np.float32(self.momentum) * state["momentum"] + update
        return {"momentum": u}, _scaled(u, self.rate)


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Steps relative to the size of each coordinate's signal: the known noise is subtracted from its second moment.

    step = rate · m̂ / (√max(v̂ − n̂, 0) + floor), where m̂, v̂ and n̂ are averages, with their start corrected, of the
    update, of its square, and of the variance of its noise.

    Parameters
    ----------
    rate : float
        Server rate η.
    beta1, beta2 : float
        Memory of the two moments, in [0, 1).
    floor : float
        Added to the denominator, above 0; coordinates whose signal is far below it move in proportion to their signal.

    References
    ----------
    Reddi et al. (2021), *Adaptive Federated Optimization*, Algorithm 2 (FedAdam; their τ is ``floor``); Tang and
    Lécuyer (2023), *DP-Adam: Correcting DP Bias in Adam's Second Moment Estimation*.
    """

    rate: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    floor: float = 1e-3

    def __post_init__(self) -> None:
        checks.positive("server.rate", self.rate)
        checks.fraction("server.beta1", self.beta1, include_zero=True, include_one=False)
        checks.fraction("server.beta2", self.beta2, include_zero=True, include_one=False)
        checks.positive("server.floor", self.floor)

    def init(self, weights: FloatArray) -> State:
        return {"first": np.zeros_like(weights), "second": np.zeros_like(weights), "noise": np.zeros(2, np.float32)}

    def apply(self, state: State, update: FloatArray, noise: float) -> tuple[State, FloatArray]:
        b1, b2 = self.beta1, self.beta2
        steps, variance = float(state["noise"][0]) + 1, b2 * float(state["noise"][1]) + (1 - b2) * noise**2
        first = np.float32(b1) * state["first"] + np.float32(1 - b1) * update
        second: FloatArray = np.float32(b2) * state["second"] + np.float32(1 - b2) * update * update
        signal = np.maximum(second - np.float32(variance), np.float32(0)) / np.float32(1 - b2**steps)
        step = first / np.float32(1 - b1**steps) / (np.sqrt(signal) + np.float32(self.floor))
        after: State = {"first": first, "second": second, "noise": np.array([steps, variance], np.float32)}
        return after, _scaled(step, self.rate)


def _scaled(vector: FloatArray, rate: float) -> FloatArray:
    return vector if rate == 1.0 else np.float32(rate) * vector
