"""Tables of a configuration that belong to no part of a scheme and to no task."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lowkey import checks
from lowkey.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class FederationSettings:
    """Who learns together, and how: the table ``[federation]``.

    Parameters
    ----------
    scheme : str
        One of the eight schemes, such as "fl-cs-dp"; it gives the parts that no other table chooses.
    clients : int
        N, the number of clients.
    cohort : int
        |K|, how many clients are expected to contribute to a round.
    min_clients : int
        Answers that a round without privacy needs; private schemes set ``privacy.dropouts`` instead.
    ledger : str or None
        File in which all runs on the same clients record what they spend, as an absolute path: a relative one would be
        another file in every directory. With None the run has its own file.
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
        if self.ledger is not None and not Path(self.ledger).is_absolute():
            raise InvalidInput(
                f"federation.ledger is '{self.ledger}'; it must be an absolute path, such as "
                f"{Path(self.ledger).absolute()}, or it would be another file in every directory"
            )


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """Who evaluates the model: the table ``[evaluation]``.

    Parameters
    ----------
    where : {"server", "clients"}
        On test data of the server, or by all clients on test rows of their own: they send histograms of scores, masked
        and noised like updates, for which ``privacy.asking`` is set aside. Where the server has test data, too, its
        metrics stand beside, under names that end with "_server".
    every : int
        Rounds between evaluations by clients; 0 for one at the end. Those of the server follow
        ``schedule.evaluate_every``.
    question : table
        Settings of what clients are asked: the public guesses ``rows`` and ``prevalence``, ``groups`` to compare, and
        others of :class:`lowkey.analytics.ScoreQuestion`.
    """

    where: Literal["server", "clients"] = "server"
    every: int = 0
    question: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checks.one_of("evaluation.where", self.where, ("server", "clients"))
        checks.at_least("evaluation.every", self.every, 0)
        if self.where == "server" and (self.every or self.question):
            raise InvalidInput(
                "evaluation.every and evaluation.question are for evaluation.where = 'clients'; the server evaluates "
                "as schedule.evaluate_every says"
            )

    def times(self, rounds: int) -> int:
        """How often clients evaluate the model in so many rounds."""
        if self.where == "server":
            return 0
        return 1 + (max(rounds - 1, 0) // self.every if self.every else 0)


@dataclass(frozen=True, kw_only=True)
class RuntimeSettings:
    """How clients are run and how often to save: the table ``[runtime]``. It changes no result beyond rounding.

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
    """How long a deployed run waits for its clients, before they count as dropped out: the table ``[deployment]``.

    Parameters
    ----------
    agree_seconds : float
        Seconds for each step that exchanges keys and shares.
    train_seconds : float
        Seconds for the step that trains.
    gather_seconds : float
        Seconds to wait, before an attempt, until enough clients are online.
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
        The round in which they were reached.
    epsilon : float or None
        ε as the paper counts it.
    data : str or None
        The data that the values were measured on, if it is other data.
    """

    round: int
    scores: dict[str, float] = field(default_factory=dict)
    epsilon: float | None = None
    data: str | None = None
