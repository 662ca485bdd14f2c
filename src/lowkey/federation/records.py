"""What travels between server and clients, and what a round leaves behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from lowkey.analytics import Answer
from lowkey.secagg import Advert, Confirmation, Delivery, Masked, MemberState, Revealed, SealedShares, Voucher
from lowkey.server import State
from lowkey.types import ClientId, Evaluation, FloatArray, Words

if TYPE_CHECKING:
    from lowkey.federation.aggregation.sums import Rule
    from lowkey.privacy import Epsilon


@dataclass(frozen=True, kw_only=True)
class Invite:
    """Asks a client to open a secure aggregation with the members of this roster."""

    run: str
    roster: tuple[ClientId, ...]


@dataclass(frozen=True, kw_only=True)
class Adverts:
    """Who goes on, and the keys of those among them with whom this member masks."""

    advertisers: tuple[ClientId, ...]
    adverts: tuple[Advert, ...]


@dataclass(frozen=True, kw_only=True)
class Survivors:
    """Whose vectors are in the sum."""

    survivors: tuple[ClientId, ...]


@dataclass(frozen=True, kw_only=True)
class Confirmations:
    """Signatures of members under the same list of survivors; in a random graph, vouchers for those among them.

    The vouchers are of the survivors whose shares this member holds.
    """

    confirmations: tuple[Confirmation, ...]
    vouchers: dict[ClientId, Voucher] = field(default_factory=dict, repr=False)


ToMember: TypeAlias = Invite | Adverts | Delivery | Survivors | Confirmations
FromMember: TypeAlias = Advert | SealedShares | Masked | Confirmation | Revealed


@dataclass(frozen=True, kw_only=True)
class Request:
    """Asks one client to take part in a round, or in one step of its secure aggregation.

    Attributes
    ----------
    round : int
        Number of the round, from 1.
    attempt : int
        Number of the attempt at this round, from 0; every attempt has fresh keys and fresh noise.
    weights : FloatArray or None
        The common model; None for members that add noise only, and for steps that do not train.
    clip_norm : float or None
        S of this round, in private schemes.
    message : ToMember or None
        Message of the secure aggregation to this member; None where sums are not masked.
    """

    round: int
    attempt: int = 0
    weights: FloatArray | None = field(default=None, repr=False)
    clip_norm: float | None = None
    message: ToMember | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Requests(Mapping[ClientId, Request]):
    """Requests by client, in blocks. A runtime may treat it as the mapping that it is.

    Attributes
    ----------
    by_client : mapping
        The requests, in the order in which replies are wanted.
    block : int
        How many clients make a block: what they send is added up first, and then the sums of blocks. It is fixed by
        the roster and the model, so that sums of floats do not depend on the runtime.
    rule : Rule or None
        How the vectors of replies are read and added up. A runtime that has the replies of a block together may then
        hand on their sum, a :class:`lowkey.federation.aggregation.Part`. With None every reply is needed by itself.
    """

    by_client: Mapping[ClientId, Request] = field(repr=False)
    block: int = 1
    rule: Rule | None = None

    def __getitem__(self, client: ClientId) -> Request:
        return self.by_client[client]

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.by_client)

    def __len__(self) -> int:
        return len(self.by_client)

    @property
    def blocks(self) -> Iterator[tuple[ClientId, ...]]:
        """The clients of each block."""
        clients = iter(self.by_client)
        while block := tuple(islice(clients, self.block)):
            yield block


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A client's answer.

    Attributes
    ----------
    round, attempt : int
        The same as in the request.
    vector : FloatArray or Words or None
        Float32 measurements times weight in open schemes; in private ones integers modulo 2^bits, noised and, under
        secure aggregation, masked. None in steps that carry no vector.
    weight : float
        1 wherever it could tell something private.
    message : FromMember or None
        Message of the secure aggregation to the server; beside a vector, the proof of its norm where one is agreed.
    """

    round: int
    attempt: int = 0
    vector: FloatArray | Words | None = field(default=None, repr=False)
    weight: float = 1.0
    message: FromMember | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ClientState:
    """What a client remembers between requests. Serialisable; bound to one client.

    Attributes
    ----------
    client : ClientId
        The client whose state this is.
    answered : tuple of int and int
        Round and attempt of its last contribution; it never contributes to them again.
    contributions : int
        Rounds in which its data may have been used.
    member : MemberState or None
        Its part in a secure aggregation that is under way. Secret; empty when the aggregation is over.
    """

    client: ClientId
    answered: tuple[int, int] = (0, 0)
    contributions: int = 0
    member: MemberState | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class RunState:
    """What the server carries from round to round; with the configuration and the ledger, all that resuming needs.

    Random streams are named by seed and round, so ``round`` is also the state of every generator.

    Attributes
    ----------
    round : int
        The last round that was finished.
    weights : array
        What clients train from; :func:`lowkey.federation.released_model` gives what is evaluated and released.
    gathered, optimiser, average : State
        What the server's three parts remember.
    clip_norm : float or None
        S of the next round, where it is not the configured one.
    evaluated : State
        "values" has what clients' evaluations of the model have found so far, for stopping early.
    bytes_up, bytes_down : int
        Of all vectors and models so far.
    """

    round: int
    weights: FloatArray = field(repr=False)
    gathered: State = field(default_factory=dict, repr=False)
    optimiser: State = field(default_factory=dict, repr=False)
    average: State = field(default_factory=dict, repr=False)
    evaluated: State = field(default_factory=dict, repr=False)
    clip_norm: float | None = None
    bytes_up: int = 0
    bytes_down: int = 0


@dataclass(frozen=True, kw_only=True)
class RoundOutcome:
    """The state after one round, and numbers about the round that may be published; or the answer to a question."""

    state: RunState
    bytes_up_per_client: int
    bytes_down_per_client: int
    survivors: int
    update_norm: float = 0.0
    residual_norm: float = 0.0
    nonzeros: int = 0
    relative_gap: float = 0.0
    iterations: int = 0
    stopped: str = "nothing to decode"
    regularisation: float = 0.0
    median_norm: float | None = None
    answer: Answer | None = None


@dataclass(frozen=True, kw_only=True)
class RoundRecord:
    """One line of metrics.jsonl.

    ``epsilon`` is for people who see the released models, ``server_epsilon`` for the server and everybody else who
    knows the rosters, ``server_epsilon_limit`` the same when a client reaches its limit of contributions; None where no
    finite ε is true, or clients have no limit. ``runtime`` holds what the runtime can tell about the round: with
    real messages, their bytes besides vectors and models; in a simulation, how many clients could not contribute.
    """

    outcome: RoundOutcome
    evaluation: Evaluation
    epsilon: Epsilon | None
    server_epsilon: float | None
    server_epsilon_limit: float | None = None
    seconds: Mapping[str, float]
    runtime: Mapping[str, int] = field(default_factory=dict)

    @property
    def round(self) -> int:
        return self.outcome.state.round

    @property
    def scores(self) -> dict[str, float]:
        """The numbers of the evaluation, without its tables."""
        return {name: value for name, value in self.evaluation.items() if not isinstance(value, Sequence)}

    def to_json(self) -> dict[str, Any]:
        outcome, spent = self.outcome, self.epsilon
        return {
            "round": self.round,
            **self.evaluation,
            **({} if outcome.answer is None else {"answer": outcome.answer.to_json()}),
            "epsilon_paper": spent.paper if spent else None,
            "epsilon_rdp": spent.rdp if spent else None,
            "epsilon_pld": spent.pld if spent else None,
            "epsilon_server": self.server_epsilon,
            "epsilon_server_limit": self.server_epsilon_limit,
            "bytes_up_per_client": outcome.bytes_up_per_client,
            "bytes_down_per_client": outcome.bytes_down_per_client,
            "bytes_up_total": outcome.state.bytes_up,
            "bytes_down_total": outcome.state.bytes_down,
            **self.runtime,
            "survivors": outcome.survivors,
            "update_norm": outcome.update_norm,
            "residual_norm": outcome.residual_norm,
            "nonzeros": outcome.nonzeros,
            "median_norm": outcome.median_norm,
            "clip_norm": outcome.state.clip_norm,
            "decoder": {
                "stopped": outcome.stopped,
                "iterations": outcome.iterations,
                "relative_gap": outcome.relative_gap,
                "lambda": outcome.regularisation,
            },
            "seconds": {name: round(value, 4) for name, value in self.seconds.items()},
        }
