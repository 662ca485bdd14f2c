"""Clipping, noise shares, sampling, and the record that holds them together."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lowkey.errors import InvalidInput
from lowkey.privacy import (
    Bounded,
    ClientLevelPrivacy,
    FixedSizeSampling,
    Measurement,
    NoPrivacy,
    PoissonSampling,
    add_noise_share,
    clip,
)
from lowkey.rng import OSSecrets

SAMPLING = PoissonSampling(population=1000, probability=0.1)


def privacy(**changes: object) -> ClientLevelPrivacy:
    settings = {"sampling": SAMPLING, "clip_norm": 1.0, "noise_multiplier": 1.5, "delta": 1e-5}
    return ClientLevelPrivacy(**(settings | changes))  # type: ignore[arg-type]


def exact_square(vector: np.ndarray) -> Fraction:
    return sum((Fraction(float(v)) ** 2 for v in vector), Fraction(0))


@given(
    st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=1, max_size=30),
    st.floats(2.0**-40, 2.0**60),
)
def test_clipped_norm_never_passes_the_bound(values: list[float], bound: float) -> None:
    vector = np.array(values, np.float32)
    bounded = clip(Measurement(vector), bound)
    assert exact_square(bounded.value) <= Fraction(bound) ** 2
    if np.linalg.norm(vector.astype(np.float64)) < 0.999 * bound:
        np.testing.assert_array_equal(bounded.value, vector)


def test_clip_by_hand() -> None:
    np.testing.assert_allclose(clip(Measurement(np.array([3, 4], np.float32)), 1.0).value, [0.6, 0.8], rtol=1e-5)
    zero = clip(Measurement(np.zeros(3, np.float32)), 1.0).value
    assert not zero.any()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_updates_are_refused(bad: float) -> None:
    vector = np.array([1.0, bad], np.float32)
    with pytest.raises(InvalidInput, match="NaN or infinite"):
        clip(Measurement(vector), 1.0)
    with pytest.raises(InvalidInput, match="NaN or infinite"):
        NoPrivacy(sampling=SAMPLING).protect(Measurement(vector), shares=1, source=OSSecrets().source())


@pytest.mark.parametrize("shares", [1, 7, 100])
def test_shares_add_up_to_the_promised_noise(shares: int) -> None:
    """Variance of the sum over (z S)² by chi-square, false alarm 1e-6; 10 % less and more noise are rejected."""
    z, bound, d = 1.54, 0.47, 20_000
    zero = Bounded(np.zeros(d, np.float32), bound)
    total = np.zeros(d)
    for _ in range(shares):
        total += add_noise_share(zero, noise_multiplier=z, shares=shares, source=OSSecrets().source()).value
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], d) / d

    def accepted(scale: float) -> bool:
        return bool(low < float((total**2).mean()) / (scale * z * bound) ** 2 < high)

    assert accepted(1.0)
    assert not accepted(0.9)
    assert not accepted(1.1)
    assert abs(total.mean()) < 5 * z * bound / math.sqrt(d)


def test_noise_is_fresh_and_on_top_of_the_value() -> None:
    value = Bounded(np.full(1000, 5.0, np.float32), 200.0)
    one, two = (
        add_noise_share(value, noise_multiplier=1e-3, shares=1, source=OSSecrets().source()).value for _ in range(2)
    )
    assert not np.array_equal(one, two)
    assert np.mean(one) == pytest.approx(5.0, abs=0.1)
    np.testing.assert_array_equal(value.value, np.full(1000, 5.0, np.float32))


def test_no_noise_and_infinite_bound_is_the_identity() -> None:
    vector = np.array([1e6, -2e6], np.float32)
    limit = privacy(clip_norm=math.inf, noise_multiplier=0.0)
    np.testing.assert_array_equal(
        limit.protect(Measurement(vector), shares=3, source=OSSecrets().source()).value, vector
    )
    assert limit.event() is None


def test_one_record_gives_the_event_of_its_own_sampler() -> None:
    event = privacy().event()
    assert event is not None
    assert (event.kind, event.noise_multiplier, event.sampling_probability) == ("poisson", 1.5, 0.1)
    fixed = privacy(sampling=FixedSizeSampling(population=1000, size=50)).event()
    assert fixed is not None
    assert (fixed.kind, fixed.sampling_probability, fixed.population) == ("fixed", 0.05, 1000)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"delta": 1.0}, "delta"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 0.01}, "below 0.001"),
        ({"noise_multiplier": -0.1}, "noise_multiplier"),
        ({"noise_multiplier": math.nan}, "noise_multiplier"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"clip_norm": -1.0}, "clip_norm"),
        ({"clip_norm": math.inf}, "finite bound"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, float], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        privacy(**changes)
