"""The seams of the system: what a part must offer to take another's place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lowkey.types import ClientId, Evaluation, FloatArray

if TYPE_CHECKING:  # for type checking only: the seams depend on no room
    from lowkey.analytics import Question
    from lowkey.codec.result import Decoded
    from lowkey.federation.aggregation import Part
    from lowkey.federation.records import Reply, Request
    from lowkey.secagg import Identity


class Operator(Protocol):
    """A linear map from model vectors (n) to measurements (m), and its exact adjoint.

    ``forward`` may return its argument itself, or memory that it shares; callers do not write to it.
    """

    @property
    def num_coordinates(self) -> int: ...

    @property
    def num_measurements(self) -> int: ...

    def forward(self, vector: FloatArray) -> FloatArray: ...

    def adjoint(self, measurements: FloatArray) -> FloatArray: ...


class BlockOperator(Operator, Protocol):
    """An operator that spreads the model over equal blocks and measures each by the first rows Θ of one DCT.

    Measurements are ordered block by block. Decoders solve one group of blocks after the other and hand them to
    ``assemble``, so that their working memory does not grow with the model.
    """

    @property
    def num_blocks(self) -> int: ...

    @property
    def block_length(self) -> int: ...

    @property
    def block_measurements(self) -> int: ...

    @property
    def groups(self) -> Sequence[slice]: ...

    def coordinates(self, group: slice) -> NDArray[np.intp]:
        """Coordinate of the model at each position of a group's blocks; ``num_coordinates`` marks padding."""
        ...

    def assemble(self, solved: Iterable[FloatArray]) -> FloatArray: ...


@dataclass(frozen=True, kw_only=True)
class PublicNumbers:
    """What everybody knows about a round; operators may depend on it.

    Attributes
    ----------
    seed : int
        Seed of the public streams of the run.
    round : int
        Number of the round, from 1; 0 if the operator is the same in every round.
    bits : int or None
        Bits of a number on the wire; None for float32.
    """

    seed: int = 0
    round: int = 0
    bits: int | None = None


@dataclass(frozen=True)
class ModelShape:
    """Sizes of the parts of a model vector: first a centre, if there is one, last slope and intercept, if there are.

    Attributes
    ----------
    layers : tuple of int
        Number of coordinates of each parameter tensor, in their natural order, those of the other parts included.
    centre, calibration : int
        How many of the first coordinates are a centre of the features, and how many of the last turn scores into risks.
    """

    layers: tuple[int, ...]
    centre: int = 0
    calibration: int = 0

    @property
    def size(self) -> int:
        return sum(self.layers)

    @property
    def learned(self) -> tuple[int, ...]:
        """Sizes of the tensors that usual rounds learn."""
        return self.layers[bool(self.centre) : len(self.layers) - bool(self.calibration)]


class Codec(Protocol):
    """A recipe for operators: client and server make the same operator for a round from public numbers."""

    changes_each_round: ClassVar[bool]
    """True if measurements of two rounds do not add up to measurements of the sum."""

    makes_blocks: ClassVar[bool]
    """True if each of its operators is a :class:`BlockOperator`."""

    @property
    def ratio(self) -> float:
        """Measurements over parameters, r."""
        ...

    def operator(self, num_coordinates: int, public: PublicNumbers) -> Operator: ...

    def __hash__(self) -> int: ...


class Decoder(Protocol):
    """Turns measurements back into a model update. It knows nothing about clients or rounds.

    ``noise`` is the standard deviation of the known noise in each measurement, 0 where there is none; ``layers`` the
    number of coordinates of each parameter tensor of the model, in the order of the model vector.
    """

    needs_blocks: ClassVar[bool]
    """True if it decodes only measurements of a :class:`BlockOperator`."""

    def decode(
        self, operator: Operator, measurements: FloatArray, noise: float = 0.0, layers: Sequence[int] = ()
    ) -> Decoded: ...


@dataclass(frozen=True)
class LocalUpdate:
    """Result of local training: change of the model, and how many examples the client has."""

    update: FloatArray = field(repr=False)
    num_examples: int


class Trainer(Protocol):
    """Local training at a client; here a framework such as PyTorch is plugged in.

    ``train`` raises :class:`lowkey.errors.CannotContribute` when it knows why the client has nothing to send.
    """

    @property
    def num_clients(self) -> int: ...

    @property
    def num_coordinates(self) -> int: ...

    def limit_threads(self, threads: int) -> None:
        """Called once in each worker process, so that all workers together do not use more threads than cores."""
        ...

    def train(self, weights: FloatArray, client: ClientId, rng: np.random.Generator) -> LocalUpdate: ...


@runtime_checkable
class BatchTrainer(Trainer, Protocol):
    """A trainer that many small clients use at once.

    ``train_batch`` gives for each client what ``train`` would have given, bit for bit, or the exception that it would
    have raised. ``rng_of`` makes a client's generator; a trainer that draws nothing need not call it.
    """

    def train_batch(
        self,
        weights: FloatArray,
        clients: Sequence[ClientId],
        rng_of: Callable[[ClientId], np.random.Generator],
    ) -> Sequence[LocalUpdate | Exception]: ...


@runtime_checkable
class PersonTrainer(Trainer, Protocol):
    """A trainer that tells persons apart, for privacy of each of them.

    ``train_persons`` gives blocks of updates, a row for each person. A row depends on ``weights``, that person's own
    data and ``rng`` alone: one that cannot be computed is NaN, and counts as zeros, while the others stay as they are.
    """

    def train_persons(
        self, weights: FloatArray, client: ClientId, rng: np.random.Generator
    ) -> Iterator[FloatArray]: ...


class Respondent(Protocol):
    """Answers questions from a client's own rows; see :mod:`lowkey.analytics`.

    ``answers`` gives blocks of vectors, a row for each protected unit: the client itself, or each person at it. It
    raises :class:`lowkey.errors.CannotContribute` when the client's rows cannot answer.
    """

    def answers(self, question: Question, weights: FloatArray, client: ClientId) -> Iterator[NDArray[np.float64]]: ...


class Keys(Protocol):
    """Enrolment as one participant knows it. It must not reach participants through the server that sums."""

    @property
    def verify_keys(self) -> Mapping[ClientId, bytes]:
        """Public keys of all enrolled clients."""
        ...

    def identity(self, client: ClientId) -> Identity:
        """The signing key of a client that runs here."""
        ...


class Evaluator(Protocol):
    """Metrics of a model on held-out data, by name."""

    def __call__(self, weights: FloatArray) -> Evaluation: ...


class Ask(Protocol):
    """A runtime: carries requests to clients and their replies back.

    Replies come in the order of the requests, as they become available; a client that is absent dropped out. A
    reply's vector is valid only until the next reply is drawn, so that a runtime may reuse its memory. Where the
    requests have a rule, a runtime may add up the replies of a block by it, and hand on the sum.
    """

    def __call__(self, requests: Mapping[ClientId, Request]) -> Iterable[tuple[ClientId, Reply] | Part]: ...


Metrics: TypeAlias = Mapping[str, Any]
"""One line of metrics.jsonl: everything that may be published about a finished round."""


class Observer(Protocol):
    """Sees the metrics of every finished round, on every runtime."""

    def __call__(self, metrics: Metrics, /) -> None: ...
