"""The server's memory between rounds, as plain named arrays that a checkpoint can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from lowkey.codec import Decoded
from lowkey.protocols import Decoder, Operator
from lowkey.types import FloatArray

ServerState = Mapping[str, FloatArray]
"""Named arrays: "momentum" (u), "error" (e), "noise" (its variances); empty when a rule keeps nothing."""


@dataclass(frozen=True, kw_only=True)
class ServerStep:
    """Outcome of one server step: the next state, the decoded update and the norm of what was not yet applied."""

    state: ServerState = field(repr=False)
    decoded: Decoded
    residual_norm: float = 0.0


class ServerRule(Protocol):
    """An algorithm of the server, as ``init`` and ``step``; neither changes its arguments."""

    def init(self, operator: Operator) -> ServerState: ...

    def step(
        self, state: ServerState, mean: FloatArray, operator: Operator, decoder: Decoder, noise: float = 0.0
    ) -> ServerStep:
        """``noise`` is the standard deviation of the privacy noise in each number of ``mean``."""
        ...
