"""Tables of a configuration that belong to no part of a scheme and to no task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lowkey import checks


@dataclass(frozen=True, kw_only=True)
class FederationSettings:
    """Who learns together, and how: the table ``[federation]``.

    Parameters
    ----------
    scheme : str
        One of the eight, such as "fl-cs-dp": the usual parts, for what no other table chooses.
    clients : int
        N, how many clients there are.
    cohort : int
        How many of them are expected to contribute to a round, |K|.
    min_clients : int
        Least number of answers that make a round without privacy; private schemes have ``privacy.dropouts``.
    ledger : str or None
        File in which all runs on the same clients record what they spend. None: one of the run's own.
    """

    scheme: str
    clients: int
    cohort: int = 100
    min_clients: int = 1
    ledger: str | None = None

    def __post_init__(self) -> None:
        checks.at_least("federation.clients", self.clients, 1)
        checks.at_least("federation.cohort", self.cohort, 1)
        checks.at_least("federation.min_clients", self.min_clients, 1)


@dataclass(frozen=True, kw_only=True)
class RuntimeSettings:
    """Speed and safety of a run: the table ``[runtime]``. It changes no result beyond rounding.

    Parameters
    ----------
    workers : int or "auto"
        Processes that simulate clients; 0 simulates them in the main process, "auto" takes one for each core.
    device : str
        Where models are trained, such as "cpu" or "cuda".
    checkpoint_every : int
        Rounds between checkpoints.
    """

    workers: int | Literal["auto"] = "auto"
    device: str = "cpu"
    checkpoint_every: int = 1

    def __post_init__(self) -> None:
        if self.workers != "auto":
            checks.at_least("runtime.workers", self.workers, 0)
        checks.at_least("runtime.checkpoint_every", self.checkpoint_every, 1)


@dataclass(frozen=True, kw_only=True)
class DeploymentSettings:
    """How long a deployed run waits for its clients: the table ``[deployment]``. A client that is later dropped out.

    Parameters
    ----------
    agree_seconds : float
        For each step that exchanges keys and shares.
    train_seconds : float
        For the step that trains.
    gather_seconds : float
        Before an attempt, until enough clients are online.
    """

    agree_seconds: float = 120.0
    train_seconds: float = 900.0
    gather_seconds: float = 120.0

    def __post_init__(self) -> None:
        for name in ("agree_seconds", "train_seconds", "gather_seconds"):
            checks.positive(f"deployment.{name}", getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class Published:
    """Published values of the same setting, for comparison: the table ``[paper]``.

    Parameters
    ----------
    scores : dict
        Metrics by name.
    round : int
        Of which they are.
    epsilon : float or None
        As the paper counts it.
    data : str or None
        What the values were measured on, where that is other data.
    """

    round: int
    scores: dict[str, float] = field(default_factory=dict)
    epsilon: float | None = None
    data: str | None = None
