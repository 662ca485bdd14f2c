"""What a run will cost a client, before it starts: bytes by kind, and the events that are paid for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lowkey.federation.records import Adverts, Confirmations, Invite, Survivors
from lowkey.federation.schemes import Scheme
from lowkey.privacy import Event, Terms
from lowkey.secagg import encode, example_messages


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Expected bytes of one enrolled client in a whole run, without attempts that fail.

    Attributes
    ----------
    vectors_up : float
        Its vectors, also those that are noise only.
    models_down : float
        The models that it is asked to train.
    protocol_up, protocol_down : float
        Keys, shares and signatures of secure aggregation, if nobody drops out. What a transport adds is not counted.
    """

    vectors_up: float
    models_down: float
    protocol_up: float
    protocol_down: float


def vectors_up(scheme: Scheme, num_coordinates: int, rounds: int) -> float:
    """Expected bytes of the vectors of one enrolled client: everybody in a roster sends one."""
    return sum(
        count * _presence(part) * part.wire(num_coordinates, first).num_bytes
        for first, count, part in _phases(scheme, rounds)
    )


def traffic(scheme: Scheme, num_coordinates: int, rounds: int) -> Traffic:
    """What one enrolled client sends and receives, on average, in so many rounds of a private scheme."""
    up = down = models = 0.0
    for first, count, part in _phases(scheme, rounds):
        sent, received = protocol_bytes(part.terms(num_coordinates, first))
        up += count * _presence(part) * sent
        down += count * _presence(part) * received
        models += count * part.privacy.sampling.probability * 4 * num_coordinates
    vectors = vectors_up(scheme, num_coordinates, rounds)
    return Traffic(vectors_up=vectors, models_down=models, protocol_up=up, protocol_down=down)


def protocol_bytes(terms: Terms) -> tuple[int, int]:
    """Bytes that a member sends and receives in a masked sum in which nobody drops out, beside vector and model."""
    roster = tuple(range(terms.members))
    session = Scheme.session("run", 1, 0, roster, terms)
    sent = example_messages(session)
    received = (
        Invite(run=session.run, roster=roster),
        Adverts(advertisers=roster, adverts=(sent.advert,) * sent.peers),
        sent.delivery,
        Survivors(survivors=roster),
        Confirmations(confirmations=(sent.confirmation,) * terms.members, vouchers=sent.vouchers),
    )
    up = (sent.advert, sent.shares, sent.masked, sent.confirmation, sent.revealed)
    return sum(len(encode(type(m), m)) for m in up), sum(len(encode(type(m), m)) for m in received)


def planned_events(scheme: Scheme, attempts: int, *, failed_openings: int | None = None) -> list[Event]:
    """What so many attempts at rounds that learn cost, and beside them all that are reserved for other releases.

    ``failed_openings`` counts failed attempts at releases of other kinds; None all that are reserved.
    """
    found, event = [], scheme.privacy.event()
    if event is None:
        return []
    for other in _of_everybody(scheme):
        reserved, kind = other.privacy.max_contributions, other.privacy.event()
        times = len(scheme.asked) if other.purpose == "ask" else 1
        if kind is None or reserved is None:
            return []
        found.append(replace(kind, count=reserved if failed_openings is None else times + failed_openings))
        attempts -= other.purpose == "centre"
    return [*found, *([replace(event, count=attempts)] if attempts > 0 and scheme.learns else [])]


def events_at_limit(scheme: Scheme) -> list[Event]:
    """The dearest that a client can have given when it reaches its limit of contributions; nothing without a limit."""
    limit, event = scheme.privacy.max_contributions, scheme.privacy.event()
    if event is None or limit is None:
        return []
    found = []
    for other in _of_everybody(scheme):
        kind, own = other.privacy.event(), other.privacy.max_contributions
        if kind is None:
            return []
        if kind.noise_multiplier < event.noise_multiplier or other.purpose == "ask":
            given = min(limit, own or limit)  # of releases of this kind it gives no more than their own limit says
            found.append(replace(kind, count=given))
            limit -= given
    return [*found, *([replace(event, count=limit)] if limit else [])]


def _of_everybody(scheme: Scheme) -> list[Scheme]:
    """The schemes of releases that have their own noise and limit: one of each kind."""
    found: dict[str, Scheme] = {}
    for other in scheme.others.values():
        if other.purpose in ("centre", "ask") and other.private:
            found.setdefault(other.purpose, other)
    return list(found.values())


def _phases(scheme: Scheme, rounds: int) -> Iterator[tuple[int, int, Scheme]]:
    """The first round of each part of a run, how many it has, and their scheme; ``rounds`` has no questions."""
    usual = rounds + len(scheme.asked) - len(scheme.others)
    for first, part in scheme.phases.items():
        yield first, usual if part is scheme else sum(other is part for other in scheme.others.values()), part


def _presence(scheme: Scheme) -> float:
    """In what part of the rounds a client is in the roster."""
    sampling = scheme.privacy.sampling
    return sampling.roster_size / sampling.population
