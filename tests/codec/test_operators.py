"""One contract for every operator, and what is special to each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkey.codec import (
    CODECS,
    ChunkedDCT,
    ChunkedOperator,
    LowPassOperator,
    RandomSubset,
    SubsetOperator,
    WholeOperator,
    operator_of,
)
from lowkey.codec.sizes import fast_length
from lowkey.errors import InvalidInput
from lowkey.protocols import Operator, PublicNumbers
from lowkey.rng import PublicStream
from lowkey.types import FloatArray

SIGNED = "chunked-dct with signs"
KINDS = [*CODECS, SIGNED]


def build(kind: str, n: int, ratio: float, chunks: int = 3, seed: int = 0) -> Operator:
    """The map of a codec, which measures at least one number in each chunk."""
    settings: dict[str, Any] = {}
    if kind != "whole":
        settings["ratio"] = max(ratio, 1 / n) if "chunked" not in kind else max(ratio, min(1.0, chunks / n))
    if "chunked" in kind:
        settings |= {"chunks": min(chunks, n), "signs": kind == SIGNED}
    return CODECS[kind.removesuffix(" with signs")](**settings).operator(n, PublicNumbers(seed=seed, round=1))


operators = st.builds(
    build,
    st.sampled_from(KINDS),
    n=st.integers(1, 300),
    ratio=st.floats(0.001, 1.0),
    chunks=st.integers(1, 9),
    seed=st.integers(0, 2**31),
)
seeds = st.integers(0, 2**32 - 1)


def vector(seed: int, length: int) -> FloatArray:
    return np.random.default_rng(seed).normal(size=length).astype(np.float32)


@given(operators, seeds)
def test_adjoint_is_exact(operator: Operator, seed: int) -> None:
    x, y = vector(seed, operator.num_coordinates), vector(seed + 1, operator.num_measurements)
    left = float(np.dot(operator.forward(x).astype(np.float64), y))
    right = float(np.dot(x, operator.adjoint(y).astype(np.float64)))
    scale = np.linalg.norm(x) * np.linalg.norm(y) + 1e-9
    assert abs(left - right) / scale < 2e-6


@given(operators, seeds, st.floats(-3, 3), st.floats(-3, 3))
def test_forward_is_linear(operator: Operator, seed: int, a: float, b: float) -> None:
    x, y = vector(seed, operator.num_coordinates), vector(seed + 1, operator.num_coordinates)
    a32, b32 = np.float32(a), np.float32(b)
    together = operator.forward(a32 * x + b32 * y)
    apart = a32 * operator.forward(x) + b32 * operator.forward(y)
    np.testing.assert_allclose(together, apart, atol=5e-5)


@given(operators, seeds)
def test_never_lengthens_and_keeps_type_and_argument(operator: Operator, seed: int) -> None:
    x = vector(seed, operator.num_coordinates)
    before = x.copy()
    y = operator.forward(x)
    back = operator.adjoint(y)
    assert y.dtype == back.dtype == np.float32
    assert y.shape == (operator.num_measurements,)
    assert back.shape == x.shape
    assert np.linalg.norm(y) <= np.linalg.norm(x) * (1 + 1e-5)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 7, 1009])
def test_full_ratio_is_inverted_by_the_adjoint(kind: str, n: int) -> None:
    operator = build(kind, n, 1.0)
    x = vector(3, n)
    np.testing.assert_allclose(operator.adjoint(operator.forward(x)), x, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_same_public_seed_gives_the_same_map_and_another_does_not(kind: str) -> None:
    x = vector(0, 500)
    first, again, other = (build(kind, 500, 0.2, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.forward(x), again.forward(x))
    if kind in ("random-subset", "chunked-dct", SIGNED):
        assert not np.array_equal(first.forward(x), other.forward(x))


def test_random_subset_is_new_each_round_and_the_shuffle_is_not() -> None:
    x = vector(0, 500)
    settings: dict[str, dict[str, Any]] = {
        "whole": {}, "random-subset": {"ratio": 0.2}, "low-pass-dct": {"ratio": 0.2},
        "chunked-dct": {"ratio": 0.2, "chunks": 5},
    }  # fmt: skip
    assert settings.keys() == set(CODECS)
    for kind, of_kind in settings.items():
        codec = CODECS[kind](**of_kind)
        one, other = (codec.operator(500, PublicNumbers(round=number)).forward(x) for number in (1, 2))
        assert codec.changes_each_round is (kind == "random-subset")
        assert np.array_equal(one, other) is not codec.changes_each_round


def test_random_subset_by_hand() -> None:
    operator = SubsetOperator(6, 0.5, PublicStream(0, "x"))
    x = np.arange(6, dtype=np.float32) + 1
    assert operator.forward(x).tolist() == [x[i] for i in operator.kept]
    scattered = operator.adjoint(np.array([7, 8, 9], np.float32))
    assert [scattered[i] for i in operator.kept] == [7, 8, 9]
    assert np.count_nonzero(scattered) == 3


def test_low_pass_by_hand() -> None:
    # orthonormal DCT-II of a constant: all energy in the first coefficient, √n times the constant
    operator = LowPassOperator(4, 0.25)
    np.testing.assert_allclose(operator.forward(np.full(4, 3, np.float32)), [6.0], rtol=1e-6)


def test_chunked_dct_measures_orthonormally() -> None:
    """ΘΘᵀ = I on every block, so Θ Θᵀ y returns y where padding is absent."""
    operator = ChunkedOperator(200, 0.3, 10, PublicStream(1, "x"))
    assert operator.block_length * operator.num_blocks == 200
    y = vector(0, operator.num_measurements)
    np.testing.assert_allclose(operator.forward(operator.adjoint(y)), y, atol=1e-5)


def test_signs_flatten_what_has_a_mean() -> None:
    """Largest coefficient over their root mean square: 44 with a mean of half a deviation, and with signs below 7.

    For 20,000 normal coefficients of a fixed public seed; 7 would be exceeded by one seed in ten million.
    """
    x = vector(0, 20_000) + np.float32(0.5)

    def peak(signs: bool) -> float:
        y = ChunkedDCT(chunks=4, signs=signs).operator(20_000, PublicNumbers()).forward(x)
        return float(np.abs(y).max() / np.sqrt((y * y).mean()))

    assert peak(signs=False) > 25
    assert peak(signs=True) < 7


def test_signs_are_balanced_and_apart_from_the_shuffle() -> None:
    """At ratio 1, Θᵀ of the plain map takes the signs off: ± x in the same places; 6 deviations, false alarm 2e-9."""
    x = vector(0, 5000)
    plain, signed = build("chunked-dct", 5000, 1.0), build(SIGNED, 5000, 1.0)
    flipped = plain.adjoint(signed.forward(x))
    np.testing.assert_allclose(np.abs(flipped), np.abs(x), atol=1e-4)
    assert abs(int(np.sum(flipped * x > 0)) - 2500) < 6 * np.sqrt(5000) / 2


@pytest.mark.parametrize(
    ("signs", "bits", "flipped"),
    [
        (None, None, False),
        (None, 16, True),
        (None, 20, False),
        (True, None, True),
        (True, 20, True),
        (False, 16, False),
    ],
)
def test_signs_are_flipped_where_numbers_are_short_unless_told(
    signs: bool | None, bits: int | None, flipped: bool
) -> None:
    x = vector(0, 60)
    found = ChunkedDCT(chunks=3, signs=signs).operator(60, PublicNumbers(bits=bits)).forward(x)
    plain, signed = (build(kind, 60, 1.0).forward(x) for kind in ("chunked-dct", SIGNED))
    assert np.array_equal(found, signed) is flipped
    assert np.array_equal(found, plain) is not flipped


def test_padding_never_reaches_the_model() -> None:
    operator = ChunkedOperator(17, 1.0, 3, PublicStream(0, "x"))
    assert operator.num_blocks * operator.block_length > 17
    ones = (np.ones(operator.coordinates(group).shape, np.float32) for group in operator.groups)
    assert operator.assemble(ones).shape == (17,)


def test_papers_dimensions() -> None:
    """n = 1,663,370 in 200 chunks: chunks of 8,320, and 416, 832 and 1,664 coefficients of each."""
    for ratio, per_chunk in ((0.05, 416), (0.1, 832), (0.2, 1664)):
        operator = ChunkedOperator(1_663_370, ratio, 200, PublicStream(0, "x"))
        assert operator.block_length == 8320
        assert operator.num_measurements == 200 * per_chunk


@given(st.integers(1, 100_000))
def test_fast_length_is_the_next_smooth_number(length: int) -> None:
    found = fast_length(length)
    rest = found
    for prime in (2, 3, 5, 7, 11, 13):
        while rest % prime == 0:
            rest //= prime
    assert rest == 1
    assert length <= found < 1.2 * length + 2


@pytest.mark.parametrize("ratio", [0.0, -0.1, 1.0001, float("nan"), float("inf"), True, "0.1"])
@pytest.mark.parametrize("kind", ["random-subset", "low-pass-dct", "chunked-dct"])
def test_ratio_outside_its_range_is_refused(kind: str, ratio: object) -> None:
    codec: Any = CODECS[kind]
    with pytest.raises(InvalidInput, match=r"codec\.ratio"):
        codec(ratio=ratio)


@pytest.mark.parametrize("chunks", [0, -1, 2.5, True])
def test_chunks_outside_their_range_are_refused(chunks: Any) -> None:
    with pytest.raises(InvalidInput, match=r"codec\.chunks"):
        ChunkedDCT(chunks=chunks)


def test_a_codec_has_no_settings_of_others() -> None:
    for kind, setting in (
        ("whole", {"ratio": 0.5}),
        ("low-pass-dct", {"chunks": 3}),
        ("random-subset", {"signs": True}),
    ):
        with pytest.raises(TypeError, match=next(iter(setting))):
            CODECS[kind](**setting)
    assert CODECS["whole"]().ratio == 1.0


@pytest.mark.parametrize(
    ("kind", "ratio", "least"),
    [("random-subset", 0.0049, "0.01"), ("low-pass-dct", 0.0049, "0.01"), ("chunked-dct", 0.019, "0.04")],
)
def test_a_ratio_that_keeps_nothing_is_refused_and_told_how_much_would_keep_something(
    kind: str, ratio: float, least: str
) -> None:
    """Of 100 parameters, in 4 chunks of 25 where there are chunks."""
    codec: Any = CODECS[kind]
    settings = {"chunks": 4} if kind == "chunked-dct" else {}
    with pytest.raises(InvalidInput, match=rf"codec\.ratio is {ratio}, which keeps none.*at least {least}$"):
        codec(ratio=ratio, **settings).operator(100, PublicNumbers())
    enough = codec(ratio=float(least), **settings).operator(100, PublicNumbers())
    assert enough.num_measurements == (4 if settings else 1)


def test_codecs_are_named_with_the_nearest() -> None:
    assert list(CODECS) == ["whole", "random-subset", "low-pass-dct", "chunked-dct"]
    assert (CODECS.name_of(ChunkedDCT), CODECS["random-subset"]) == ("chunked-dct", RandomSubset)
    with pytest.raises(
        InvalidInput, match=r"codec\.kind is 'chunked'; it must be one of whole, .*mean 'chunked-dct'\?"
    ):
        CODECS["chunked"]


def test_equal_codecs_share_one_map() -> None:
    one, same = (operator_of(ChunkedDCT(ratio=0.5, chunks=3), 60, PublicNumbers(seed=4)) for _ in range(2))
    assert one is same
    assert operator_of(ChunkedDCT(ratio=0.5, chunks=3), 60, PublicNumbers(seed=5)) is not one


def test_more_chunks_than_parameters_are_refused() -> None:
    with pytest.raises(InvalidInput, match="use at most 10 chunks"):
        ChunkedOperator(10, 0.5, 11, PublicStream(0, "x"))


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_length_and_type_are_refused(kind: str) -> None:
    operator = build(kind, 10, 0.5)
    with pytest.raises(InvalidInput, match="vector of 10 numbers"):
        operator.forward(np.zeros(11, np.float32))
    wrong: Any = np.zeros(10)
    with pytest.raises(InvalidInput, match="float32"):
        operator.forward(wrong)
    with pytest.raises(InvalidInput, match="vector of"):
        operator.adjoint(np.zeros(operator.num_measurements + 1, np.float32))


def test_the_whole_update_is_never_copied() -> None:
    x = vector(0, 5)
    assert WholeOperator(5).forward(x) is x
    assert WholeOperator(5).adjoint(x) is x
