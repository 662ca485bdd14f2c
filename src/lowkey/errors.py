"""Every error that Lowkey raises on purpose.

LowkeyError
├── InvalidInput          a value is outside its range (also a ValueError)
│   └── ConfigError       a key or value of a configuration
├── DataError             a data file is missing, damaged or not what it should be
├── RunError              a run directory or checkpoint cannot be used
├── LedgerError           the record of spent privacy cannot be trusted
├── InUse                 another process works with a file or directory
├── PolicyRefused         the terms of a round are beyond what a client agrees to
├── BudgetExhausted       the next round would pass the privacy target
├── RoundFailed           a round cannot be completed safely; nothing was released
├── ProtocolViolation     a server or a peer broke the rules of secure aggregation; nothing was revealed
├── CannotContribute      a client has nothing to send in this round, and its trainer knows why
├── ClientFailed          a client's work raised or its process died
└── WorkerDied            a worker process died, and with it a job that is not a client's

NotConverged is a warning: a decoder stopped before it reached its tolerance.

Messages are one line: what is wrong, the value, what is allowed, what to do.
"""

from __future__ import annotations

import signal
from typing import Any


class LowkeyError(Exception):
    """Base class of all errors that the package raises on purpose."""


class InvalidInput(LowkeyError, ValueError):
    """A value is outside its allowed range."""


class ConfigError(InvalidInput):
    """A configuration has an unknown key or an unusable value."""


class DataError(LowkeyError):
    """A data file is missing, damaged or not what it should be."""


class RunError(LowkeyError):
    """A run directory or checkpoint cannot be used."""


class LedgerError(LowkeyError):
    """The record of spent privacy cannot be trusted."""


class InUse(LowkeyError):
    """Another process works with a file or directory that only one may use."""


class PolicyRefused(LowkeyError):
    """The terms of a round break a client's policy; the client takes no part."""


class BudgetExhausted(LowkeyError):
    """The next round would exceed the privacy target."""


class RoundFailed(LowkeyError):
    """A round cannot be completed safely; nothing was released."""


class ProtocolViolation(LowkeyError):
    """A server or a peer broke the rules of secure aggregation; nothing was revealed."""


class CannotContribute(LowkeyError):
    """A client has nothing to send in this round, and its trainer knows why: no data, or an update that diverged.

    In a private round such a client sends zeros with its noise, and a simulation counts it. Any other error of a
    trainer is a defect, and stops a simulation. A simulation in which half of a cohort cannot contribute stops, too.
    """


class ClientFailed(LowkeyError):
    """A client raised an error, or the process that ran it died.

    Parameters
    ----------
    client : int
        Number of the client.
    stage : str
        What it was doing: "train", "compress", "protect".
    reason : str
        What happened, in one line.
    """

    def __init__(self, client: int, stage: str, reason: str) -> None:
        self.client, self.stage, self.reason = client, stage, reason
        super().__init__(f"client {client} failed in stage '{stage}': {reason}")

    def __reduce__(self) -> tuple[type[ClientFailed], tuple[int, str, str]]:
        return type(self), (self.client, self.stage, self.reason)


class WorkerDied(LowkeyError):
    """A worker process died.

    Parameters
    ----------
    worker : int
        Number of the worker.
    job : object
        What it was doing.
    code : int or None
        Its exit code; a negative one is the number of a signal.
    """

    def __init__(self, worker: int, job: Any, code: int | None) -> None:
        self.worker, self.job = worker, job
        hint = "; it may have run out of memory" if code == -signal.SIGKILL else ""
        self.reason = f"its process died, exit code {code}{hint}"
        super().__init__(f"worker {worker}: {self.reason}")


class NotConverged(UserWarning):
    """A decoder stopped before it reached its tolerance; its result is used, and says so."""
