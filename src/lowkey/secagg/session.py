"""What the members of one attempt at a secure sum agree on, and the graph of members that mask with each other."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.secagg.encoding import encode
from lowkey.types import ClientId

VERSION = b"lowkey/secagg/v2"
"""In every signature; a new one whenever messages or what is signed change. (v2: all messages are signed.)"""
ID_LIMIT = 2**32
USUAL_NEIGHBOURS = 32
"""Just enough for 10 dropouts and 10 colluders among 100 members; more are taken when the thresholds ask for it."""


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
    neighbours : int
        k, how many others each member masks with: even, or M - 1 for everyone.
    shares_needed : int
        T, how many of its k neighbours together can recover a member's secret.
    bits : int
        b, width of the numbers, 8 to 32; sums are taken modulo 2^b.
    length : int
        d ≥ 1, numbers in a vector.
    terms : bytes
        32-byte digest of everything else that must be equal for all, such as the noise that every member adds.

    Guarantees
    ----------
    A server that may lie, together with at most c members, learns of the honest members' vectors nothing but one sum
    over at least t - c of them. Member i of the sorted roster is joined to i ± 1 … i ± k/2 (mod M): the graph of
    Harary (1962), which stays connected when any k - 1 members are taken away. With at most M - t dropouts,

    * recovery, T ≤ k - (M - t): enough neighbours of each member are left to recover its secret;
    * never both, 2T > k + c: a neighbour gives its share of one of a member's two secrets, a colluder of both, so
      that T shares of both cannot be had, whatever the neighbours were told;
    * connection, c + (M - t) < k: the honest survivors are connected by masks that nobody else knows.

    The first two imply k > 2(M - t) + c and so the third; and, as k < M, that c < 2t - M: two lists of survivors
    cannot both be signed by t members. A member that was shown other lists than those who sign counts as dropped, and
    still has an honest neighbour that is on its list. All this holds in the worst case, not with high probability.

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
        if self.neighbours != self.members - 1 and not (
            self.neighbours % 2 == 0 and 2 <= self.neighbours < self.members
        ):
            raise InvalidInput(
                f"neighbours is {self.neighbours}; it must be {self.members - 1}, or an even number from 2 up to less"
            )
        fewest, most = _allowed_shares(self.members, self.min_survivors, self.colluders, self.neighbours)
        if not fewest <= self.shares_needed <= most:
            raise InvalidInput(
                f"shares_needed is {self.shares_needed}; {self.neighbours} neighbours, {self.colluders} colluders and "
                f"{self.members - self.min_survivors} dropouts allow {fewest} to {most}"
                + (" (none: lower colluders or raise min_survivors)" if fewest > most else "")
            )
        if not 8 <= self.bits <= 32:
            raise InvalidInput(f"bits is {self.bits}; it must lie in 8 … 32")
        checks.at_least("length", self.length, 1)
        if len(self.terms) != 32:
            raise InvalidInput(f"terms has {len(self.terms)} bytes; it must be a digest of 32")

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

    def neighbours_of(self, client: ClientId) -> dict[ClientId, int]:
        """Each neighbour with its distance along the ring, 1 … M - 1: the point at which it holds shares."""
        half, position = self.neighbours // 2, self._positions[client]
        full = self.neighbours == self.members - 1
        distances = range(1, self.members) if full else (*range(1, half + 1), *range(self.members - half, self.members))
        return {self.roster[(position + distance) % self.members]: distance for distance in distances}


def session_graph(members: int, min_survivors: int, colluders: int) -> tuple[int, int]:
    """Number of neighbours and of shares needed: 32 neighbours, or as many as the thresholds ask for, or everyone.

    Raises ``InvalidInput`` when even the full graph does not allow this many dropouts and colluders.
    """
    least = smallest_min_survivors(members)
    if not least <= min_survivors <= members:
        raise InvalidInput(f"min_survivors is {min_survivors} of {members}; it must be at least {least}")
    wanted = 2 * (members - min_survivors) + colluders + 2
    neighbours = min(members - 1, max(USUAL_NEIGHBOURS, wanted + wanted % 2))
    fewest, most = _allowed_shares(members, min_survivors, colluders, neighbours)
    if fewest > most:
        raise InvalidInput(
            f"{members} members cannot tolerate {members - min_survivors} dropouts and {colluders} colluders; "
            f"colluders must be at most {max(0, 2 * min_survivors - members - 2)}"
        )
    return neighbours, (fewest + most) // 2


def smallest_min_survivors(members: int) -> int:
    """⌊2M/3⌋ + 1: with fewer, the server could show two halves of the members different lists."""
    if members < 3:
        raise InvalidInput(f"members is {members}; below 3 a sum tells each member the other's vector")
    return 2 * members // 3 + 1


def _allowed_shares(members: int, min_survivors: int, colluders: int, neighbours: int) -> tuple[int, int]:
    """Smallest and largest T: never both, and recovery."""
    checks.at_least("colluders", colluders, 0)
    return (neighbours + colluders) // 2 + 1, neighbours - (members - min_survivors)


def is_ascending(ids: tuple[ClientId, ...]) -> bool:
    """Sorted and without repetition: the one way to write a set of members."""
    return all(a < b for a, b in pairwise(ids))


def be32(*numbers: int) -> bytes:
    """Numbers below 2^32 as four big-endian bytes each."""
    return struct.pack(f">{len(numbers)}I", *numbers)
