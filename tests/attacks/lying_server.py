"""A server that may lie to everybody, and members that help it: what can they compute together?

    make attack                     random strategies against 8 to 30 members, for two minutes
    python -m tests.attacks.lying_server [--seconds 120] [--seed 0] [--without-ledger] [--random-graphs]

Honest members are the real code, step by step. The server shows each of them what it likes: adverts (left out, of an
earlier invitation, forged, two of one colluder), sharers, survivors, confirmations. It may set a member's state back
and ask again, as far as the member's ledger lets it. At the end it holds masked vectors and shares. From shares it
recovers secrets, from secrets keys, and takes off every mask that it knows. What is left is judged by its numbers: the
sum of some vectors is known if the rest of their masks adds up to zero, and not otherwise.

What need not be tried, because it only gives the server less: to stop asking a member, to spoil shares on the way, and
to show fewer confirmations than it has. Members answer from their own state alone.
"""

from __future__ import annotations

import argparse
import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain, combinations, permutations, product
from math import prod
from typing import Any, TypeAlias

import numpy as np

from lowkey.errors import InvalidInput, LowkeyError
from lowkey.graphs import GraphKind, make_graph
from lowkey.rng import ReplaySecrets
from lowkey.secagg import Advert, Delivery, Identity, MemberState, Session, Voucher, shamir
from lowkey.secagg import client as member
from lowkey.secagg.keys import agreement_key, pair_key, public_key, seal, self_key, unseal
from lowkey.secagg.masks import apply_masks
from lowkey.secagg.messages import commit, make_voucher, seed_digest, sign_view
from lowkey.types import ClientId, Words

Clients: TypeAlias = tuple[ClientId, ...]
Choice: TypeAlias = tuple[int | None, ...]
"""Which of its adverts each client of the roster is shown with, in order of the roster; None leaves it out."""

LIVE = 0
SPARE = 64
"""Numbers in a vector beyond one per member: masks that do not cancel look as if they did with chance 2^-SPARE."""


class Found(Exception):
    """The server got what it must not get."""


@dataclass(frozen=True)
class Offer:
    """An advert that the server may show, and its secrets if the server has them."""

    advert: Advert
    secrets: MemberState | None = None


@dataclass(frozen=True)
class Shown:
    """What one honest member is shown.

    ``survivors`` is one list, or more where its state is set back and nothing forbids a second confirmation. ``first``
    are adverts that it was shown before its state was set back: it then shares its secrets twice, and the members in
    ``first_to`` get what it sealed first.
    """

    adverts: Choice
    sharers: Clients
    survivors: tuple[Clients, ...]
    first: Choice | None = None
    first_to: frozenset[ClientId] = frozenset()


Strategy: TypeAlias = Mapping[ClientId, Shown]


@dataclass(frozen=True, eq=False)
class Step:
    """A member's state after a step, what it said, and all that it was asked so far."""

    state: MemberState
    said: Any
    asked: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...]

    @cached_property
    def view(self) -> bytes:
        """What the member was told; what it signs when it confirms."""
        digest = vars(member)["view_digest"]  # whatever members use, also where a test has changed it
        return bytes(digest(self.state.advertisers, self.state.sharers, self.state.survivors))


class World:
    """The members of one session, and what the server can get from each of them.

    Parameters
    ----------
    session, colluders : Session, tuple of ClientId
        Who takes part, and which members have given the server their keys.
    invited_twice : tuple of ClientId
        Honest members that also have an older advert, whose secrets they have forgotten.
    forged : tuple of ClientId
        Honest members in whose names the server has made adverts, without their signature.
    set_back : tuple of ClientId
        Honest members that are made to share their secrets twice; only for the search of all strategies.
    """

    def __init__(
        self,
        session: Session,
        colluders: Clients = (),
        *,
        invited_twice: Clients = (),
        forged: Clients = (),
        set_back: Clients = (),
        seed: int = 0,
    ) -> None:
        self.session, self.colluders, self.secrets = session, colluders, ReplaySecrets(seed)
        self.set_back, self.special = set_back, {*invited_twice, *forged, *set_back}
        self.honest = tuple(u for u in session.roster if u not in colluders)
        self.identities = {u: Identity.fresh(u, self.secrets.source("identity", u)) for u in session.roster}
        self.verify_keys = {u: identity.verify_key for u, identity in self.identities.items()}
        rng = np.random.default_rng(seed)
        self.vectors: dict[ClientId, Words] = {
            u: rng.integers(0, 2**session.bits, session.length, dtype=np.uint32) for u in session.roster
        }
        self.states, self.offers = dict[ClientId, MemberState](), dict[ClientId, tuple[Offer, ...]]()
        for u in session.roster:
            (state, advert), (other, second) = (
                member.advertise(session, self.identities[u], self.secrets.source("advertise", u, number))
                for number in range(2)
            )
            if u in colluders:
                self.offers[u] = Offer(advert, state), Offer(second, other)
                continue
            self.states[u] = state
            older = (Offer(second),) if u in invited_twice else ()
            false = (Offer(replace(second, signature=bytes(64)), other),) if u in forged else ()
            self.offers[u] = Offer(advert), *older, *false
        self.committed: dict[tuple[ClientId, ClientId, int], bytes] = {}
        self.share, self.mask, self.confirm, self.reveal = (
            cache(self._share), cache(self._mask), cache(self._confirm), cache(self._reveal)
        )  # fmt: skip
        self.peers, self.parcel, self.open = cache(self._peers), cache(self._parcel), cache(self._open)
        self.owners = cache(self._owners)
        self.recover, self.rest = cache(self._recover), cache(self._rest)

    def shown(self, adverts: Choice) -> dict[ClientId, Offer]:
        pairs = zip(self.session.roster, adverts, strict=True)
        return {u: self.offers[u][which] for u, which in pairs if which is not None}

    def place(self, client: ClientId, adverts: Choice) -> int | None:
        return adverts[self.session.roster.index(client)]

    def holders(self, owner: ClientId, which: int = LIVE) -> dict[ClientId, int]:
        """Who holds shares of a member's secrets, if this is its advert."""
        return self.session.holders_of(owner, self.offers[owner][which].advert.draw)

    def _owners(self, me: ClientId, adverts: Choice) -> Clients:
        """Whose shares a member holds, as far as it is shown."""
        pairs = zip(self.session.roster, adverts, strict=True)
        return tuple(u for u, which in pairs if u != me and which is not None and me in self.holders(u, which))

    def _peers(self, me: ClientId, adverts: Choice, sharers: Clients) -> Clients:
        """With whom a member masks."""
        linked = {*self.owners(me, adverts), *(self.holders(me).keys() & self.shown(adverts).keys())}
        return tuple(peer for peer in sharers if peer in linked)

    # Steps of an honest member: the real code. They return None where it refuses.

    def _share(self, me: ClientId, adverts: Choice, run: int) -> Step | None:
        if self.place(me, adverts) not in (None, LIVE):
            return None  # it knows its own advert, and is shown none of its own
        known = self.shown(adverts)
        linked = {*self.owners(me, adverts), *self.holders(me)} - {me}
        offered = tuple(offer.advert for u, offer in known.items() if u in linked)
        source = self.secrets.source("share", me, run)
        start = Step(self.states[me], None, ())
        step = _take(start, member.share, tuple(known), offered, self.verify_keys, self.identities[me], source)
        for peer, committed in step.said.commitments.items() if step is not None else ():
            assert self.committed.setdefault((me, peer, run), committed) == committed  # see _parcel
        return step

    def _parcel(self, owner: ClientId, me: ClientId, place: int | None, run: int) -> tuple[bytes, bytes]:
        """What an honest owner seals for a member that it was shown with this advert; nothing if it was not shown.

        Whom else it was shown does not matter, as it draws its polynomials before all else (``_share`` checks that).
        """
        adverts = tuple(place if u == me else LIVE for u in self.session.roster)
        shared = None if place is None else self.share(owner, adverts, run)
        if shared is None or me not in shared.said.sealed:  # by an older advert it may have drawn others
            return b"", b""
        return shared.said.sealed[me], shared.said.commitments[me]

    def _mask(
        self, me: ClientId, adverts: Choice, sharers: Clients, origins: tuple[tuple[int | None, int], ...]
    ) -> Step | None:
        """``origins`` tells for each peer under which advert of this member, and in which run, it sealed its shares."""
        shared = self.share(me, adverts, 0)
        if shared is None:
            return None
        parcels = {}
        owners = [owner for owner in self.owners(me, adverts) if owner in sharers]
        for peer, origin in zip(owners, origins, strict=True):
            secrets = self.shown(adverts)[peer].secrets
            if secrets is None:
                parcels[peer] = self.parcel(peer, me, *origin)
            else:
                own, mine = agreement_key(secrets.sealing_secret), self.offers[me][LIVE].advert
                key = pair_key(self.session, b"seal", own, peer, mine.sealing_key, me)
                share = bytes(shamir.SHARE_BYTES)
                parcels[peer] = seal(self.session, key, peer, me, bytes(12), 2 * share), 2 * commit(share)
        delivery = Delivery(
            sharers=sharers,
            sealed={peer: parcel[0] for peer, parcel in parcels.items()},
            commitments={peer: parcel[1] for peer, parcel in parcels.items()},
        )
        return _take(shared, member.mask, delivery, self.vectors[me], self.identities[me])

    def _confirm(self, masked: Step, survivors: Clients) -> Step | None:
        return _take(masked, member.confirm, survivors, self.identities[masked.state.me])

    def _reveal(
        self, confirmed: Step, same: Clients, other: Clients, vouchers: tuple[tuple[ClientId, Voucher], ...]
    ) -> Step | None:
        """Show a member the confirmations of those who confirm the same view; or, if it wants more, of others, too."""
        identity, view = self.identities[confirmed.state.me], confirmed.view
        agree = [sign_view(self.session, self.identities[u], view) for u in same]
        differ = [sign_view(self.session, self.identities[u], bytes(32)) for u in other]
        for confirmations in (agree, 2 * agree, agree + differ):
            step = _take(
                confirmed,
                member.reveal,
                tuple(confirmations),
                self.verify_keys,
                identity,
                self.secrets.source("reveal", confirmed.state.me),
                dict(vouchers),
            )
            if step is not None:
                return step
        return None

    # What the server makes of it.

    def _open(self, owner: ClientId, adverts: Choice, run: int) -> dict[ClientId, bytes]:
        """Shares that were sealed under keys that the server has: for colluders, and for forged adverts."""
        shared, opened = self.share(owner, adverts, run), {}
        if shared is not None:
            for peer, sealed in shared.said.sealed.items():
                secrets = self.shown(adverts)[peer].secrets
                if secrets is not None:
                    own = agreement_key(secrets.sealing_secret)
                    key = pair_key(self.session, b"seal", own, peer, self.states[owner].advert.sealing_key, owner)
                    both = unseal(self.session, key, owner, peer, sealed)
                    assert both is not None
                    opened[peer] = both
        return opened

    def _recover(self, owner: ClientId, shares: frozenset[tuple[int, bytes]]) -> bytes | None:
        """A secret of an honest member from shares of one run, by point; checked against its advert."""
        if len(shares) < self.session.shares_needed:
            return None
        secret = shamir.combine(dict(sorted(shares)[: self.session.shares_needed]))
        advert = self.states[owner].advert
        assert secret is not None  # otherwise the search itself is wrong, and has mixed up shares
        assert seed_digest(secret) == advert.seed_digest or public_key(secret) == advert.mask_key
        return secret

    def _rest(
        self, masked: Step, adverts: Choice, seed: bytes | None, secrets: frozenset[tuple[ClientId, bytes]]
    ) -> int:
        """What hides a member's vector after all masks that the server knows were taken off: lowest bits, in a row."""
        session, me, known = self.session, masked.state.me, dict(secrets)
        rest: Words = masked.said[0] - self.vectors[me]
        keys = {}
        for peer in self.peers(me, adverts, masked.state.sharers):
            offer = self.shown(adverts)[peer]
            if offer.secrets is not None:
                theirs: bytes | None = offer.secrets.mask_secret
            else:
                theirs = known.get(peer) if offer == self.offers[peer][LIVE] else None
            if theirs is not None:
                keys[peer] = pair_key(
                    session, b"mask", agreement_key(theirs), peer, self.states[me].advert.mask_key, me
                )
            elif me in known:
                keys[peer] = pair_key(session, b"mask", agreement_key(known[me]), me, offer.advert.mask_key, peer)
        own = [] if seed is None else [self_key(session, me, seed)]
        apply_masks(
            rest,
            subtract=[*own, *(key for peer, key in keys.items() if me < peer)],
            add=[key for peer, key in keys.items() if me > peer],
        )
        return int.from_bytes(np.packbits((rest & 1).astype(np.uint8)).tobytes(), "big")


def _take(before: Step, step: Callable[..., Any], *message: Any) -> Step | None:
    """Take a step; and then see that no step so far can be taken again."""
    try:
        done = step(before.state, *message)
    except LowkeyError:
        return None
    after = Step(done[0], done[1:] if len(done) > 2 else done[1], (*before.asked, (step, message)))
    for earlier, told in after.asked:
        try:
            earlier(after.state, *told)
        except (LowkeyError, LookupError, ValueError):  # or it stumbles over a secret that it has dropped
            continue
        raise Found(f"client {after.state.me} takes a step twice: {earlier.__name__}")
    return after


def play(world: World, strategy: Strategy, promised: int) -> Clients:
    """Carry out a strategy; return whose vectors are in the one sum that the server gets, or nobody.

    Raises ``Found`` if it gets two sums, a sum of fewer than ``promised`` honest members, or both secrets of one.
    """
    session = world.session
    for me, shown in strategy.items():
        world.share(me, shown.adverts, 0)
        if shown.first is not None:
            world.share(me, shown.first, 1)

    def origin(owner: ClientId, me: ClientId) -> tuple[int | None, int]:
        theirs = strategy.get(owner)
        if theirs is None:
            return None, 0
        if theirs.first is not None and me in theirs.first_to:
            return world.place(me, theirs.first), 1
        return world.place(me, theirs.adverts), 0

    masked, confirmed = dict[ClientId, Step](), list[Step]()
    for me, shown in strategy.items():
        owners = [owner for owner in world.owners(me, shown.adverts) if owner in shown.sharers]
        step = world.mask(me, shown.adverts, shown.sharers, tuple(origin(owner, me) for owner in owners))
        if step is not None:
            masked[me] = step
            lists = (world.confirm(step, survivors) for survivors in shown.survivors)
            confirmed += [after for after in lists if after is not None]

    # The shares that it gets: of its friends those of both secrets, of honest members what they reveal.
    shares: dict[tuple[ClientId, str, int], set[tuple[int, bytes]]] = {}

    def learn(owner: ClientId, kind: str, run: int, peer: ClientId, share: bytes) -> None:
        shares.setdefault((owner, kind, run), set()).add((world.holders(owner)[peer], share))

    for owner, shown in strategy.items():
        for run, adverts in enumerate((shown.adverts, shown.first)):
            for peer, both in ({} if adverts is None else world.open(owner, adverts, run)).items():
                learn(owner, "seed", run, peer, both[: shamir.SHARE_BYTES])
                learn(owner, "mask", run, peer, both[shamir.SHARE_BYTES :])
    for step in confirmed:
        me, view = step.state.me, step.view
        able = {u for u in world.colluders if u in step.state.survivors}  # colluders confirm whatever is wanted
        may = [c for c in confirmed if c.state.me in step.state.survivors]
        same = able | {c.state.me for c in may if c.view == view}
        other = {c.state.me for c in may} - same
        vouchers = tuple(
            (owner, make_voucher(masked[owner].state.adverts, *masked[owner].said))
            for owner in world.owners(me, strategy[me].adverts)
            if session.graph == "random" and owner in masked
        )
        last = world.reveal(step, tuple(sorted(same)), tuple(sorted(other)), vouchers)
        if last is not None:
            told = world.shown(strategy[me].adverts)
            for kind, revealed in (("seed", last.said.seed_shares), ("mask", last.said.mask_shares)):
                for owner, share in revealed.items():
                    if told[owner].secrets is None:  # the others are those that the server made up
                        learn(owner, kind, origin(owner, me)[1], me, share)

    found: dict[str, dict[ClientId, bytes]] = {"seed": {}, "mask": {}}
    for (owner, kind, _), some in shares.items():
        secret = world.recover(owner, frozenset(some))
        if secret is not None:
            found[kind][owner] = secret
    for both_of in found["seed"].keys() & found["mask"].keys():
        raise Found(f"both secrets of client {both_of}")

    # The sums that it can compute: combinations of vectors whose remaining masks add up to zero.
    secrets = frozenset(found["mask"].items())
    rests = {me: world.rest(step, strategy[me].adverts, found["seed"].get(me), secrets) for me, step in masked.items()}
    sums = _vanishing(rests)
    if len(sums) > 1:
        raise Found(f"two sums, of clients {sums[0]} and {sums[1]}")
    if sums and len(sums[0]) < promised:
        raise Found(f"a sum of clients {sums[0]} alone")
    return sums[0] if sums else ()


def _vanishing(rests: Mapping[ClientId, int]) -> list[Clients]:
    """Sets of rows that add up to zero modulo 2, from which all others are combined."""
    basis: dict[int, tuple[int, int]] = {}
    sets, clients = [], tuple(rests)
    for place, row in enumerate(rests.values()):
        combined = 1 << place
        while row:
            top = row.bit_length()
            if top not in basis:
                basis[top] = row, combined
                break
            row, combined = row ^ basis[top][0], combined ^ basis[top][1]
        else:
            sets.append(tuple(u for i, u in enumerate(clients) if combined >> i & 1))
    return sets


# All strategies against a small group.


def every_strategy(world: World, *, ledger: bool = True) -> Iterator[tuple[Strategy, int]]:
    """All that the server can show to the honest members and that they accept; and how many are alike but for names.

    ``ledger`` says whether a member that is set back remembers which survivors it has confirmed; if not, it confirms
    every list that it accepts.
    """
    options = [list(_options(world, me, ledger)) for me in world.honest]
    numbers = [{shown: number for number, shown in enumerate(some)} for some in options]
    names = []  # for every way to rename members: where each goes, and what its options are called there
    for renamed in _renamings(world):
        goes = [world.honest.index(renamed[me]) for me in world.honest]
        called = [
            [numbers[to][_rename(world, shown, renamed)] for shown in some]
            for to, some in zip(goes, options, strict=True)
        ]
        names.append(list(zip(goes, called, strict=True)))
    for choice in product(*(range(len(some)) for some in options)):
        same = 0
        for renaming in names:
            other = [0] * len(choice)
            for (to, names_there), number in zip(renaming, choice, strict=True):
                other[to] = names_there[number]
            if (changed := tuple(other)) < choice:
                break  # it comes under other names
            same += changed == choice
        else:
            shown = {me: some[number] for me, some, number in zip(world.honest, options, choice, strict=True)}
            yield shown, len(names) // same


def count_strategies(world: World, *, ledger: bool = True) -> int:
    """How many there are, each with its names."""
    return prod(sum(1 for _ in _options(world, me, ledger)) for me in world.honest)


def _options(world: World, me: ClientId, ledger: bool) -> Iterator[Shown]:
    """All ways to the end that one member accepts, whatever the others are shown; or as far as it goes."""
    roster = world.session.roster
    accepted = [
        adverts
        for adverts in product(*((None, *range(len(world.offers[u]))) for u in roster))
        if world.share(me, adverts, 0) is not None
    ]
    others = tuple(u for u in roster if u != me)
    firsts = list(product(accepted, map(frozenset, _subsets(others)))) if me in world.set_back else []
    for adverts in accepted:
        ways = []
        for sharers in _subsets(roster):
            owners = [owner for owner in world.owners(me, adverts) if owner in sharers]
            masked = world.mask(me, adverts, sharers, ((LIVE, 0),) * len(owners))
            if masked is not None:
                lists = sorted(some for some in _subsets(roster) if world.confirm(masked, some) is not None)
                ends = [(survivors,) for survivors in lists] if ledger else [tuple(lists)]
                ways += [Shown(adverts, sharers, end) for end in ends or [()]]
        for way in ways or [Shown(adverts, (), ())]:
            yield way
            yield from (replace(way, first=first, first_to=to) for first, to in firsts)


def _renamings(world: World) -> Iterator[dict[ClientId, ClientId]]:
    """Members are alike if all are neighbours, and nothing sets them apart."""
    fixed = world.session.roster
    if world.session.neighbours == world.session.members - 1 and world.session.graph == "worst-case":
        fixed = tuple(u for u in fixed if u in world.colluders or u in world.special)
    others = [u for u in world.session.roster if u not in fixed]
    for order in permutations(others):
        yield dict(zip((*fixed, *others), (*fixed, *order), strict=True))


def _rename(world: World, shown: Shown, names: Mapping[ClientId, ClientId]) -> Shown:
    def clients(some: Collection[ClientId]) -> Clients:
        return tuple(sorted(names[u] for u in some))

    def adverts(choice: Choice) -> Choice:
        told = {names[u]: which for u, which in zip(world.session.roster, choice, strict=True)}
        return tuple(told[u] for u in world.session.roster)

    return Shown(
        adverts(shown.adverts),
        clients(shown.sharers),
        tuple(sorted(map(clients, shown.survivors))),
        None if shown.first is None else adverts(shown.first),
        frozenset(clients(shown.first_to)),
    )


def _subsets(clients: Clients) -> Iterator[Clients]:
    return chain.from_iterable(combinations(clients, size) for size in range(len(clients) + 1))


# Random strategies against a larger group.


def random_session(draw: random.Random, largest: int, *, random_graphs: bool = False) -> Session:
    """8 members or more, with any thresholds and graph that a session allows."""
    members = draw.randint(8, largest)
    least = draw.randint(2 * members // 3 + 1, members)
    colluders = draw.randint(0, max(0, 2 * least - members - 2))
    kind: GraphKind = "worst-case"
    if random_graphs:  # few colluders, or there is none for so few members
        colluders, kind = min(colluders, 1), "random"
    try:
        _, neighbours, needed, _ = make_graph(kind, members, least, colluders)
    except InvalidInput:
        return random_session(draw, largest, random_graphs=random_graphs)
    wanted = 2 * (members - least) + colluders + 2
    if kind == "worst-case" and draw.random() < 0.5 and wanted + wanted % 2 < members:  # as few as thresholds allow
        neighbours = wanted + wanted % 2
        needed = (neighbours + colluders) // 2 + 1
    return Session(
        run="attack", round=1, attempt=0, roster=tuple(range(members)), members=members, min_survivors=least,
        colluders=colluders, graph=kind, neighbours=neighbours, shares_needed=needed, bits=32, length=members + SPARE,
        terms=bytes(32),
    )  # fmt: skip


class Liar:
    """Draws strategies against one world: a few stories, and which of them each member is told.

    ``ledger`` says whether a member that is set back remembers which survivors it has confirmed.
    """

    def __init__(self, world: World, draw: random.Random, *, ledger: bool) -> None:
        self.world, self.draw, self.ledger = world, draw, ledger
        least = world.session.min_survivors
        self.victims = draw.sample(world.honest, draw.randint(1, max(1, world.session.members - least)))
        self.stories = []
        for _ in range(4):
            advertisers = self.most_of(world.session.roster)
            self.stories.append((self.adverts_of(advertisers), self.most_of(advertisers)))

    def most_of(self, clients: Clients) -> Clients:
        """All, or all but some, or but the victims; never fewer than a member would accept."""
        spare = max(0, len(clients) - self.world.session.min_survivors)
        kind = self.draw.random()
        if kind < 0.5 or not spare:
            return clients
        left_out = self.victims if kind < 0.8 else self.draw.sample(clients, spare)
        return tuple(u for u in clients if u not in left_out[:spare])

    def adverts_of(self, clients: Clients) -> Choice:
        """Mostly the newest; in some stories those of earlier invitations, and the second ones of colluders."""
        if self.draw.random() < 0.5:
            return tuple(LIVE if u in clients else None for u in self.world.session.roster)
        offers = self.world.offers
        return tuple(self.draw.randrange(len(offers[u])) if u in clients else None for u in self.world.session.roster)

    def strategy(self) -> Strategy:
        draw, strategy = self.draw, dict[ClientId, Shown]()
        stories = draw.sample(self.stories, draw.choice((1, 1, 2, 3)))
        ends = {sharers: [self.most_of(sharers) for _ in range(draw.choice((1, 2, 2, 3)))] for _, sharers in stories}
        for me in self.world.honest:
            adverts, sharers = stories[0] if draw.random() < 0.6 else draw.choice(stories)
            lists = draw.sample(ends[sharers], len(ends[sharers]))
            lists = [survivors for survivors in lists if me in survivors]
            first, first_to = None, frozenset[ClientId]()
            if draw.random() < 0.1:
                first = self.with_own(me, draw.choice(self.stories)[0])
                first_to = frozenset(u for u in self.world.session.roster if draw.random() < 0.5)
            ends_of_it = tuple(lists[:1] if self.ledger else lists)
            strategy[me] = Shown(self.with_own(me, adverts), sharers, ends_of_it, first, first_to)
        return strategy

    def with_own(self, me: ClientId, adverts: Choice) -> Choice:
        """Nobody accepts another advert of its own than the newest."""
        pairs = zip(self.world.session.roster, adverts, strict=True)
        return tuple(LIVE if u == me and which else which for u, which in pairs)


def search(
    seconds: float,
    seed: int,
    *,
    ledger: bool = True,
    most: int | None = None,
    largest: int = 30,
    random_graphs: bool = False,
) -> tuple[int, int]:
    """Random strategies for some time: how many were tried, and how many gave a sum. Raises ``Found``."""
    end, tried, sums = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end and (most is None or tried < most):
        draw = random.Random(f"{seed} {tried}")
        session = random_session(draw, largest, random_graphs=random_graphs)
        graph = make_graph(session.graph, session.members, session.min_survivors, session.colluders)  # type: ignore[arg-type]
        colluders = tuple(sorted(draw.sample(session.roster, session.colluders)))
        honest = [u for u in session.roster if u not in colluders]
        twice = tuple(draw.sample(honest, draw.choice((0, 0, 1, 2))))
        world = World(session, colluders, invited_twice=twice, seed=tried)
        liar = Liar(world, draw, ledger=ledger)
        for _ in range(20):  # against one world, whose members' steps are remembered
            try:
                sums += bool(play(world, liar.strategy(), session.min_survivors - session.colluders - graph.strays))
            except Found as finding:
                raise Found(f"{finding} (strategy {tried} of seed {seed})") from None
            tried += 1
    return tried, sums


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-ledger", action="store_true", help="members forget what they have confirmed")
    parser.add_argument("--random-graphs", action="store_true", help="members draw who holds their shares")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # members say whose shares they could not open, and a liar makes them say it often
    try:
        tried, sums = search(
            options.seconds, options.seed, ledger=not options.without_ledger, random_graphs=options.random_graphs
        )
    except Found as finding:
        raise SystemExit(f"FOUND: the server gets {finding}") from None
    print(f"{tried} strategies, {sums} of which gave a sum: never two, none too small, never both secrets of a member")


if __name__ == "__main__":
    main()
