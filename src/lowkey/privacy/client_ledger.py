"""A client's own record of the rounds it joined; it need not trust the server for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from lowkey import checks
from lowkey.errors import LedgerError
from lowkey.privacy.chain import Chain, Key


@dataclass(frozen=True, kw_only=True)
class Participation:
    """One attempt that a client joined.

    Parameters
    ----------
    run, round, attempt : str, int, int
        Name of the run, number of the round and of the attempt.
    noise_multiplier : float
        z of the sum, as agreed.
    coin : float
        Chance, in (0, 1], that the client's data was sent; the outcome of the coin is not recorded.
    contributes : bool
        False if the client sent zeros with its share of noise, whatever its data.
    """

    run: str
    round: int
    attempt: int
    noise_multiplier: float
    coin: float
    contributes: bool

    def __post_init__(self) -> None:
        checks.at_least("round", self.round, 1)
        checks.at_least("attempt", self.attempt, 0)
        checks.positive("noise multiplier", self.noise_multiplier)
        checks.fraction("coin", self.coin)


class ClientLedger(Chain[Participation]):
    """The attempts that one client joined, in all runs. It holds no model, data, coin or noise.

    Parameters
    ----------
    path : Path or None
        JSON lines file, made with the first attempt; None keeps the record in memory (simulation, tests).

    Guarantees
    ----------
    When ``join`` returns, the participation is on disk: call it before the masked vector is sent. It counts whether or
    not the attempt is completed, since only the server knows that. The same attempt cannot be joined twice, so that two
    masked vectors under the same keys, or a second look at the same data, are never given.
    """

    FORMAT: ClassVar[str] = "lowkey client ledger 1"

    @classmethod
    def read(cls, path: Path) -> Self:
        """Open an existing ledger for reading, without taking its lock."""
        return cls(path, read_only=True)

    def participations(self, run: str | None = None) -> tuple[Participation, ...]:
        """The attempts that the client's data may have entered, of one run or of all."""
        return tuple(p for p in self.entries if p.contributes and run in (None, p.run))

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
        self._append(asdict(joined))

    def _entry(self, record: Mapping[str, Any]) -> tuple[Key, Participation]:
        joined = Participation(**record)
        key = (joined.run, joined.round, joined.attempt)
        if key in self._entries:
            raise LedgerError(
                f"round {joined.round}, attempt {joined.attempt} of run '{joined.run}' was joined before; join "
                "only new attempts"
            )
        return key, joined
