"""Averages of the iterates: independent noise of the rounds cancels out in the model that is evaluated and released.

Clients continue from the last iterate. An average is post-processing of released sums: it costs no privacy.
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
class LastIterate:
    """The identity twin: the weights after the last round are released as they are."""

    def init(self, weights: FloatArray) -> State:
        return {}

    def add(self, state: State, weights: FloatArray, round_number: int) -> State:
        return state

    def released(self, state: State, weights: FloatArray) -> FloatArray:
        return weights


@dataclass(frozen=True, kw_only=True)
class ExponentialAverage:
    """a ← decay · a + (1 − decay) · w, from the weights after the first round.

    Parameters
    ----------
    decay : float
        Decay in [0, 1); an iterate counts for about 1 / (1 − decay) rounds.
    """

    decay: float = 0.9

    def __post_init__(self) -> None:
        checks.fraction("averaging.decay", self.decay, include_zero=True, include_one=False)

    def init(self, weights: FloatArray) -> State:
        return {}

    def add(self, state: State, weights: FloatArray, round_number: int) -> State:
        if "average" not in state:
            return {"average": weights}
        decay = np.float32(self.decay)
        return {"average": decay * state["average"] + (1 - decay) * weights}

    def released(self, state: State, weights: FloatArray) -> FloatArray:
        return state.get("average", weights)


@dataclass(frozen=True, kw_only=True)
class TailAverage:
    """The mean of all iterates from round ``start`` on; before that, the last iterate.

    Parameters
    ----------
    start : int or "auto"
        First round whose weights count. "auto", in a configuration, is the second half of the rounds that learn.
    """

    start: int | Literal["auto"] = 1

    def __post_init__(self) -> None:
        if self.start != "auto":
            checks.at_least("averaging.start", self.start, 1)

    def init(self, weights: FloatArray) -> State:
        return {}

    def add(self, state: State, weights: FloatArray, round_number: int) -> State:
        if self.start == "auto":
            raise InvalidInput("averaging.start is 'auto'; resolve the configuration first, or set the round")
        if round_number < self.start:
            return state
        count = round_number - self.start + 1
        if "average" not in state:
            return {"average": weights}
        return {"average": state["average"] + (weights - state["average"]) / np.float32(count)}

    def released(self, state: State, weights: FloatArray) -> FloatArray:
        return state.get("average", weights)
