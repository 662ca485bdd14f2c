"""Whatever a server tries, an honest member refuses before it gives anything away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from lowkey import secagg
from lowkey.errors import InvalidInput, ProtocolViolation
from lowkey.rng import BitSource, ReplaySecrets
from lowkey.secagg import Advert, Confirmation, Delivery, Identity
from lowkey.secagg.messages import sign_advert
from tests.secagg.cohort import Cohort, make_session, make_vectors, next_attempt

SESSION = make_session(10, 8, 1)
VICTIM, PEER = SESSION.roster[4], SESSION.roster[5]
OUTSIDER = 1
SECRET = ReplaySecrets(8).source("reveal")
STAGES = ("advertise", "share", "mask", "confirm", "reveal")


def cohort_after(stage: str, session: secagg.Session = SESSION, seed: int = 0) -> Cohort:
    cohort = Cohort(session, seed=seed)
    for step in STAGES[: STAGES.index(stage) + 1]:
        getattr(cohort, step)(*((make_vectors(session),) if step == "mask" else ()))
    return cohort


def signed(cohort: Cohort, client: int, session: secagg.Session = SESSION) -> Advert:
    """A second advert of a client, as a malicious or confused one would make it."""
    identity = cohort.identities.get(client, Identity.fresh(client, ReplaySecrets(9).source("outsider")))
    return secagg.advertise(session, identity, ReplaySecrets(9).source(client))[1]


def swap(adverts: tuple[Advert, ...], client: int, other: Advert) -> tuple[Advert, ...]:
    return tuple(sorted((other if a.sender == client else a for a in adverts), key=lambda a: a.sender))


def weak(cohort: Cohort, client: int, *, sealing_key: bytes = b"", mask_key: bytes = b"") -> Advert:
    """An advert that a colluding member has signed, with a key of small order: everybody knows what it agrees on."""
    true = key_of(cohort, client)
    keys = sealing_key or true.sealing_key, mask_key or true.mask_key
    return sign_advert(SESSION, cohort.identities[client], *keys, true.seed_digest)


def key_of(cohort: Cohort, client: int) -> Advert:
    return next(a for a in cohort.adverts if a.sender == client)


def share_again(cohort: Cohort, adverts: tuple[Advert, ...]) -> None:
    identity, source = cohort.identities[VICTIM], cohort.source(VICTIM, "share")
    advertisers = tuple(advert.sender for advert in adverts)
    shown = tuple(advert for advert in adverts if advert.sender != VICTIM)
    secagg.share(cohort.states[VICTIM], advertisers, shown, cohort.verify_keys, identity, source)


ROSTER_WITH_OUTSIDER = tuple(sorted({*SESSION.roster, OUTSIDER} - {PEER}))
ADVERT_ATTACKS: dict[str, tuple[Callable[[Cohort], tuple[Advert, ...]], str]] = {
    "swapped mask key": (
        lambda c: swap(c.adverts, PEER, replace(key_of(c, PEER), mask_key=key_of(c, VICTIM).mask_key)),
        "not signed",
    ),
    "swapped sealing key": (
        lambda c: swap(c.adverts, PEER, replace(key_of(c, PEER), sealing_key=key_of(c, VICTIM).sealing_key)),
        "not signed",
    ),
    "one member under two names": (
        lambda c: swap(c.adverts, PEER, replace(key_of(c, VICTIM), sender=PEER)),
        "not signed",
    ),
    "the same member twice": (lambda c: swap(c.adverts, PEER, key_of(c, VICTIM)), "distinct"),
    "a client that is not on the roster": (
        lambda c: swap(c.adverts, PEER, signed(c, OUTSIDER, replace(SESSION, roster=ROSTER_WITH_OUTSIDER))),
        "known",
    ),
    "victim left out": (lambda c: tuple(a for a in c.adverts if a.sender != VICTIM), "missing"),
    "fewer than min_survivors": (lambda c: c.adverts[:7], "7 adverts; at least 8"),
    "no adverts": (lambda c: (), "0 adverts"),
    "unsorted": (lambda c: c.adverts[::-1], "ascending"),
    "advert of the last attempt": (
        lambda c: swap(c.adverts, PEER, key_of(cohort_after("advertise", next_attempt(SESSION)), PEER)),
        "not signed",
    ),
    "a member with less noise": (
        lambda c: swap(c.adverts, PEER, signed(c, PEER, replace(SESSION, terms=b"less noise".ljust(32)))),
        "not signed",
    ),
    "a sealing key of small order": (
        lambda c: swap(c.adverts, PEER, weak(c, PEER, sealing_key=bytes(32))),
        f"the seal key of client {PEER} is unusable",
    ),
    "a mask key of order 2": (
        lambda c: swap(c.adverts, PEER, weak(c, PEER, mask_key=bytes(32))),
        f"the mask key of client {PEER} is unusable",
    ),
    "a mask key of order 4": (
        lambda c: swap(c.adverts, PEER, weak(c, PEER, mask_key=b"\1".ljust(32, b"\0"))),
        f"the mask key of client {PEER} is unusable",
    ),
    "a member with a lower threshold": (
        lambda c: swap(c.adverts, PEER, signed(c, PEER, replace(SESSION, min_survivors=9))),
        "not signed",
    ),
}


@pytest.mark.parametrize(("attack", "message"), ADVERT_ATTACKS.values(), ids=ADVERT_ATTACKS.keys())
def test_false_adverts(attack: Callable[[Cohort], tuple[Advert, ...]], message: str) -> None:
    cohort = cohort_after("advertise")
    with pytest.raises(ProtocolViolation, match=message):
        share_again(cohort, attack(cohort))


def test_a_member_that_is_not_enrolled() -> None:
    cohort = cohort_after("advertise")
    del cohort.verify_keys[PEER]
    with pytest.raises(ProtocolViolation, match="enrolled"):
        share_again(cohort, cohort.adverts)


def test_a_smaller_roster_is_no_session() -> None:
    with pytest.raises(InvalidInput, match="9 members; 10 were agreed"):
        replace(SESSION, roster=SESSION.roster[:-1])


def test_a_client_joins_no_session_without_itself() -> None:
    with pytest.raises(InvalidInput, match="not on the roster"):
        signed(Cohort(SESSION), OUTSIDER)


def redirected(cohort: Cohort) -> Delivery:
    """Shares that a neighbour sealed for somebody else."""
    other = next(u for u in SESSION.roster if u not in (VICTIM, PEER))
    delivery = cohort.deliveries[VICTIM]
    return replace(delivery, sealed={**delivery.sealed, PEER: cohort.deliveries[other].sealed[PEER]})


def replayed(cohort: Cohort) -> Delivery:
    """Shares of another attempt under the very same keys."""

    class SameKeys(Cohort):
        def source(self, client: int, stage: str) -> BitSource:
            return cohort.source(client, stage)

    again = SameKeys(next_attempt(SESSION))
    again.advertise()
    again.share()
    delivery = cohort.deliveries[VICTIM]
    return replace(delivery, sealed={**delivery.sealed, PEER: again.deliveries[VICTIM].sealed[PEER]})


def without(delivery: Delivery, peer: int) -> Delivery:
    """A delivery that lacks the shares of a neighbour."""
    return replace(
        delivery,
        sealed={u: s for u, s in delivery.sealed.items() if u != peer},
        commitments={u: c for u, c in delivery.commitments.items() if u != peer},
    )


def told(sharers: tuple[int, ...]) -> Delivery:
    return Delivery(sharers=sharers, sealed={}, commitments={})


DELIVERY_ATTACKS: dict[str, tuple[Callable[[Cohort], Delivery], str]] = {
    "shares held back": (lambda c: without(c.deliveries[VICTIM], PEER), "got shares from others than the 9 clients"),
    "commitments held back": (
        lambda c: replace(c.deliveries[VICTIM], commitments=without(c.deliveries[VICTIM], PEER).commitments),
        "got shares from others than the 9 clients",
    ),
    "sharers few": (lambda c: told(SESSION.roster[:7]), "7 sharers; at least 8"),
    "sharers twice": (lambda c: told(SESSION.roster + SESSION.roster[-1:]), "distinct"),
    "sharers unknown": (lambda c: told((OUTSIDER, *SESSION.roster)), "known"),
    "sharers without victim": (lambda c: told(tuple(u for u in SESSION.roster if u != VICTIM)), "missing"),
}


@pytest.mark.parametrize(("attack", "message"), DELIVERY_ATTACKS.values(), ids=DELIVERY_ATTACKS.keys())
def test_false_deliveries(attack: Callable[[Cohort], Delivery], message: str) -> None:
    cohort = cohort_after("share")
    with pytest.raises(ProtocolViolation, match=message):
        secagg.mask(cohort.states[VICTIM], attack(cohort), make_vectors(SESSION)[VICTIM], cohort.identities[VICTIM])


def with_sealed(cohort: Cohort, sealed: bytes) -> Delivery:
    delivery = cohort.deliveries[VICTIM]
    return replace(delivery, sealed={**delivery.sealed, PEER: sealed})


def with_commitment(cohort: Cohort, commitment: bytes) -> Delivery:
    delivery = cohort.deliveries[VICTIM]
    return replace(delivery, commitments={**delivery.commitments, PEER: commitment})


USELESS_SHARES: dict[str, Callable[[Cohort], Delivery]] = {
    "altered": lambda c: with_sealed(c, bytes(94)),
    "cut short": lambda c: with_sealed(c, b""),
    "meant for somebody else": redirected,
    "of another attempt": replayed,
    "with a commitment to others": lambda c: with_commitment(c, c.deliveries[PEER].commitments[VICTIM]),
    "with half a commitment": lambda c: with_commitment(c, c.deliveries[VICTIM].commitments[PEER][:16]),
}


@pytest.mark.parametrize("attack", USELESS_SHARES.values(), ids=USELESS_SHARES.keys())
def test_useless_shares_are_left_out_and_all_else_stays_the_same(
    attack: Callable[[Cohort], Delivery], caplog: pytest.LogCaptureFixture
) -> None:
    """To leave would let one hostile owner drive out all its neighbours; to stay reveals less, and nothing more."""
    cohort = cohort_after("share")
    state, vector, identity = cohort.states[VICTIM], make_vectors(SESSION)[VICTIM], cohort.identities[VICTIM]
    whole, masked, _ = secagg.mask(state, cohort.deliveries[VICTIM], vector, identity)
    assert not caplog.records
    spoilt, same, _ = secagg.mask(state, attack(cohort), vector, identity)
    assert masked.tolist() == same.tolist()
    assert spoilt == replace(whole, shares={u: both for u, both in whole.shares.items() if u != PEER})
    assert [r.getMessage() for r in caplog.records] == [
        f"the shares of client {PEER} do not open or do not fit its commitment; client {VICTIM} stays"
    ]


@pytest.mark.parametrize(
    ("survivors", "message"),
    [
        (SESSION.roster[:7], "7 survivors; at least 8"),
        ((*SESSION.roster[:9], SESSION.roster[8]), "distinct"),
        ((OUTSIDER, *SESSION.roster), "known"),
        (tuple(u for u in SESSION.roster if u != VICTIM), "missing"),
    ],
)
def test_false_survivors(survivors: tuple[int, ...], message: str) -> None:
    cohort = cohort_after("mask")
    with pytest.raises(ProtocolViolation, match=message):
        secagg.confirm(cohort.states[VICTIM], survivors, cohort.identities[VICTIM])


def test_two_lists_of_survivors_get_no_share_from_anyone() -> None:
    """Half are told that the victim survived, half that it did not."""
    cohort = cohort_after("mask")
    everyone, others = SESSION.roster, tuple(u for u in SESSION.roster if u != VICTIM)
    states, confirmations = {}, {}
    for place, u in enumerate(SESSION.roster):
        told = everyone if place % 2 == 0 or u == VICTIM else others
        states[u], confirmations[u] = secagg.confirm(cohort.states[u], told, cohort.identities[u])
    for state in states.values():
        same = [c for v, c in confirmations.items() if states[v].survivors == state.survivors]
        for shown in (confirmations.values(), same):
            with pytest.raises(ProtocolViolation, match="confirm"):
                secagg.reveal(state, shown, cohort.verify_keys, cohort.identities[state.me], SECRET)


def test_two_lists_of_sharers_get_no_share_from_anyone() -> None:
    cohort = cohort_after("share")
    vectors = make_vectors(SESSION)
    missing = SESSION.roster[0]
    states, confirmations = {}, {}
    for u in SESSION.roster[1:]:
        delivery = cohort.deliveries[u]
        if u % 2:
            delivery = replace(without(delivery, missing), sharers=delivery.sharers[1:])
        state, *_ = secagg.mask(cohort.states[u], delivery, vectors[u], cohort.identities[u])
        states[u], confirmations[u] = secagg.confirm(state, SESSION.roster[1:], cohort.identities[u])
    for state in states.values():
        with pytest.raises(ProtocolViolation, match="does not confirm"):
            secagg.reveal(state, confirmations.values(), cohort.verify_keys, cohort.identities[state.me], SECRET)


def test_a_neighbour_is_alive_or_dead_but_never_both() -> None:
    dead = SESSION.roster[2:4]
    cohort = cohort_after("share")
    cohort.mask(make_vectors(SESSION), without=dead)
    cohort.confirm()
    for u, revealed in cohort.reveal().items():
        assert set(revealed.mask_shares) == set(dead)
        assert set(revealed.seed_shares) == set(SESSION.roster) - set(dead) - {u}


def last_attempt(cohort: Cohort) -> tuple[Confirmation, ...]:
    return cohort_after("confirm", next_attempt(SESSION)).confirmations


CONFIRMATION_ATTACKS: dict[str, tuple[Callable[[Cohort], tuple[Confirmation, ...]], str]] = {
    "too few": (lambda c: c.confirmations[:7], "7 members"),
    "one many times": (lambda c: c.confirmations[:7] + c.confirmations[:1] * 5, "7 members"),
    "none": (lambda c: (), "0 members"),
    "of another attempt": (last_attempt, "does not confirm"),
    "forged": (
        lambda c: (replace(c.confirmations[0], signature=bytes(64)), *c.confirmations[1:]),
        "does not confirm",
    ),
    "under another name": (
        lambda c: (replace(c.confirmations[0], sender=PEER), *c.confirmations[1:]),
        "does not confirm",
    ),
    "from outside": (lambda c: (*c.confirmations, Confirmation(sender=OUTSIDER, signature=bytes(64))), "does not"),
}


@pytest.mark.parametrize(("attack", "message"), CONFIRMATION_ATTACKS.values(), ids=CONFIRMATION_ATTACKS.keys())
def test_false_confirmations(attack: Callable[[Cohort], tuple[Confirmation, ...]], message: str) -> None:
    cohort = cohort_after("confirm")
    with pytest.raises(ProtocolViolation, match=message):
        secagg.reveal(cohort.states[VICTIM], attack(cohort), cohort.verify_keys, cohort.identities[VICTIM], SECRET)


@pytest.mark.parametrize(
    ("reached", "asked"), [(reached, asked) for reached in range(5) for asked in range(1, 5) if asked != reached + 1]
)
def test_each_step_comes_once_and_in_order(reached: int, asked: int) -> None:
    done = cohort_after("reveal")
    state, identity = cohort_after(STAGES[reached]).states[VICTIM], done.identities[VICTIM]
    steps: dict[int, Callable[[], object]] = {
        1: lambda: secagg.share(
            state,
            done.links.advertisers,
            done.links.shown_to(VICTIM),
            done.verify_keys,
            identity,
            done.source(VICTIM, "again"),
        ),
        2: lambda: secagg.mask(state, done.deliveries[VICTIM], make_vectors(SESSION)[VICTIM], identity),
        3: lambda: secagg.confirm(state, SESSION.roster, identity),
        4: lambda: secagg.reveal(state, done.confirmations, done.verify_keys, identity, SECRET),
    }
    with pytest.raises(ProtocolViolation, match="comes once"):
        steps[asked]()
