from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkey.errors import InvalidInput
from lowkey.secagg import pack, packed_size, unpack


@pytest.mark.parametrize(("bits", "size"), [(20, 208_000), (16, 166_400), (24, 249_600), (32, 332_800)])
def test_sizes_on_the_wire(bits: int, size: int, rng: np.random.Generator) -> None:
    values = rng.integers(0, 2**bits, 83_200, dtype=np.uint32)
    packed = pack(values, bits)
    assert len(packed) == size
    np.testing.assert_array_equal(unpack(packed, bits, values.size), values)


def test_layout_is_low_bits_first() -> None:
    assert pack(np.array([0xABCDE, 0x12345], np.uint32), 20).hex() == "debc5a3412"
    assert pack(np.array([1, 1, 1], np.uint32), 9).hex() == "01020400"


@given(bits=st.integers(8, 32), data=st.data())
def test_round_trip_for_every_width(bits: int, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=40))
    packed = pack(np.array(numbers, np.uint32), bits)
    assert len(packed) == packed_size(len(numbers), bits) == (len(numbers) * bits + 7) // 8
    assert unpack(packed, bits, len(numbers)).tolist() == numbers
    joined = sum(number << (bits * place) for place, number in enumerate(numbers))
    assert packed == joined.to_bytes(len(packed), "little")


def test_what_does_not_fit_is_refused() -> None:
    values = np.zeros(10, np.uint32)
    for bits in (7, 33):
        with pytest.raises(InvalidInput, match="8 … 32"):
            pack(values, bits)
    for size in (24, 26, 0):
        with pytest.raises(InvalidInput, match="25"):
            unpack(bytes(size), 20, 10)
    with pytest.raises(InvalidInput, match=r"below 2\^20"):
        pack(np.array([2**20], np.uint32), 20)
    with pytest.raises(InvalidInput, match="uint32"):
        pack(values.astype(np.int64), 20)
