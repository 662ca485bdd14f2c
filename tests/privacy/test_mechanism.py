"""The record that holds sampling, clip, noise and price together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from lowkey.errors import InvalidInput
from lowkey.privacy import ClientMechanism, FixedSizeSampling, Measurement, NoPrivacy, PoissonSampling
from lowkey.rng import OSSecrets

SAMPLING = PoissonSampling(population=1000, probability=0.1)
LENGTH = 20_000


def privacy(**changes: object) -> ClientMechanism:
    settings = {"sampling": SAMPLING, "clip_norm": 1.0, "noise_multiplier": 1.5, "delta": 1e-5}
    return ClientMechanism(**(settings | changes))  # type: ignore[arg-type]


def total(record: ClientMechanism, members: int) -> np.ndarray:
    """The sum of so many members without data, in units of the clip norm."""
    protect = lambda: record.protect(None, length=LENGTH, clip_norm=0.47, source=OSSecrets().source()).value  # noqa: E731
    words = np.sum([protect() for _ in range(members)], axis=0, dtype=np.uint32)
    return record.encoding(LENGTH).decode(words, 0.47) / 0.47


@pytest.mark.parametrize("tolerated", [0.0, 0.1])
def test_declared_honest_shares_carry_the_promised_noise(tolerated: float) -> None:
    """Variance over (z Δ/S_int)² by chi-square, false alarm 1e-6; 5 % less and more noise are rejected."""
    record = privacy(dropouts=tolerated, colluders=tolerated)
    encoding = record.encoding(LENGTH)
    found = float((total(record, record.shares.honest) ** 2).mean())
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], LENGTH) / LENGTH

    def accepted(scale: float) -> bool:
        return bool(low < found / (scale * 1.5 * encoding.sensitivity / encoding.norm) ** 2 < high)

    assert accepted(1.0)
    assert not accepted(0.95)
    assert not accepted(1.05)


def test_members_with_and_without_data_send_the_same_kind_of_vector() -> None:
    record, source = privacy(), OSSecrets().source()
    measurement = Measurement(np.ones(LENGTH, np.float32))
    with_data = record.protect(measurement, length=LENGTH, clip_norm=1.0, source=source).value
    without = record.protect(None, length=LENGTH, clip_norm=1.0, source=source).value
    assert with_data.dtype == without.dtype == np.uint32
    assert with_data.shape == without.shape == (LENGTH,)
    assert not np.array_equal(without, record.protect(None, length=LENGTH, clip_norm=1.0, source=source).value)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_open_schemes_refuse_updates_that_are_not_finite(bad: float) -> None:
    with pytest.raises(InvalidInput, match="NaN or infinite"):
        NoPrivacy(sampling=SAMPLING).protect(Measurement(np.array([1.0, bad], np.float32)))


def test_one_record_gives_the_event_of_its_own_sampler() -> None:
    event = privacy().event()
    assert event is not None
    assert (event.kind, event.noise_multiplier, event.sampling_probability) == ("poisson", 1.5, 0.1)
    assert (event.roster, event.honest) == (157, privacy().shares.honest)
    fixed = privacy(sampling=FixedSizeSampling(population=1000, size=50)).event()
    assert fixed is not None
    assert (fixed.kind, fixed.sampling_probability, fixed.population) == ("fixed", 0.05, 1000)
    assert privacy(noise_multiplier=0.0).event() is None


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
        ({"clip_norm": math.inf}, "clip_norm"),
        ({"max_contributions": 0}, "max_contributions"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, float], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        privacy(**changes)
