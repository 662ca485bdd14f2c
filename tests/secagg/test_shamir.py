from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowkey.errors import InvalidInput
from lowkey.rng import ReplaySecrets
from lowkey.secagg.shamir import PRIME, combine, split

SECRET = bytes(range(32))
SOURCE = ReplaySecrets(0).source("shares")


def test_the_field_is_prime() -> None:
    assert PRIME == 2**256 + 297
    assert all(pow(base, PRIME - 1, PRIME) == 1 for base in (2, 3, 5, 7, 11))  # Fermat, five bases


class Words:
    """A source that counts up from 1, and how many words it gave."""

    given = 0

    def bits(self, count: int) -> np.ndarray:
        self.given += count
        return np.arange(1 + self.given - count, 1 + self.given, dtype=np.uint64)


def test_coefficients_are_384_random_bits_each() -> None:
    """By hand: the share at x is a x² + b x + secret modulo the prime; six words of eight bytes make a, six make b."""
    source = Words()
    shares = split(SECRET, (1, 2), 3, source)
    a, b = (
        int.from_bytes(b"".join(word.to_bytes(8, sys.byteorder) for word in words), "big")
        for words in (range(1, 7), range(7, 13))
    )
    secret = int.from_bytes(SECRET, "big")
    assert source.given == 12
    assert a > 2**310  # so that reducing it means something
    assert [int.from_bytes(share, "big") for share in shares.values()] == [
        (a + b + secret) % PRIME, (4 * a + 2 * b + secret) % PRIME,
    ]  # fmt: skip


def test_shares_lie_on_a_line_when_two_are_needed() -> None:
    one, two, three = (int.from_bytes(s, "big") for s in split(SECRET, (1, 2, 3), 2, SOURCE).values())
    assert (two - one) % PRIME == (three - two) % PRIME
    assert (2 * one - two) % PRIME == int.from_bytes(SECRET, "big")


@settings(max_examples=60)
@given(secret=st.binary(min_size=32, max_size=32), needed=st.integers(1, 20), spare=st.integers(0, 20), data=st.data())
def test_any_shares_that_are_enough_recover(secret: bytes, needed: int, spare: int, data: st.DataObject) -> None:
    points = data.draw(st.lists(st.integers(1, 200), min_size=needed + spare, max_size=needed + spare, unique=True))
    shares = split(secret, points, needed, SOURCE)
    chosen = data.draw(st.permutations(points))[:needed]
    assert combine({point: shares[point] for point in chosen}) == secret


def test_67_of_100_recover_and_66_do_not() -> None:
    shares = split(SECRET, range(1, 101), 67, SOURCE)
    assert combine({point: shares[point] for point in range(20, 87)}) == SECRET
    assert combine({point: shares[point] for point in range(20, 86)}) != SECRET


def test_too_few_shares_fit_every_secret() -> None:
    """With T - 1 shares and any guessed secret there is a polynomial: nothing is ruled out."""
    shares = split(SECRET, (1, 2), 3, SOURCE)
    for guess in (0, 1, 2**255):
        one, two = (int.from_bytes(shares[point], "big") for point in (1, 2))
        third = (guess - 3 * one + 3 * two) % PRIME  # the third share, if the guess were right
        assert combine({**shares, 3: third.to_bytes(33, "big")}) == guess.to_bytes(32, "big")


def test_each_split_is_fresh() -> None:
    assert split(SECRET, (1, 2), 2, SOURCE) != split(SECRET, (1, 2), 2, SOURCE)


def test_shares_of_no_secret_are_noticed() -> None:
    assert combine({1: (2**256).to_bytes(33, "big")}) is None


def test_bad_input() -> None:
    with pytest.raises(InvalidInput, match="31 bytes"):
        split(bytes(31), (1, 2), 2, SOURCE)
    for points in ((), (0, 1)):
        with pytest.raises(InvalidInput, match="distinct"):
            combine(dict.fromkeys(points, bytes(33)))
