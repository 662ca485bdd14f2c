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
        Adverts(adverts=(sent.advert,) * terms.members),
        sent.delivery,
        Survivors(survivors=roster),
        Confirmations(confirmations=(sent.confirmation,) * terms.members),
    )
    up = (sent.advert, sent.shares, sent.masked, sent.confirmation, sent.revealed)
    return sum(len(encode(type(m), m)) for m in up), sum(len(encode(type(m), m)) for m in received)


def planned_events(scheme: Scheme, attempts: int, *, failed_openings: int | None = None) -> list[Event]:
    """What so many attempts at rounds cost, and so many attempts at an opening round beside: all that are reserved."""
    event, opening = scheme.privacy.event(), scheme.at(1).privacy
    first, opened = opening.event(), opening.max_contributions
    if event is None or first is None:
        return []
    if opening is scheme.privacy or opened is None:
        return [replace(event, count=attempts)]
    opened = opened if failed_openings is None else 1 + failed_openings
    return [replace(first, count=opened), *([replace(event, count=attempts - 1)] if attempts > 1 else [])]


def events_at_limit(scheme: Scheme) -> list[Event]:
    """The dearest that a client can have given when it reaches its limit of contributions; nothing without a limit."""
    limit, opening = scheme.privacy.max_contributions, scheme.at(1).privacy
    event, first = scheme.privacy.event(), opening.event()
    if event is None or limit is None or first is None:
        return []
    opened = 0
    if first.noise_multiplier < event.noise_multiplier:  # of openings it gives no more than their own limit says
        opened = min(limit, opening.max_contributions or limit)
    return [replace(kind, count=count) for kind, count in ((first, opened), (event, limit - opened)) if count]


def _phases(scheme: Scheme, rounds: int) -> Iterator[tuple[int, int, Scheme]]:
    """The first round of each part of a run, how many rounds it has, and their scheme."""
    starts = [*scheme.phases, rounds + 1]
    for (first, part), following in zip(scheme.phases.items(), starts[1:], strict=True):
        yield first, following - first, part


def _presence(scheme: Scheme) -> float:
    """In what part of the rounds a client is in the roster."""
    sampling = scheme.privacy.sampling
    return sampling.roster_size / sampling.population
