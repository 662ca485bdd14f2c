"""What a client insists on, whatever the server says: the terms of a round, and the client's own bounds on them."""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self, TypeVar, get_args, get_type_hints

from lowkey import checks
from lowkey.errors import ConfigError, InvalidInput, PolicyRefused
from lowkey.privacy.client_ledger import ClientLedger
from lowkey.privacy.events import Event, require_delta

RecordT = TypeVar("RecordT")
FORMAT = 1
_COMMENTS = {
    "min_noise_multiplier": "noise of the sum, z",
    "min_roster": "members of a round",
    "min_honest": "of them, whose noise suffices",
    "min_tolerated_colluders": "terms must bear at least so many members who pool what they know; 0 asks for nothing",
    "max_participations": "attempts, over all apps and runs, that this client's data may enter",
    "max_epsilon": "over all apps and runs, towards the server",
    "delta": "of that ε, and the largest that terms may claim",
    "max_failure": "chance per attempt that masks of a random graph fail; 0 takes the worst-case graph alone",
    "unit": "whom every ε is about: a client as a whole, a person at it, or a row of its data",
}


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What all members of a round agree on; each member signs the digest of it with its keys.

    Parameters
    ----------
    noise_multiplier : float
        z of the sum, which any ``honest`` shares of noise provide.
    clip_rule : str
        How contributions are bounded, in words or as a number.
    bits : int
        b, bits of an integer on the wire.
    length : int
        m, numbers in the vector.
    members : int
        M, size of the roster.
    min_survivors : int
        t, how many masked vectors a sum needs; with fewer nothing is unmasked.
    honest : int
        κ, members whose shares of noise suffice; of the other t − κ survivors all but ``strays`` may collude.
    graph : str
        Who masks with whom: "worst-case" or "random".
    failure : float
        The chance, for each attempt, that masks of a random graph tell more than the sum; δ bears it.
    strays : int
        How many honest survivors a server might cut off in a random graph; the noise of ``honest`` others suffices.
    neighbours, shares_needed : int
        How many members hold shares of each member's secrets, and how many of these recover one.
    delta : float
        δ of the guarantee.
    scheme : str
        Name of the scheme.
    sampling : str
        How members and contributors are chosen.
    coin : float
        Chance that a member contributes data, by a coin that it flips in secret.
    codec, public_seed : str, int
        How updates are compressed, and the seed of public choices.
    model_size : int
        n, the number of parameters of the model.
    unit, persons : str, int or None
        What is protected, in one word: a "client", a "person", or a row. The public number of persons or rows.
    features : str
        What the model's inputs are: the public feature map, in words with its digest.
    question : str
        What is asked of clients in a round that does not train.
    """

    noise_multiplier: float
    clip_rule: str
    bits: int
    length: int
    members: int
    min_survivors: int
    honest: int
    graph: str = "worst-case"
    failure: float = 0.0
    strays: int = 0
    neighbours: int
    shares_needed: int
    delta: float
    scheme: str
    sampling: str
    coin: float = 1.0
    codec: str
    public_seed: int
    model_size: int
    unit: str = "client"
    persons: int | None = None
    features: str = ""
    question: str = ""

    def __post_init__(self) -> None:
        checks.not_negative("noise_multiplier", self.noise_multiplier)
        require_delta(self.delta)
        checks.fraction("coin", self.coin)
        checks.one_of("graph", self.graph, ("worst-case", "random"))
        checks.fraction("failure", self.failure, include_zero=True)
        checks.at_least("strays", self.strays, 0)
        for name in ("bits", "length", "model_size", "honest", "neighbours", "shares_needed"):
            checks.at_least(name, getattr(self, name), 1)
        if not self.honest <= self.min_survivors <= self.members:
            raise InvalidInput(
                f"honest, min_survivors and members are {self.honest}, {self.min_survivors} and {self.members}; none "
                "may exceed the next"
            )
        for name in ("noise_multiplier", "delta", "coin", "failure"):
            object.__setattr__(self, name, float(getattr(self, name)))  # 1 and 1.0 have one digest

    @property
    def colluders(self) -> int:
        """How many survivors may take their noise back without harm."""
        return self.min_survivors - self.honest - self.strays

    def digest(self) -> bytes:
        """SHA-256 of the canonical JSON: equal for equal terms, on every machine."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(f"lowkey terms 5\n{text}".encode()).digest()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a client asks of every round, from its own file.

    The file is TOML: ``format = 1``, and one line for each parameter.

    Parameters
    ----------
    min_noise_multiplier : float
        Smallest z.
    min_roster : int
        Smallest number of members, M, to hide among.
    min_honest : int
        Smallest number of honest members, κ, to hide among.
    min_tolerated_colluders : int
        How many members, at least, may tell the server their noise without reducing it below z.
    max_participations : int
        Largest number of attempts, over all runs, that this client's data may enter.
    max_epsilon : float
        Largest ε, over all runs, for a server that knows the rosters.
    delta : float
        δ of that ε, and the largest that terms may claim.
    unit : str
        Whom these bounds are about; terms that protect anything else are refused. A file without it means "client".
    max_failure : float
        The largest chance, for each attempt, that masks tell more than the sum. A file without it takes none: only the
        worst-case graph.

    Guarantees
    ----------
    They rest on the client alone: on this record and its own ledger, not on anything that the server counts.
    """

    min_noise_multiplier: float
    min_roster: int
    min_honest: int
    min_tolerated_colluders: int
    max_participations: int
    max_epsilon: float
    delta: float
    unit: str = "client"
    max_failure: float = 0.0

    def __post_init__(self) -> None:
        checks.positive("min_noise_multiplier", self.min_noise_multiplier)
        checks.fraction("max_failure", self.max_failure, include_zero=True)
        checks.at_least("min_roster", self.min_roster, 1)
        checks.at_least("min_honest", self.min_honest, 1)
        checks.at_least("min_tolerated_colluders", self.min_tolerated_colluders, 0)
        checks.at_least("max_participations", self.max_participations, 1)
        checks.positive("max_epsilon", self.max_epsilon)
        require_delta(self.delta)

    @classmethod
    def from_toml(cls, path: Path) -> Self:
        """Read a policy file: its format, one ``key = value`` for each parameter, and nothing else."""
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
            _require_format(table.pop("format", None))
            return _record(cls, table)
        except OSError as error:
            raise ConfigError(f"{path} cannot be read ({error.strerror}); check the path") from error
        except (ValueError, OverflowError, RecursionError) as error:  # not TOML, or not a policy
            raise ConfigError(f"{path}: {error}") from error

    def to_toml(self) -> str:
        """The text of a policy file, which :meth:`from_toml` reads."""
        lines = [f"{name} = {json.dumps(value)}" for name, value in {"format": FORMAT, **asdict(self)}.items()]
        width = max(map(len, lines))
        notes = ["", *(f"  # {_COMMENTS[field.name]}" for field in fields(self))]
        return "".join(f"{line:{width if note else 0}}{note}\n" for line, note in zip(lines, notes, strict=True))

    def check(self, terms: Terms) -> None:
        """Refuse terms that break a bound; call it before anything is sent."""
        from lowkey.privacy.views import server_epsilon  # imported only when needed: it takes a second

        for name, offered, bound, least in (
            ("noise_multiplier", terms.noise_multiplier, "min_noise_multiplier", self.min_noise_multiplier),
            ("members", terms.members, "min_roster", self.min_roster),
            ("honest", terms.honest, "min_honest", self.min_honest),
            ("tolerated colluders", terms.colluders, "min_tolerated_colluders", self.min_tolerated_colluders),
            # with fewer, a server could give two groups of members different lists of survivors
            ("min_survivors", terms.min_survivors, "more than two thirds of the members", 2 * terms.members // 3 + 1),
        ):
            if offered < least:
                raise PolicyRefused(f"{name} is {offered}; this client takes no part below {least} ({bound})")
        if terms.unit != self.unit:
            raise PolicyRefused(
                f"the terms protect a {terms.unit}; this client takes no part unless a {self.unit} is protected (unit)"
            )
        one = server_epsilon(terms.noise_multiplier, 1, self.delta, coin=terms.coin)
        for name, offered, bound, most in (
            ("delta", terms.delta, "delta", self.delta),
            ("chance that the masks of an attempt fail", terms.failure, "max_failure", self.max_failure),
            ("epsilon of one participation", one, "max_epsilon", self.max_epsilon),
        ):
            if offered > most:
                raise PolicyRefused(f"{name} is {offered:g}; this client takes no part above {most:g} ({bound})")

    def limit_reached(self, ledger: ClientLedger, terms: Terms) -> str | None:
        """Which bound one more participation under these terms would pass, in words; None if it passes none.

        A client that has reached a bound stays in the round all the same, since leaving would be seen, and sends zeros
        with its share of noise.
        """
        used = len(ledger.participations())
        if used >= self.max_participations:
            return f"{used} of {self.max_participations} participations are used (max_participations in policy.toml)"
        after = self.spent(ledger, terms)
        if after > self.max_epsilon:
            return f"one more would make ε {after:.4g}, above {self.max_epsilon:g} (max_epsilon in policy.toml)"
        return None

    def spent(self, ledger: ClientLedger, *more: Terms) -> float:
        """ε of all participations so far, and of one more under each of these terms, towards the server.

        Each counts with its own noise and coin, and with ``max_failure``.
        """
        from lowkey.privacy.views import server_view  # imported only when needed: it takes a second

        kinds = Counter((p.noise_multiplier, p.coin) for p in ledger.participations())
        kinds.update((terms.noise_multiplier, terms.coin) for terms in more)
        events = (
            Event(noise_multiplier=noise, sampling_probability=coin, coin=coin, count=count, failure=self.max_failure)
            for (noise, coin), count in sorted(kinds.items())
        )
        return server_view(events, self.delta)


def _require_format(found: object) -> None:
    if found is None:
        raise InvalidInput(
            "it has no format: it is of an earlier release, or was written by hand; check that its limits hold for all "
            f"apps and runs together, and add the line: format = {FORMAT}"
        )
    if type(found) is not int or found != FORMAT:
        raise InvalidInput(
            f"its format is {found!r}, and this release of Lowkey reads {FORMAT}; install the release that wrote it"
        )


def _record(kind: type[RecordT], table: Mapping[str, Any]) -> RecordT:
    """A dataclass of plain fields from a table with exactly these fields."""
    types = get_type_hints(kind)
    for key, value in table.items():
        if key not in types:
            near = difflib.get_close_matches(key, types, n=1, cutoff=0.0)[0]
            raise InvalidInput(f"'{key}' is unknown; did you mean '{near}'?")
        allowed = get_args(types[key]) or (types[key],)
        if type(value) not in allowed and not (type(value) is int and float in allowed):
            raise InvalidInput(f"{key} is {value!r}; it must be of type {allowed[0].__name__}")
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name not in table and field.default is MISSING:
            raise InvalidInput(f"'{field.name}' is missing; add it")
    return kind(**table)
