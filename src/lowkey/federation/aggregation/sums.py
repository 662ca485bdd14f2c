"""Adding up replies, block by block, with the same bits wherever each block is added up.

Integers modulo a power of two add up in any order; floats do not. So the sum of a round is the sum, in the order of the
roster, of the sums of its blocks. A server that gets replies one by one, and a worker process that has the clients of a
whole block, add up the same numbers in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from lowkey.federation.records import Reply, Requests
from lowkey.timing import StageClock
from lowkey.types import ClientId, FloatArray, Words

_NUMBERS = 2**18  # of the updates of a block, which then stay in the cache of a core
_BLOCKS = 64  # of a large roster at least, so that some dozen workers end at about the same time


def block_size(members: int, model_size: int) -> int:
    """How many clients make a block; a public function of the roster and the model."""
    return max(1, min(_NUMBERS // model_size, -(-members // _BLOCKS)))


class Rule(Protocol):
    """How the replies of one attempt are read. It crosses between processes, so it holds public numbers only."""

    @property
    def length(self) -> int: ...

    @property
    def dtype(self) -> DTypeLike: ...

    @property
    def keeps_norms(self) -> bool:
        """Whether the norms of single vectors may be known."""
        ...

    def read(self, client: ClientId, reply: Reply) -> FloatArray | Words | None:
        """The vector of a reply; None if the client counts as dropped out."""
        ...

    def refuse(self, client: ClientId) -> None:
        """Called for a reply of a client that was not asked, or has answered already."""
        ...


@dataclass
class Part:
    """The sum of some replies.

    Attributes
    ----------
    total : array
        Sum of their vectors.
    weight : float
        Sum of their weights.
    survivors : int
        How many there are.
    norms : list of float
        Norm of each vector over its weight, where the rule keeps them.
    """

    total: FloatArray | Words = field(repr=False)
    weight: float = 0.0
    survivors: int = 0
    norms: list[float] = field(default_factory=list, repr=False)

    @classmethod
    def empty(cls, rule: Rule) -> Part:
        return cls(np.zeros(rule.length, rule.dtype))

    def take(self, rule: Rule, client: ClientId, reply: Reply) -> None:
        """Add the vector of one reply, if it has one that can be used."""
        vector = rule.read(client, reply)
        if vector is None:
            return
        self._plus(vector)
        self.weight += reply.weight
        self.survivors += 1
        if rule.keeps_norms:
            self.norms.append(float(np.linalg.norm(vector)) / reply.weight)

    def add(self, other: Part) -> None:
        if other.survivors:
            self._plus(other.total)
            self.weight += other.weight
            self.survivors += other.survivors
            self.norms += other.norms

    def _plus(self, vector: FloatArray | Words) -> None:
        if self.survivors:
            self.total += vector
        else:
            self.total[:] = vector


def singly(replies: Iterable[tuple[ClientId, Reply] | Part]) -> Iterator[tuple[ClientId, Reply]]:
    """Replies to requests without a rule, which no runtime adds up."""
    for answer in replies:
        assert not isinstance(answer, Part)
        yield answer


def sum_of(requests: Requests, replies: Iterable[tuple[ClientId, Reply] | Part], clock: StageClock) -> Part:
    """The sum of all replies, which a runtime may have added up in part."""
    rule = requests.rule
    assert rule is not None
    whole, part, current = Part.empty(rule), Part.empty(rule), -1
    blocks = {client: number for number, block in enumerate(requests.blocks) for client in block}
    for answer in replies:
        with clock.stage("sum"):
            if isinstance(answer, Part):
                whole.add(answer)
                continue
            client, reply = answer
            block = blocks.pop(client, None)
            if block is None:
                rule.refuse(client)
                continue
            if block != current:
                whole.add(part)
                part, current = Part.empty(rule), block
            part.take(rule, client, reply)
    whole.add(part)
    return whole
