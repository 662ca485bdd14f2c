"""Proofs that a hidden vector is short, so that a member cannot lie about its size under masks.

A member commits to its integers v, noise included, and proves without showing them that Σ v_i² ≤ B². Commitments add up
like vectors and masks do. When the server has unmasked the sum, it also knows the sum of the blindings, and checks that
the sum it has read is that of the committed vectors: nobody is in it with another vector than the one proven.

The proof is one quadratic equation about one committed vector w = (v, b, y): b are the bits of B² − Σ v_i², and y are
128 large random numbers. Equations hold modulo the order of the group, so it must also be shown that no v_i is so large
that squares wrap. A hash of the commitments chooses 128 random subsets of the v_i; the sum of each, hidden by its y_j,
is shown and must be small. If a v_i were too large, each of these sums would be, with probability ½ or more.

The noise of a share is part of v, and nobody can prove that it was drawn by chance: B² is what noise and a contribution
exceed with probability 2⁻⁶⁴, and a liar may spend all of it on a lie. docs/adr/0017 has the figures.

References
----------
Bell et al. (2022), *ACORN: Input Validation for Secure Aggregation*: commitments whose blindings the masks carry.
Gentry, Halevi and Lyubashevsky (2021), *Practical Non-interactive Publicly Verifiable Secret Sharing with Thousands of
Parties*: sums of random subsets as proofs of smallness.
Attema and Cramer (2020), *Compressed Σ-Protocol Theory*: quadratic equations about a committed vector, opened linearly.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lowkey.errors import CannotContribute, InvalidInput
from lowkey.privacy.curve import (
    NOTHING,
    ORDER,
    POINT_BYTES,
    SCALAR_BYTES,
    add,
    combine,
    commit,
    generators,
    is_point,
    random_scalars,
    scalar_bytes,
    subtract,
)
from lowkey.privacy.encoding import centred, exact_square
from lowkey.rng import BitSource, OSSecrets
from lowkey.types import ClientId, Words

_SUBSETS = 128  # a vector that is too large passes all of them with probability 2⁻¹²⁸
_SHOWN_BYTES = 16
_POINTS = 6  # commitments to v and to what is beside it, and four of the Σ-protocol
_MOST_BYTES = 2_000_000  # of a proof: a message of a secure aggregation has 2 MiB
_HIDING = 71  # bits by which y_j exceeds what it hides: all 128 together hide it up to 2⁻⁶⁴


@dataclass(frozen=True, kw_only=True)
class NormBound:
    """What every member proves: its ``length`` integers modulo 2^``bits`` have squares that add up to ``square``.

    Guarantees
    ----------
    Members that ``honest`` returns have committed to a vector within the bound, except with probability 2⁻¹²⁷ for each
    hash that a liar computes: as long as discrete logarithms in Ed25519 are hard, and SHA-512 and SHAKE-256 behave like
    random functions. A proof tells nothing else about the vector, up to 2⁻⁶⁴. Nobody outside of Lowkey has reviewed
    this protocol yet.
    """

    length: int
    bits: int
    square: int

    def __post_init__(self) -> None:
        most = 2**self._mask_bits + 2 * self._reach
        if self.length * most**2 + 2 ** (self._digits + 1) >= ORDER // 2 or most >= 256**_SHOWN_BYTES:
            raise InvalidInput(f"{self.length} integers of {self.bits} bits are too long for proofs of their norm")
        if self.num_bytes > _MOST_BYTES:
            raise InvalidInput(
                f"a proof about {self.length} numbers would take {self.num_bytes} bytes, and a message has room for "
                f"{_MOST_BYTES}; compress more, or do without privacy.proofs"
            )

    @cached_property
    def _digits(self) -> int:
        """Binary digits of B² − Σ v_i²."""
        return self.square.bit_length()

    @cached_property
    def _reach(self) -> int:
        """What the sum of a subset is at most, by the inequality of Cauchy and Schwarz."""
        return math.isqrt(self.length * self.square) + 1

    @cached_property
    def _mask_bits(self) -> int:
        """Binary digits of each y_j."""
        return (2 * self._reach).bit_length() + _HIDING

    @property
    def _beside(self) -> int:
        """How many numbers are proven beside v."""
        return self._digits + _SUBSETS

    @property
    def num_bytes(self) -> int:
        """Bytes of every proof."""
        scalars = self.length + self._beside + 3
        return _POINTS * POINT_BYTES + _SUBSETS * _SHOWN_BYTES + scalars * SCALAR_BYTES

    def prove(self, vector: Words, blinding: int, session: bytes, client: ClientId, source: BitSource) -> bytes:
        """Commit to a vector and prove that it is short.

        Parameters
        ----------
        vector : Words
            Integers modulo 2^bits.
        blinding : int
            ρ, as the masks of this member say; secret, and never used again.
        session, client : bytes, ClientId
            Whose proof this is, and the digest of what it is for: it holds for nobody and nothing else.
        source : BitSource
            Secret bits.

        Raises
        ------
        CannotContribute
            The vector is too long, which noise makes of an honest one with probability 2⁻⁶⁴.
        """
        values = centred(vector, self.bits).astype(np.int64)
        rest = self.square - exact_square(values)
        if rest < 0:
            raise CannotContribute("its noise is longer than it can prove; the next attempt has fresh noise")
        return self._claim(values, rest, blinding, _context(session, client), source)

    def _claim(self, values: NDArray[np.int64], rest: int, blinding: int, context: bytes, source: BitSource) -> bytes:
        beside = [rest >> digit & 1 for digit in range(self._digits)]
        beside += (masks := [value % 2**self._mask_bits for value in random_scalars(source, _SUBSETS)])
        point, random = values.tolist() + beside, random_scalars(source, self.length + self._beside)
        blindings = [blinding, *random_scalars(source, 5)]  # of: values, beside; random values, beside, still, slope
        committed, also = commit("values", point[: self.length], blinding), commit("beside", beside, blindings[1])
        transcript = _Transcript(self, context, committed, also)
        subsets = transcript.subsets()
        sums = (np.unpackbits(subsets, axis=1).astype(values.dtype).T @ values).tolist()
        shown = [total + mask + self._reach for total, mask in zip(sums, masks, strict=True)]
        equation = _Equation.of(self, subsets, shown, transcript.challenge(_numbers(shown)))
        basis = generators("one", 1) + generators("blinding", 1)
        first = [
            commit("values", random[: self.length], blindings[2]),
            commit("beside", random[self.length :], blindings[3]),
            combine([equation.at(random, 0), blindings[4]], basis),
            combine([equation.slope(point, random), blindings[5]], basis),
        ]
        c = transcript.challenge(b"".join(first))
        answers = [r + c * w for r, w in zip(random, point, strict=True)]
        answers += [blindings[2 + i] + c * blindings[i] for i in range(2)] + [blindings[4] + c * blindings[5]]
        return b"".join([committed, also, *first, _numbers(shown), *map(scalar_bytes, answers)])

    def honest(self, proofs: Mapping[ClientId, bytes], session: bytes) -> set[ClientId]:
        """The members whose proofs hold: all at once if nobody lies, else by halving."""
        parsed = {client: self._parse(proof, _context(session, client)) for client, proof in proofs.items()}
        readable = {client: claim for client, claim in parsed.items() if claim is not None}
        words = OSSecrets().source().bits(6 * len(readable)).reshape(-1, 3, 2)
        weights = [tuple(int(low) << 64 | int(high) for low, high in own) for own in words]
        weighted = list(zip(sorted(readable), (readable[client] for client in sorted(readable)), weights, strict=True))
        return set(self._search(weighted, self._error(weighted)))

    def _search(self, claims: Sequence[_Weighted], error: bytes) -> Iterator[ClientId]:
        """Halve what does not hold. Weights stay: the error of one half is that of all less that of the other."""
        if error == NOTHING:
            yield from (client for client, _, _ in claims)
        elif len(claims) > 1:
            half = len(claims) // 2
            first = self._error(claims[:half])
            yield from self._search(claims[:half], first)
            yield from self._search(claims[half:], subtract(error, first))

    def is_sized(self, proof: bytes) -> bool:
        """Whether a proof has the size of one, so that it is worth keeping."""
        return len(proof) == self.num_bytes

    def _parse(self, proof: bytes, context: bytes) -> _Claim | None:
        """What a proof claims, with the challenges that follow from it; None if it is not of the right form."""
        if not self.is_sized(proof):
            return None
        begin, end = _POINTS * POINT_BYTES, _POINTS * POINT_BYTES + _SUBSETS * _SHOWN_BYTES
        points = [proof[i : i + POINT_BYTES] for i in range(0, begin, POINT_BYTES)]
        shown, answers = _read(proof[begin:end], _SHOWN_BYTES), _read(proof[end:], SCALAR_BYTES)
        too_large = max(shown) >= 2**self._mask_bits + 2 * self._reach or max(answers) >= ORDER
        if too_large or not all(map(is_point, points)):
            return None
        transcript = _Transcript(self, context, *points[:2])
        subsets = transcript.subsets()
        alpha = transcript.challenge(_numbers(shown))
        c = transcript.challenge(b"".join(points[2:]))
        return _Claim(points, _Equation.of(self, subsets, shown, alpha).at(answers[:-3], c), answers, c)

    def _error(self, claims: Sequence[_Weighted]) -> bytes:
        """One sum of points that is nothing if all claims are true: each has a weight that no liar could foresee."""
        size = self.length + self._beside
        totals, own = [0] * (size + 2), list[tuple[int, bytes]]()
        for _, claim, (a, b, e) in claims:
            weights = [a] * self.length + [b] * self._beside
            z, c, (of_values, of_beside, of_equation) = claim.answers, claim.challenge, claim.answers[-3:]
            terms = [weight * answer for weight, answer in zip(weights, z[:size], strict=True)]
            terms += [e * claim.value, a * of_values + b * of_beside + e * of_equation]
            totals = [total + term for total, term in zip(totals, terms, strict=True)]
            own += zip([-a * c, -b * c, -a, -b, -e, -e * c], claim.points, strict=True)
        basis = (
            *generators("values", self.length), *generators("beside", self._beside), *generators("one", 1),
            *generators("blinding", 1),
        )  # fmt: skip
        return add([combine(totals, basis), combine(*zip(*own, strict=True)) if own else NOTHING])

    def fits(self, vector: Words) -> bool:
        """Whether a vector that everybody can see is short."""
        values = centred(vector, self.bits).astype(np.int64)
        return exact_square(values) <= self.square

    def opens(self, proofs: Iterable[bytes], total: Words, blinding: int) -> bool:
        """Whether a sum modulo 2^bits is that of the committed vectors; ``blinding`` is the sum of their blindings."""
        committed = add(proof[:POINT_BYTES] for proof in proofs)
        return commit("values", centred(total, self.bits).tolist(), blinding) == committed


def _context(session: bytes, client: ClientId) -> bytes:
    return session + client.to_bytes(8, "big")


@dataclass(frozen=True)
class _Claim:
    """A proof that was read: the six points, the equation at the answers, the answers, the challenge."""

    points: list[bytes]
    value: int
    answers: list[int] = field(repr=False)
    challenge: int


_Weighted: TypeAlias = tuple[ClientId, _Claim, tuple[int, ...]]


class _Transcript:
    """A hash of all that was said so far; challenges follow from it (Fiat and Shamir 1986)."""

    def __init__(self, bound: NormBound, context: bytes, *points: bytes) -> None:
        self._bound = bound
        self._hash = hashlib.sha512(f"lowkey norm proof 1 {bound.length} {bound.bits} {bound.square} ".encode())
        self._hash.update(len(context).to_bytes(8, "big") + context + b"".join(points))

    def subsets(self) -> NDArray[np.uint8]:
        """A bit for each subset and coordinate, as bytes of shape (length, 16)."""
        stream = hashlib.shake_256(self._hash.digest()).digest(self._bound.length * _SUBSETS // 8)
        return np.frombuffer(stream, np.uint8).reshape(self._bound.length, -1)

    def challenge(self, said: bytes) -> int:
        """A number that nobody can foresee before this is said."""
        self._hash.update(said)
        return int.from_bytes(self._hash.digest(), "little") % ORDER


@dataclass(frozen=True)
class _Equation:
    """Σ q_i w_i² + Σ l_i w_i + constant = 0 for w = (v, b, y): all that is to be proven, weighed by powers of α.

    Σ v_i² + Σ 2^j b_j = B²; b_j² = b_j for every digit; y_j + the sum of subset j = what was shown of it, each subset.
    """

    squares: list[int]
    linear: list[int]
    constant: int

    @classmethod
    def of(cls, bound: NormBound, subsets: NDArray[np.uint8], shown: Sequence[int], alpha: int) -> _Equation:
        powers = [alpha]
        while len(powers) < bound._beside:
            powers.append(powers[-1] * alpha % ORDER)
        for_digits, for_subsets = powers[: bound._digits], powers[bound._digits :]
        tables = [_byte_sums(for_subsets[i : i + 8]) for i in range(0, _SUBSETS, 8)]
        sums = [sum(table[byte] for table, byte in zip(tables, row, strict=True)) for row in subsets.tolist()]
        linear = sums + [(1 << digit) - power for digit, power in enumerate(for_digits)] + for_subsets
        totals = (power * (value - bound._reach) for power, value in zip(for_subsets, shown, strict=True))
        return cls([1] * bound.length + for_digits + [0] * _SUBSETS, linear, -bound.square - sum(totals))

    def at(self, point: Sequence[int], scale: int) -> int:
        """Its homogeneous form, where ``scale`` stands for 1."""
        squares = sum(q * w * w for q, w in zip(self.squares, point, strict=True) if q)
        linear = sum(factor * w for factor, w in zip(self.linear, point, strict=True))
        return (squares + scale * linear + scale**2 * self.constant) % ORDER

    def slope(self, point: Sequence[int], start: Sequence[int]) -> int:
        """The coefficient of c in ``at(start + c · point, c)``; that of c² is 0 if the equation holds."""
        parts = zip(self.squares, self.linear, point, start, strict=True)
        return sum((2 * q * w + factor) * r for q, factor, w, r in parts) % ORDER


def _byte_sums(weights: Sequence[int]) -> list[int]:
    """For each byte the sum of the weights of its bits, of which the first is the highest."""
    sums = [0]
    for weight in reversed(weights):
        sums += [total + weight for total in sums]
    return sums


def _numbers(values: Iterable[int]) -> bytes:
    return b"".join(value.to_bytes(_SHOWN_BYTES, "little") for value in values)


def _read(data: bytes, width: int) -> list[int]:
    return [int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width)]
