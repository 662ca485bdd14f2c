"""What the members of one attempt at a secure sum agree on, and the graph of members that mask with each other."""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.graphs import OPENED_FAILURE, allowed_shares, smallest_min_survivors, trapped
from lowkey.secagg.encoding import encode
from lowkey.types import ClientId

VERSION = b"lowkey/secagg/v3"
"""In every signature; a new one whenever messages or what is signed change. (v3: views name members, not adverts.)"""
ID_LIMIT = 2**32
DRAW_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class Session:
    """One attempt at a round. All members must hold equal sessions; the digest is in every signature.

    A client takes round, attempt and roster from the server and everything else from its own settings, so that
    clients refuse a server that wants fewer members, weaker thresholds or other terms.

    Parameters
    ----------
    run, round, attempt : str, int, int
        Which sum this is; a new attempt needs fresh keys and fresh noise.
    roster : tuple of ClientId
        Ids of all members, ascending, each below 2^32.
    members : int
        M ≥ 3, how many the roster must have.
    min_survivors : int
        t, the least number of members whose vectors make a sum, at least ⌊2M/3⌋ + 1.
    colluders : int
        c, how many members may share all they know with the server.
    graph : str
        "worst-case" or "random": who holds shares of a member's secrets. Members mask with those, and with the members
        whose shares they hold.
    neighbours : int
        k, how many others hold shares of each member's secrets. In the worst-case graph even, or M - 1 for everyone.
    shares_needed : int
        T, how many of its k holders together can recover a member's secret.
    bits : int
        b, width of the numbers, 8 to 32; sums are taken modulo 2^b.
    length : int
        d ≥ 1, numbers in a vector.
    terms : bytes
        32-byte digest of everything else that must be equal for all, such as the noise that every member adds.

    Guarantees
    ----------
    A server that may lie, together with at most c members, learns of the honest members' vectors nothing but one sum
    over at least t - c of them.

    *worst-case*: member i of the sorted roster is joined to i ± 1 … i ± k/2 (mod M): the graph of
    Harary (1962), which stays connected when any k - 1 members are taken away. With at most M - t dropouts,

    * recovery, T ≤ k - (M - t): enough neighbours of each member are left to recover its secret;
    * never both, 2T > k + c: a neighbour gives its share of one of a member's two secrets, a colluder of both, so
      that T shares of both cannot be had, whatever the neighbours were told;
    * connection, c + (M - t) < k: the honest survivors are connected by masks that nobody else knows.

    The first two imply k > 2(M - t) + c and so the third; and, as k < M, that c < 2t - M: two lists of survivors
    cannot both be signed by t members. A member that was shown other lists than those who sign counts as dropped, and
    still has an honest neighbour that is on its list. All this holds in the worst case, not with high probability.

    *random*: each member draws its k holders itself, after the colluders are chosen and the roster is fixed. But for
    a chance of 2⁻⁶⁴, no set of at most half of the honest members has, for each of them, T holders in the set or among
    colluders, and at most :attr:`lowkey.graphs.Graph.strays` members can be cut off. A holder gives shares of a seed
    only if its owner masked under the same list of sharers. Then the server learns one sum over at least t - c honest
    members less the strays, whichever dropouts it makes: see ADR 0019.

    References
    ----------
    Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving machine learning".
    Bell et al. (2020), "Secure single-server aggregation with (poly)logarithmic overhead".
    """

    run: str
    round: int
    attempt: int
    roster: tuple[ClientId, ...]
    members: int
    min_survivors: int
    colluders: int
    graph: str = "worst-case"
    neighbours: int
    shares_needed: int
    bits: int
    length: int
    terms: bytes

    def __post_init__(self) -> None:
        for name, number in (("round", self.round), ("attempt", self.attempt)):
            if not 0 <= number < ID_LIMIT:
                raise InvalidInput(f"{name} is {number}; it must be at least 0 and below 2^32")
        if len(self.roster) != self.members:
            raise InvalidInput(f"the roster has {len(self.roster)} members; {self.members} were agreed on")
        if not is_ascending(self.roster) or not 0 <= self.roster[0] <= self.roster[-1] < ID_LIMIT:
            raise InvalidInput("the roster must list distinct ids in ascending order, each below 2^32")
        least = smallest_min_survivors(self.members)
        if not least <= self.min_survivors <= self.members:
            raise InvalidInput(f"min_survivors is {self.min_survivors} of {self.members}; it must be at least {least}")
        self._check_graph()
        if not 8 <= self.bits <= 32:
            raise InvalidInput(f"bits is {self.bits}; it must lie in 8 … 32")
        checks.at_least("length", self.length, 1)
        if len(self.terms) != 32:
            raise InvalidInput(f"terms has {len(self.terms)} bytes; it must be a digest of 32")

    def _check_graph(self) -> None:
        """Refuse a graph that does not bear what the session says."""
        checks.one_of("graph", self.graph, ("worst-case", "random"))
        if self.graph == "random":
            _check_random(self.members, self.min_survivors, self.colluders, self.neighbours, self.shares_needed)
            return
        if self.neighbours != self.members - 1 and not (
            self.neighbours % 2 == 0 and 2 <= self.neighbours < self.members
        ):
            raise InvalidInput(
                f"neighbours is {self.neighbours}; it must be {self.members - 1}, or an even number from 2 up to less"
            )
        fewest, most = allowed_shares(self.members, self.min_survivors, self.colluders, self.neighbours)
        if not fewest <= self.shares_needed <= most:
            raise InvalidInput(
                f"shares_needed is {self.shares_needed}; {self.neighbours} neighbours, {self.colluders} colluders and "
                f"{self.members - self.min_survivors} dropouts allow {fewest} to {most}"
                + (" (none: lower colluders or raise min_survivors)" if fewest > most else "")
            )

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that stand for every field."""
        return hashlib.sha256(VERSION + encode(Session, self)).digest()

    @cached_property
    def salt(self) -> bytes:
        """Ties every derived key to this run, round and attempt."""
        return hashlib.sha256(b"flcsdp/v1|" + self.run.encode() + b"|" + be32(self.round, self.attempt)).digest()

    @cached_property
    def _positions(self) -> dict[ClientId, int]:
        return {client: position for position, client in enumerate(self.roster)}

    def __contains__(self, client: object) -> bool:
        return client in self._positions

    def holders_of(self, client: ClientId, draw: bytes = b"") -> dict[ClientId, int]:
        """Who holds shares of a member's secrets, each with the point, from 1 on, at which it does.

        In the random graph they follow from what the member has drawn, ``draw``; in the worst-case graph a point is
        the distance along the circle.
        """
        if self.graph == "random":
            place = self._positions[client]
            places = _drawn_places(self.digest, client, place, self.members, self.neighbours, draw)
            return {self.roster[place]: point for point, place in enumerate(places, start=1)}
        half, position = self.neighbours // 2, self._positions[client]
        full = self.neighbours == self.members - 1
        distances = range(1, self.members) if full else (*range(1, half + 1), *range(self.members - half, self.members))
        return {self.roster[(position + distance) % self.members]: distance for distance in distances}


@lru_cache(maxsize=64)
def _check_random(members: int, min_survivors: int, colluders: int, neighbours: int, shares_needed: int) -> None:
    if not 2 <= shares_needed <= neighbours < members:
        raise InvalidInput(
            f"shares_needed and neighbours are {shares_needed} and {neighbours}; they must rise from 2 to below "
            f"{members}"
        )
    if not 0 <= colluders < 2 * min_survivors - members:
        raise InvalidInput(
            f"colluders is {colluders}; with {min_survivors} of {members} members it must be below "
            f"{2 * min_survivors - members}"
        )
    if trapped(members, colluders, neighbours, shares_needed) > math.log(OPENED_FAILURE / 2):
        raise InvalidInput(
            f"{shares_needed} shares from {neighbours} random holders do not keep {colluders} colluders among "
            f"{members} members away from secrets with a chance of 1 − 2⁻⁶⁴; take more"
        )


@lru_cache(maxsize=1 << 15)
def _drawn_places(digest: bytes, client: ClientId, place: int, members: int, drawn: int, draw: bytes) -> list[int]:
    """k of the other places, each set as likely as any other (but for a factor of 1 ± 2⁻²⁵), by Fisher and Yates.

    SHAKE-256 makes 64-bit numbers from 16 random bytes; scaled to less than n each is uniform up to n/2⁶⁴.
    """
    seed = b"lowkey/secagg/holders|" + digest + be32(client) + draw
    moved: dict[int, int] = {}
    others, places = members - 1, list[int]()
    for step, number in enumerate(struct.unpack(f">{drawn}Q", hashlib.shake_256(seed).digest(8 * drawn))):
        chosen = step + (number * (others - step) >> 64)
        found = moved.get(chosen, chosen)
        moved[chosen] = moved.get(step, step)
        places.append(found + (found >= place))
    return places


def is_ascending(ids: tuple[ClientId, ...]) -> bool:
    """Sorted and without repetition: the one way to write a set of members."""
    return all(a < b for a, b in pairwise(ids))


def be32(*numbers: int) -> bytes:
    """Numbers below 2^32 as four big-endian bytes each."""
    return struct.pack(f">{len(numbers)}I", *numbers)
