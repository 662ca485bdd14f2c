"""What every aggregator is given, and what it returns."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from lowkey.errors import RoundFailed
from lowkey.federation.aggregation.sums import Part, Rule, block_size
from lowkey.federation.records import Reply, Request, Requests, RunState, ToMember
from lowkey.federation.schemes import Scheme
from lowkey.privacy import Cohort, Ledger, Mean
from lowkey.protocols import Operator
from lowkey.secagg import Delivery, VerifyKeys
from lowkey.timing import StageClock
from lowkey.types import ClientId

Replies: TypeAlias = Iterable[tuple[ClientId, Reply] | Part]
"""Answers in the order of the requests; where these have a rule, a runtime may hand on the sums of whole blocks."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a round.

    Attributes
    ----------
    scheme, state : Scheme, RunState
        How to learn, and the state after the last round.
    number, attempt : int
        Numbers of the round, from 1, and of the attempt at it, from 0.
    operator : Operator
        The operator of this round.
    cohort : Cohort
        Who takes part.
    ledger : Ledger
        Told what a private round costs, before its vectors are asked for.
    verify_keys : VerifyKeys
        Public keys of the enrolled clients; needed under secure aggregation.
    clock : StageClock
        Gets the seconds of each stage.
    """

    scheme: Scheme
    state: RunState
    number: int
    attempt: int
    operator: Operator
    cohort: Cohort
    ledger: Ledger
    verify_keys: VerifyKeys = field(repr=False)
    clock: StageClock = field(repr=False)

    @property
    def clip_norm(self) -> float | None:
        """S of this round; None where nothing is clipped."""
        return self.scheme.privacy.clip_norm if self.state.clip_norm is None else self.state.clip_norm

    def vectors(self, rule: Rule) -> Requests:
        """Requests that ask every member for its vector; members that only add noise get no model."""
        return self._in_blocks(self._contributions(), rule)

    def masked_vectors(self, deliveries: Mapping[ClientId, Delivery]) -> Requests:
        """The same under masks, with what each member needs to make its own."""
        asked = self._contributions()
        return self._in_blocks({c: replace(asked[c], message=delivery) for c, delivery in deliveries.items()})

    def step(self, clients: Iterable[ClientId], message: ToMember) -> Requests:
        """Requests of a step without vectors, in which all are told the same."""
        return self._in_blocks(dict.fromkeys(clients, self._request(message)))

    def steps(self, messages: Mapping[ClientId, ToMember]) -> Requests:
        """Requests of a step without vectors, in which each is told something else."""
        return self._in_blocks({client: self._request(message) for client, message in messages.items()})

    def _request(self, message: ToMember) -> Request:
        return Request(round=self.number, attempt=self.attempt, message=message)

    def _contributions(self) -> dict[ClientId, Request]:
        noise_only = Request(round=self.number, attempt=self.attempt, clip_norm=self.clip_norm)
        contributors = dict.fromkeys(self.cohort.contributors, replace(noise_only, weights=self.state.weights))
        return contributors | dict.fromkeys(self.cohort.noise_only, noise_only)

    def _in_blocks(self, requests: dict[ClientId, Request], rule: Rule | None = None) -> Requests:
        return Requests(requests, block=block_size(self.cohort.size, self.state.weights.size), rule=rule)

    def require_survivors(self, answered: int) -> None:
        """Fail, before anything is released, if too few members have answered."""
        privacy = self.scheme.privacy
        if answered < privacy.min_survivors:
            raise RoundFailed(
                f"{answered} of {self.cohort.size} members answered, and at least {privacy.min_survivors} must, so "
                "nothing was released; check the clients and run the round again"
            )

    def belongs(self, reply: Reply) -> bool:
        """Whether a reply is an answer to this attempt."""
        return (reply.round, reply.attempt) == (self.number, self.attempt)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The mean of a round, and what may be published about it.

    Attributes
    ----------
    mean : Mean
        Its value, the noise that is known to be in it, and S of the next round.
    survivors : int
        How many clients' vectors are in it.
    weight : float
        The sum of their weights, which is their number in private schemes.
    median_norm : float or None
        Typical norm of openly sent vectors, which helps to choose a bound; None in private schemes.
    """

    mean: Mean = field(repr=False)
    survivors: int
    weight: float
    median_norm: float | None = None


class Aggregator(Protocol):
    """A way to add up the vectors of a cohort."""

    def __call__(self, attempt: Attempt) -> Generator[Requests, Replies, Outcome]: ...
