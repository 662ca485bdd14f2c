"""What travels between server and clients, and what a round leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lowkey.privacy import Epsilon
from lowkey.server import ServerState
from lowkey.types import ClientId, FloatArray


@dataclass(frozen=True, kw_only=True)
class Request:
    """Asks one client to take part in a round.

    Attributes
    ----------
    round : counts from 1.
    shares : number of members among whom the noise is divided.
    weights : the common model; None for members that add noise only.
    """

    round: int
    shares: int
    weights: FloatArray | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A client's answer: its vector times its weight. Weight is 1 wherever it could tell something private."""

    round: int
    vector: FloatArray = field(repr=False)
    weight: float = 1.0


@dataclass(frozen=True)
class ClientState:
    """What a client remembers between requests. Serialisable; bound to one client."""

    client: ClientId
    last_round: int = 0


@dataclass(frozen=True, kw_only=True)
class RunState:
    """What the server carries from round to round; with the configuration and the ledger, all that resuming needs.

    Random streams are named by seed and round, so ``round`` is also the state of every generator.
    """

    round: int
    weights: FloatArray = field(repr=False)
    server: ServerState = field(repr=False)
    bytes_up: int = 0
    bytes_down: int = 0


@dataclass(frozen=True, kw_only=True)
class RoundOutcome:
    """What one round did to the state, in numbers that may be published."""

    state: RunState
    bytes_up_per_client: int
    bytes_down_per_client: int
    update_norm: float
    residual_norm: float
    nonzeros: int
    relative_gap: float
    iterations: int
    stopped: str
    regularisation: float
    median_norm: float | None


@dataclass(frozen=True, kw_only=True)
class RoundRecord:
    """One line of metrics.jsonl."""

    outcome: RoundOutcome
    evaluation: Mapping[str, float]
    epsilon: Epsilon | None
    seconds: Mapping[str, float]

    @property
    def round(self) -> int:
        return self.outcome.state.round

    def to_json(self) -> dict[str, Any]:
        outcome, spent = self.outcome, self.epsilon
        return {
            "round": self.round,
            **self.evaluation,
            "epsilon_paper": spent.paper if spent else None,
            "epsilon_rdp": spent.rdp if spent else None,
            "epsilon_pld": spent.pld if spent else None,
            "bytes_up_per_client": outcome.bytes_up_per_client,
            "bytes_down_per_client": outcome.bytes_down_per_client,
            "bytes_up_total": outcome.state.bytes_up,
            "bytes_down_total": outcome.state.bytes_down,
            "update_norm": outcome.update_norm,
            "residual_norm": outcome.residual_norm,
            "nonzeros": outcome.nonzeros,
            "median_norm": outcome.median_norm,
            "decoder": {
                "stopped": outcome.stopped,
                "iterations": outcome.iterations,
                "relative_gap": outcome.relative_gap,
                "lambda": outcome.regularisation,
            },
            "seconds": {name: round(value, 4) for name, value in self.seconds.items()},
        }
