"""Encoding: bounds in exact integers, rounding without bias, noise of the promised size, sums that do not wrap."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from lowkey.errors import InvalidInput
from lowkey.privacy import Bounded, Measurement
from lowkey.privacy.encoding import Encoding, rounded_norm
from lowkey.privacy.encoding import centred as integers
from lowkey.rng import OSSecrets, ReplaySecrets

PAPER = Encoding(length=83_200, members=100, honest=80, noise_multiplier=1.54)
SMALL = Encoding(length=200, members=10, honest=8, noise_multiplier=1.5)


def bounded(encoding: Encoding, values: np.ndarray, clip_norm: float = 1.0) -> Bounded:
    return encoding.bound(Measurement(values), clip_norm, OSSecrets().source())


def exact_square(values: np.ndarray) -> int:
    return sum(int(v) ** 2 for v in values)


@pytest.mark.parametrize(
    ("length", "clip_norm", "step", "norm", "sensitivity", "share_stds", "largest"),
    [
        (83_200, 0.47, 3.25886365e-4, 1442.2205, 1453.4833, (250.2567, 157.3127), (5005, 3158)),
        (166_400, 0.69, 3.38300333e-4, 2039.6078, 2053.8517, (353.6265, 222.2915), (4906, 3109)),
        (332_600, 0.98, 3.39856006e-4, 2883.5742, 2902.0286, (499.6633, 314.0910), (4768, 3040)),
        (1_663_400, 2.15, 3.33403463e-4, 6448.6433, 6484.8803, (1116.5488, 701.8685), (4182, 2749)),
    ],
)
def test_known_parameters(
    length: int,
    clip_norm: float,
    step: float,
    norm: float,
    sensitivity: float,
    share_stds: tuple[float, float],
    largest: tuple[int, int],
) -> None:
    rosters = ((100, 80, 1.54), (160, 128, 1.2245))
    for (members, honest, z), std, most in zip(rosters, share_stds, largest, strict=True):
        encoding = Encoding(length=length, members=members, honest=honest, noise_multiplier=z)
        assert encoding.step(clip_norm) == pytest.approx(step, rel=1e-8)
        assert encoding.norm == pytest.approx(norm, abs=5e-5)
        assert encoding.sensitivity == pytest.approx(sensitivity, abs=5e-5)
        smoothed = math.hypot(std * math.sqrt(honest), 3) / math.sqrt(
            honest
        )  # for the step from discrete to continuous
        assert encoding.share_std == pytest.approx(smoothed, abs=5e-5)
        assert encoding.share_std == pytest.approx(std, rel=3e-6)
        assert encoding.largest == most
        assert encoding.total_std(49) == pytest.approx(7 * std, rel=3e-6)


def test_known_norms_after_rounding() -> None:
    assert rounded_norm(100, 1000, math.exp(-0.5)) == pytest.approx(101.812629, abs=1e-6)
    assert rounded_norm(100, 1000) == pytest.approx(105.415371, abs=1e-6)


def test_grid_of_each_width() -> None:
    """Up to ratio 0.2 the clamp of 20 bits never binds; 24 bits lengthen least, 16 bits at most 2.6 %."""
    inflation = {}
    for bits in (16, 20, 24):
        encoding = replace(PAPER, bits=bits)
        inflation[bits] = encoding.sensitivity / encoding.norm
        assert (encoding.largest > encoding.sensitivity) is (bits > 16)
    assert inflation[24] < inflation[20] < inflation[16] < 1.026


def test_bound_holds_for_vectors_of_all_sizes() -> None:
    """Ten thousand vectors from denormal to the largest float32, dense and of one spike: Σu² ≤ Δ² in exact integers."""
    rng = np.random.default_rng(0)
    encoding = Encoding(length=30, members=10, honest=8, noise_multiplier=0.0)
    source = OSSecrets().source()
    limit = encoding.sensitivity**2
    scales = 10.0 ** rng.uniform(-44, 35, 10_000)
    scales[:5000] = 10.0 ** rng.uniform(-2, 2, 5000)
    for i, scale in enumerate(scales):
        vector = rng.uniform(-1, 1, 30)
        vector[rng.integers(30)] *= 1000.0 if i % 3 == 0 else 1.0
        vector *= scale
        vector[0] = 3.4e38 if i % 1000 == 0 else vector[0]
        rounded = encoding.bound(Measurement(vector.astype(np.float32)), 1.0, source)
        assert exact_square(rounded.value) <= limit
        assert rounded.l2_bound == encoding.sensitivity
        assert rounded.value.any() or scale < 1.0


@settings(max_examples=200, deadline=None)
@given(
    arrays.arrays(np.float32, 12, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)),
    st.floats(2.0**-60, 2.0**60),
)
def test_clipping_keeps_direction_and_short_vectors(values: np.ndarray, clip_norm: float) -> None:
    """The integers are within one step of the clipped measurement; vectors inside the bound are only rounded."""
    encoding = Encoding(length=12, members=1, honest=1, noise_multiplier=0.0, bits=24)
    exact = values.astype(np.float64)
    norm = math.sqrt(float(exact @ exact))
    clipped = exact * min(1.0, clip_norm / norm) if norm else exact
    found = bounded(encoding, values, clip_norm).value
    assert exact_square(found) <= encoding.sensitivity**2
    assert np.abs(found - clipped / encoding.step(clip_norm)).max() <= 1 + 1e-6


def test_measurements_on_the_grid_pass_unchanged() -> None:
    whole = np.array([3, -4, 0, 1] * 50, np.float32)
    assert float(whole @ whole) < SMALL.norm**2
    np.testing.assert_array_equal(bounded(SMALL, whole, SMALL.norm).value, whole)  # step 1


def test_clamp_limits_every_coordinate() -> None:
    wide = Encoding(length=83_200, members=100, honest=80, noise_multiplier=1.54, bits=16)
    spike = np.zeros(83_200, np.float32)
    spike[[7, 9]] = 1e30, -1e30
    value = bounded(wide, spike).value
    assert value[[7, 9]].tolist() == [wide.largest, -wide.largest]
    assert np.count_nonzero(value) == 2


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_measurements_count_as_zeros(bad: float) -> None:
    values = np.ones(200, np.float32)
    values[3] = bad
    assert not bounded(SMALL, values).value.any()


def test_zeros_stay_zeros() -> None:
    assert not bounded(SMALL, np.zeros(200, np.float32)).value.any()
    assert not SMALL.zeros().value.any()


def test_a_rounding_that_is_too_long_is_never_sent() -> None:
    """Coins that always fall up lengthen beyond Δ: after a hundred attempts the member sends zeros."""

    class AlwaysUp:
        drawn = 0

        def bits(self, count: int) -> np.ndarray:
            self.drawn += 1
            return np.zeros(count, np.uint64)

    source = AlwaysUp()
    result = PAPER.bound(Measurement(np.tile(np.array([3.1, 6.355], np.float32), 41_600)), 1.0, source)
    assert not result.value.any()
    assert source.drawn == 100


def test_rounding_is_unbiased() -> None:
    """Mean of 1e5 roundings of 0.3 within ± 0.0066, 4.5 standard deviations: false alarm 7e-6. Same for −0.3."""
    encoding = Encoding(length=100_000, members=1, honest=1, noise_multiplier=0.0)
    for x in (0.3, -0.3):
        rounded = bounded(encoding, np.full(100_000, x, np.float32), encoding.norm).value
        assert abs(float(rounded.mean()) - x) < 0.0066
        assert set(rounded.tolist()) == {math.floor(x), math.ceil(x)}


def centred(total: np.ndarray, encoding: Encoding) -> np.ndarray:
    return encoding.decode(total, encoding.norm)  # a step of 1: the integers themselves


def added(encoding: Encoding, members: list[Bounded]) -> np.ndarray:
    """Sum modulo 2^bits of what members send."""
    total = np.zeros(encoding.length, np.uint32)
    for member in members:
        total += encoding.add_noise(member, OSSecrets().source()).value
    return total & np.uint32(2**encoding.bits - 1)


def test_noise_of_a_hundred_shares() -> None:
    """Variance (chi-square), mean (4.9 sd) and all 4950 correlations (6 sd); false alarm 1e-6, 1e-6 and 1e-5."""
    d = PAPER.length
    noise = np.empty((100, d), np.float32)
    for row in noise:
        row[:] = centred(PAPER.add_noise(PAPER.zeros(), OSSecrets().source()).value, PAPER)
    total = noise.sum(axis=0, dtype=np.float64)
    target = (1.54 * PAPER.sensitivity) ** 2 * 100 / 80
    assert 0.9762 < float((total**2).mean()) / target < 1.0242
    assert abs(float(total.mean())) < 4.9 * PAPER.total_std(100) / math.sqrt(d)
    correlations = noise @ noise.T / (PAPER.share_std**2 * d)
    assert np.abs(correlations[np.triu_indices(100, 1)]).max() < 6 / math.sqrt(d)


def test_noise_is_enough_when_dropouts_and_colluders_take_theirs_away() -> None:
    """90 of 100 survive, 10 of those know their shares: the other 80 carry (z Δ)²; false alarm 5e-7. 75 carry less."""
    honest = centred(added(PAPER, [PAPER.zeros()] * 80), PAPER).astype(np.float64)
    low = stats.chi2.ppf(5e-7, PAPER.length) / PAPER.length
    assert low == pytest.approx(0.9762, abs=1e-4)
    assert float((honest**2).mean()) / (1.54 * PAPER.sensitivity) ** 2 >= low
    fewer = centred(added(PAPER, [PAPER.zeros()] * 75), PAPER).astype(np.float64)
    assert float((fewer**2).mean()) / (1.54 * PAPER.sensitivity) ** 2 < low


def test_noise_is_fresh_whatever_the_global_seed() -> None:
    seen = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        seen.append(SMALL.add_noise(SMALL.zeros(), OSSecrets().source()).value)
    assert not np.array_equal(seen[0], seen[1])
    replayed = [SMALL.add_noise(SMALL.zeros(), ReplaySecrets(0).source("x")).value for _ in range(2)]
    np.testing.assert_array_equal(replayed[0], replayed[1])


def test_noise_leaves_the_bounded_vector_alone_and_fills_the_bits() -> None:
    zeros = SMALL.zeros()
    sent = SMALL.add_noise(zeros, OSSecrets().source()).value
    assert sent.dtype == np.uint32
    assert sent.max() < 2**20
    assert (sent >= 2**19).any()  # negative numbers
    assert not zeros.value.any()


@pytest.mark.parametrize("bits", [16, 20, 24, 28])
def test_without_noise_the_sum_is_exact(bits: int) -> None:
    """A thousand sums of random integers in range decode to themselves."""
    encoding = Encoding(length=1000, members=7, honest=7, noise_multiplier=0.0, bits=bits)
    most = encoding.largest
    values = np.random.default_rng(bits).integers(-most, most, (7, 1000), endpoint=True, dtype=np.int32)
    values[:, 0], values[:, 1] = most, -most
    total = added(encoding, [Bounded(v, encoding.sensitivity) for v in values])
    np.testing.assert_array_equal(integers(total, bits), values.sum(axis=0))


def test_a_hundred_thousand_members_need_28_bits() -> None:
    few = Encoding(length=4010, members=6000, honest=4800, noise_multiplier=24.2, bits=24)
    with pytest.raises(InvalidInput, match=r"24 bits leave room.*200 are needed: raise privacy\.bits"):
        replace(few, members=100_000, honest=80_000)
    many = replace(few, members=100_000, honest=80_000, bits=28)
    assert many.norm == few.norm  # the grid is the same
    assert many.largest >= 200


def test_largest_coordinates_do_not_wrap_and_larger_ones_do() -> None:
    encoding = replace(PAPER, noise_multiplier=0.0)

    def total(coordinate: int) -> float:
        one = np.zeros(encoding.length, np.int32)
        one[0] = coordinate
        return float(centred(added(encoding, [Bounded(one, encoding.sensitivity)] * 100), encoding)[0])

    assert total(PAPER.largest) == 100 * PAPER.largest
    assert total(-PAPER.largest) == -100 * PAPER.largest
    assert total(PAPER.largest + 2**19 // 100) < 0


def test_decoding_returns_real_units() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(10, 200)).astype(np.float32) * 0.02
    silent = replace(SMALL, noise_multiplier=0.0)
    total = silent.decode(added(silent, [bounded(silent, v, 0.47) for v in vectors]), 0.47)
    assert total.dtype == np.float32
    np.testing.assert_allclose(total, vectors.sum(axis=0), atol=10 * silent.step(0.47))
    assert np.abs(total - vectors.sum(axis=0)).mean() < 2 * silent.step(0.47)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bits": 16, "length": 1_663_400}, "raise privacy.bits"),
        ({"bits": 18}, "16, 20, 24, 28"),
        ({"honest": 101}, r"1 … 100"),
        ({"honest": 0}, r"1 … 100"),
        ({"members": 0, "honest": 0}, "members"),
        ({"length": 0}, "length"),
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"noise_multiplier": 1e-4}, "raise privacy.bits"),  # a grid fine enough for its shares does not fit
        ({"members": 10_000, "honest": 10_000, "bits": 20}, "raise privacy.bits"),
        ({"members": 10_000_000, "honest": 80, "bits": 28}, "lower the members"),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        replace(PAPER, **changes)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(InvalidInput, match="200 numbers"):
        bounded(SMALL, np.zeros(199, np.float32))
    for clip_norm in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InvalidInput, match="clip_norm"):
            bounded(SMALL, np.zeros(200, np.float32), clip_norm)


def test_little_noise_on_few_coordinates_gets_a_finer_grid() -> None:
    """A share of noise never falls below 8 steps, where a sum of discrete Gaussians would no longer be one."""
    fine = Encoding(length=60, members=100, honest=80, noise_multiplier=1.0)
    assert fine.share_std >= 8
    assert fine.norm == pytest.approx(8 * math.sqrt(80))
    assert Encoding(length=83_200, members=100, honest=80, noise_multiplier=1.54).norm == pytest.approx(1442.2205)


@settings(max_examples=200, deadline=None)
@given(arrays.arrays(np.float32, 12, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_normalising_gives_every_vector_the_same_norm(values: np.ndarray) -> None:
    """Denormal or huge: the integers are within one step of the vector that has norm S; zeros stay zeros."""
    encoding = Encoding(length=12, members=1, honest=1, noise_multiplier=0.0, bits=24, normalise=True)
    exact = values.astype(np.float64)
    norm = math.sqrt(float(exact @ exact))
    found = bounded(encoding, values, 3.0).value
    assert exact_square(found) <= encoding.sensitivity**2
    wanted = exact / norm * encoding.norm if norm else exact
    assert np.abs(found - wanted).max() <= 1 + 1e-6


def test_normalised_measurements_that_are_not_finite_count_as_zeros() -> None:
    encoding = replace(SMALL, normalise=True)
    values = np.ones(200, np.float32)
    assert bounded(encoding, values).value.any()
    values[7] = math.nan
    assert not bounded(encoding, values).value.any()
