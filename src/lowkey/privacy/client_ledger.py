"""A client's own record of the rounds it joined and of what it confirmed; it need not trust the server for it.

A record says what was done: {"step": "joined", …} before a masked vector leaves, {"step": "confirmed", …} before a
signature under a list of survivors does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from lowkey import checks
from lowkey.errors import InvalidInput, LedgerError
from lowkey.privacy.chain import Chain, Key


@dataclass(frozen=True, kw_only=True)
class Participation:
    """One attempt that a client joined.

    Parameters
    ----------
    run, round, attempt : str, int, int
        Name of the run, ``<name of the app>/<anything>``; number of the round and of the attempt.
    noise_multiplier : float
        z of the sum, as agreed.
    coin : float
        Chance, in (0, 1], that the client's data was sent; the outcome of the coin is not recorded.
    contributes : bool
        False if the client sent zeros with its share of noise, whatever its data.
    confirmed : str or None
        Digest, in hexadecimal, of the view that the client has confirmed; None before it has.
    tells_app : bool
        False if the server chose the name of the run freely, as it could in the first format.
    """

    run: str
    round: int
    attempt: int
    noise_multiplier: float
    coin: float
    contributes: bool
    confirmed: str | None = None
    tells_app: bool = True

    def __post_init__(self) -> None:
        for name, kind in (("run", str), ("contributes", bool), ("confirmed", str | None)):
            if not isinstance(getattr(self, name), kind):
                raise InvalidInput(f"{name} is {getattr(self, name)!r}; it must be of type {kind}")
        checks.at_least("round", self.round, 1)
        checks.at_least("attempt", self.attempt, 0)
        checks.positive("noise multiplier", self.noise_multiplier)
        checks.fraction("coin", self.coin)

    @property
    def app(self) -> str:
        """Name of the app under which the client took part; empty where the record does not tell."""
        return self.run.rpartition("/")[0] if self.tells_app else ""


class ClientLedger(Chain[Participation]):
    """The attempts that one client joined, in all runs. It holds no model, data, coin or noise.

    Parameters
    ----------
    path : Path or None
        JSON lines file, made with the first attempt; None keeps the record in memory (simulation, tests).

    Guarantees
    ----------
    When ``join`` or ``confirm`` returns, what it records is on disk: call them before the masked vector, or the
    confirmation, is sent. An attempt counts whether or not it is completed, since only the server knows that. The same
    attempt cannot be joined twice, nor two views of it be confirmed, whatever else the client has forgotten: so two
    masked vectors under the same keys, a second look at the same data, or signatures under two lists of survivors are
    never given.
    """

    FORMAT: ClassVar[str] = "lowkey client ledger 2"
    OLDER: ClassVar[tuple[str, ...]] = ("lowkey client ledger 1",)  # its records have no step and name no app

    @classmethod
    def read(cls, path: Path) -> Self:
        """Open an existing ledger for reading, without taking its lock."""
        return cls(path, read_only=True)

    def participations(self, app: str | None = None) -> tuple[Participation, ...]:
        """The attempts that the client's data may have entered, under one app or under all.

        Those that name no app count for every app.
        """
        return tuple(p for p in self.entries if p.contributes and (app is None or p.app in (app, "")))

    def join(
        self,
        run: str,
        round_number: int,
        attempt: int,
        *,
        noise_multiplier: float,
        coin: float = 1.0,
        contributes: bool = True,
    ) -> None:
        """Count an attempt; durable before this returns."""
        joined = Participation(
            run=run,
            round=round_number,
            attempt=attempt,
            noise_multiplier=noise_multiplier,
            coin=coin,
            contributes=contributes,
        )
        record = asdict(joined)
        del record["confirmed"], record["tells_app"]
        self._append({"step": "joined", **record})

    def confirm(self, run: str, round_number: int, attempt: int, view: bytes) -> None:
        """Record the view that the client is about to confirm; durable before this returns.

        The same view again is fine: the answer may have been lost. Another one is refused.
        """
        joined = self._entries.get((run, round_number, attempt))
        if joined is None or joined.confirmed != view.hex():
            key = {"run": run, "round": round_number, "attempt": attempt}
            self._append({"step": "confirmed", **key, "view": view.hex()})

    def _entry(self, record: Mapping[str, Any]) -> tuple[Key, Participation]:
        if not isinstance(record, Mapping):
            raise InvalidInput("a record must be a table")
        fields = dict(record)
        step = fields.pop("step", "joined")
        checks.one_of("step", step, ("joined", "confirmed"))
        return self._joined("step" in record, fields) if step == "joined" else self._confirmed(**fields)

    def _joined(self, tells_app: bool, fields: Mapping[str, Any]) -> tuple[Key, Participation]:
        joined = Participation(**fields, tells_app=tells_app)
        key = (joined.run, joined.round, joined.attempt)
        if key in self._entries:
            raise LedgerError(f"{_name(*key)} was joined before; join only new attempts")
        return key, joined

    def _confirmed(self, run: str, round: int, attempt: int, view: str) -> tuple[Key, Participation]:  # noqa: A002
        key = (run, round, attempt)
        joined = self._entries.get(key)
        if joined is None:
            raise LedgerError(f"{_name(*key)} was not joined; there is nothing to confirm")
        if joined.confirmed is not None:
            raise LedgerError(
                f"{_name(*key)} was confirmed before, with another list of survivors; a second one is never signed"
            )
        return key, replace(joined, confirmed=view)


def _name(run: str, number: int, attempt: int) -> str:
    return f"round {number}, attempt {attempt} of run '{run}'"
