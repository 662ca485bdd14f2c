"""The three parts of a server: gather what a round measured, step the model, average. Pure, with visible states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeAlias

from lowkey.codec import Decoded
from lowkey.protocols import Operator
from lowkey.types import FloatArray

State: TypeAlias = Mapping[str, FloatArray]
"""What a part remembers between rounds, as named float32 arrays that checkpoints can hold; often empty."""

Decode: TypeAlias = Callable[[FloatArray, float], Decoded]
"""The decoder of the scheme with the operator of the round: measurements and the noise in each, to an update."""


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What a round gave in the compressed domain.

    Attributes
    ----------
    state : State
        State for the next round.
    decoded : Decoded
        The recovered update.
    noise : float
        Standard deviation of the known noise in the measurements that were decoded.
    residual_norm : float
        Norm of what was measured and not yet recovered.
    """

    state: State = field(repr=False)
    decoded: Decoded
    noise: float = 0.0
    residual_norm: float = 0.0


class Gather(Protocol):
    """What happens in the compressed domain: memory of earlier rounds, and decoding. It changes no argument."""

    adds_rounds: ClassVar[bool]
    """True when it adds up measurements of several rounds, which must then have a common domain."""

    def init(self, operator: Operator) -> State: ...

    def gather(self, state: State, mean: FloatArray, operator: Operator, decode: Decode, noise: float) -> Gathered:
        """``noise`` is the standard deviation of the privacy noise in each number of ``mean``."""
        ...


class Optimiser(Protocol):
    """What happens to the model: the step that it takes along a decoded update. It changes no argument."""

    def init(self, weights: FloatArray) -> State: ...

    def apply(self, state: State, update: FloatArray, noise: float) -> tuple[State, FloatArray]:
        """The next state, and the step to add to the weights.

        ``noise`` is the root mean square of the known noise in the coordinates of ``update``, 0 where there is none.
        """
        ...


class Averaging(Protocol):
    """Which model is evaluated and released, given the weights that clients train from. It changes no argument."""

    def init(self, weights: FloatArray) -> State: ...

    def add(self, state: State, weights: FloatArray, round_number: int) -> State:
        """Add the weights after a round to the average."""
        ...

    def released(self, state: State, weights: FloatArray) -> FloatArray: ...
