"""All members and the server in one place, stage by stage, so that a test can stop and interfere anywhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lowkey import secagg
from lowkey.graphs import make_graph
from lowkey.rng import BitSource, ReplaySecrets
from lowkey.secagg import (
    Advert,
    Confirmation,
    Delivery,
    Identity,
    Masked,
    MemberState,
    Revealed,
    SealedShares,
    Session,
)
from lowkey.types import Words

TERMS = b"t" * 32


def make_session(members: int, min_survivors: int, colluders: int = 0, **changes: Any) -> Session:
    graph = make_graph(changes.get("graph", "worst-case"), members, min_survivors, colluders)
    settings: dict[str, Any] = {
        "run": "run-0",
        "round": 1,
        "attempt": 0,
        "roster": tuple(3 + 7 * position for position in range(members)),
        "members": members,
        "min_survivors": min_survivors,
        "colluders": colluders,
        "neighbours": graph.neighbours,
        "shares_needed": graph.shares_needed,
        "bits": 20,
        "length": 50,
        "terms": TERMS,
    }
    return Session(**(settings | changes))


def make_vectors(session: Session, seed: int = 0) -> dict[int, Words]:
    rng = np.random.default_rng(seed)
    return {u: rng.integers(0, 2**session.bits, session.length, dtype=np.uint32) for u in session.roster}


def plain_sum(session: Session, vectors: Mapping[int, Words], ids: Collection[int]) -> list[int]:
    return [int(n) % 2**session.bits for n in np.sum([vectors[u].astype(object) for u in ids], axis=0)]


class Cohort:
    """``through_bytes`` sends every message and every state through its bytes, as a deployment would."""

    def __init__(self, session: Session, *, seed: int = 0, through_bytes: bool = False) -> None:
        self.session, self.secrets, self.through_bytes = session, ReplaySecrets(seed), through_bytes
        self.identities = {u: Identity.fresh(u, self.secrets.source("identity", u)) for u in session.roster}
        self.verify_keys = {u: identity.verify_key for u, identity in self.identities.items()}
        self.states: dict[int, MemberState] = {}
        self.links = secagg.Links(session, ())
        self.deliveries: dict[int, Delivery] = {}
        self.confirmations: tuple[Confirmation, ...] = ()

    def source(self, client: int, stage: str) -> BitSource:
        return self.secrets.source(self.session.round, self.session.attempt, client, stage)

    def carry(self, kind: type[Any], value: Any) -> Any:
        return secagg.decode(kind, secagg.encode(kind, value)) if self.through_bytes else value

    def keep(self, client: int, state: MemberState) -> None:
        self.states[client] = self.carry(MemberState, state)

    def advertise(self, without: Collection[int] = ()) -> tuple[Advert, ...]:
        replies = {}
        for u in set(self.session.roster) - set(without):
            state, advert = secagg.advertise(self.session, self.identities[u], self.source(u, "advertise"))
            self.keep(u, state)
            replies[u] = self.carry(Advert, advert)
        adverts = secagg.accept_adverts(self.session, replies, self.verify_keys)
        self.links = secagg.Links(self.session, adverts)
        return adverts

    @property
    def adverts(self) -> tuple[Advert, ...]:
        return tuple(self.links.adverts.values())

    def take_shares(
        self, client: int, adverts: Collection[Advert] | None = None, stage: str = "share"
    ) -> tuple[MemberState, SealedShares]:
        """A member's step, when it is told that these have advertised; by default all that have."""
        links = self.links if adverts is None else secagg.Links(self.session, tuple(adverts))
        shown = links.shown_to(client) if client in links.adverts else ()
        told = links.advertisers, tuple(self.carry(Advert, advert) for advert in shown)
        return secagg.share(
            self.states[client], *told, self.verify_keys, self.identities[client], self.source(client, stage)
        )

    def share(self, without: Collection[int] = ()) -> dict[int, Delivery]:
        replies = {}
        for u in {advert.sender for advert in self.adverts} - set(without):
            state, sealed = self.take_shares(u)
            self.keep(u, state)
            replies[u] = self.carry(SealedShares, sealed)
        self.deliveries = secagg.deliver(self.links, replies, self.verify_keys)
        return self.deliveries

    def mask(self, vectors: Mapping[int, Words], without: Collection[int] = ()) -> tuple[int, ...]:
        self.tally = secagg.Tally(self.links, self.deliveries)
        for u in self.deliveries.keys() - set(without):
            delivery = self.carry(Delivery, self.deliveries[u])
            state, masked, signed = secagg.mask(self.states[u], delivery, vectors[u], self.identities[u])
            self.keep(u, state)
            packed = secagg.pack(masked, self.session.bits)
            received = secagg.unpack(packed, self.session.bits, self.session.length)
            assert self.tally.add(u, received, self.carry(Masked, signed), self.verify_keys)
        return self.tally.close()

    def confirm(self, without: Collection[int] = ()) -> tuple[Confirmation, ...]:
        replies = {}
        for u in set(self.tally.survivors) - set(without):
            state, confirmation = secagg.confirm(self.states[u], self.tally.survivors, self.identities[u])
            self.keep(u, state)
            replies[u] = self.carry(Confirmation, confirmation)
        self.confirmations = secagg.accept_confirmations(self.tally, replies, self.verify_keys)
        return self.confirmations

    def reveal(self, without: Collection[int] = ()) -> dict[int, Revealed]:
        self.revealed = {}
        for u in {confirmation.sender for confirmation in self.confirmations} - set(without):
            state, revealed = secagg.reveal(
                self.states[u],
                self.confirmations,
                self.verify_keys,
                self.identities[u],
                self.source(u, "reveal"),
                self.tally.vouchers_for(u),
            )
            self.keep(u, state)
            self.revealed[u] = self.carry(Revealed, revealed)
        return self.revealed

    def sum(self, vectors: Mapping[int, Words], dropouts: Mapping[int, Collection[int]] | None = None) -> list[int]:
        """The whole attempt; ``dropouts`` says who is silent from which stage on."""
        gone = dropouts or {}
        self.advertise(gone.get(0, ()))
        self.share(gone.get(1, ()))
        self.mask(vectors, gone.get(2, ()))
        self.confirm(gone.get(3, ()))
        self.reveal(gone.get(4, ()))
        return [int(n) for n in secagg.unmask(self.tally, self.revealed, self.verify_keys).vector]


def next_attempt(session: Session) -> Session:
    return replace(session, attempt=session.attempt + 1)
