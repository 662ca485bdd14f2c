from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkey.errors import InvalidInput
from lowkey.secagg import decode, encode


@dataclass(frozen=True)
class Inner:
    name: str
    data: bytes


@dataclass(frozen=True)
class Outer:
    count: int
    inner: Inner
    ids: tuple[int, ...]
    table: dict[int, bytes]


INNER = st.builds(Inner, st.text(max_size=8), st.binary(max_size=8))
NUMBER = st.integers(0, 2**64 - 1)
OUTER = st.builds(
    Outer,
    NUMBER,
    INNER,
    st.lists(NUMBER, max_size=4).map(tuple),
    st.dictionaries(st.integers(0, 2**32 - 1), st.binary(max_size=4)),
)


@given(OUTER)
def test_round_trip(value: Outer) -> None:
    assert decode(Outer, encode(Outer, value)) == value
    assert decode(tuple[Outer, ...], encode(tuple[Outer, ...], (value, value))) == (value, value)


@given(OUTER, st.integers(0, 200), st.integers(0, 3), st.binary(max_size=3))
def test_any_bytes_give_a_value_that_encodes_to_them_or_a_clear_error(
    value: Outer, start: int, removed: int, inserted: bytes
) -> None:
    """Bytes of a value with some of them replaced, so that many still mean one; bytes at random hardly ever would."""
    whole = encode(Outer, value)
    data = whole[:start] + inserted + whole[start + removed :]
    try:
        found = decode(Outer, data)
    except InvalidInput:
        assert data != whole
    else:
        assert encode(Outer, found) == data


def test_keys_out_of_order_or_repeated_are_refused() -> None:
    kind = dict[int, bytes]
    good = encode(kind, {1: b"", 2: b""})
    swapped, repeated = good[:8] + good[12:] + good[8:12], good[:8] + 2 * good[8:12]
    for wrong in (swapped, repeated):
        with pytest.raises(InvalidInput, match="order"):
            decode(kind, wrong)


def test_layout() -> None:
    assert encode(Inner, Inner("é", b"x")).hex() == "00000002c3a90000000178"


def test_values_of_one_length_are_written_without_their_lengths() -> None:
    """And in no other way, so that what is signed has one form."""
    kind = dict[int, bytes]
    assert encode(kind, {7: b"ab", 9: b"cd"}).hex(" ", 4) == "00000002 00000002 00000007 61620000 00096364"
    assert encode(kind, {7: b"ab", 9: b"c"})[4:8] == b"\xff" * 4
    alike = bytes.fromhex("00000001 ffffffff 00000007 00000002 6162")  # as if they were of several lengths
    for wrong in (alike, bytes.fromhex("00000000 00000002"), bytes.fromhex("00000001 00000003 00000007 6162")):
        with pytest.raises(InvalidInput):
            decode(kind, wrong)
