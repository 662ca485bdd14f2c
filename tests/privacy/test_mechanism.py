"""The record that holds sampling, clip, noise and price together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from lowkey.errors import InvalidInput, RoundFailed
from lowkey.privacy import ClientMechanism, ClientPrivacy, FixedSizeSampling, Measurement, PoissonSampling, Sampling
from lowkey.rng import OSSecrets
from lowkey.types import Words

SAMPLING = PoissonSampling(population=1000, probability=0.1)
LENGTH = 20_000


def privacy(sampling: Sampling = SAMPLING, **changes: Any) -> ClientMechanism:
    given: dict[str, Any] = {"clip_norm": 1.0, "noise_multiplier": 1.5, "bits": 20, "max_contributions": "unlimited"}
    return ClientMechanism(settings=ClientPrivacy(**(given | changes)), sampling=sampling)


def total(record: ClientMechanism, members: int) -> Words:
    """The sum of so many members without data, as integers."""
    source = OSSecrets().source()
    sent = [record.protect(None, length=LENGTH, clip_norm=0.47, source=source).value for _ in range(members)]
    added: Words = np.sum(sent, axis=0, dtype=np.uint32)
    return added & np.uint32(2**record.bits - 1)


@pytest.mark.parametrize("tolerated", [0.0, 0.1])
def test_declared_honest_shares_carry_the_promised_noise(tolerated: float) -> None:
    """Variance over (z Δ/S_int)² by chi-square, false alarm 1e-6; 5 % less and more noise are rejected."""
    record = privacy(dropouts=tolerated, colluders=tolerated)
    encoding = record.encoding(LENGTH)
    noise = encoding.decode(total(record, record.shares.honest), 0.47) / 0.47
    found = float((noise**2).mean())
    low, high = (stats.chi2.ppf(chance, LENGTH) / LENGTH for chance in (5e-7, 1 - 5e-7))

    def accepted(scale: float) -> bool:
        return bool(low < found / (scale * 1.5 * encoding.sensitivity / encoding.norm) ** 2 < high)

    assert accepted(1.0)
    assert not accepted(0.95)
    assert not accepted(1.05)


@pytest.mark.parametrize("survivors", [144, 157])
def test_a_mean_says_how_much_noise_is_in_it(survivors: int) -> None:
    """By chi-square, false alarm 1e-6; 5 % less and more are rejected. More survivors than needed bring more noise."""
    record = privacy()
    words = total(record, survivors)
    mean = record.read_sum(words, length=LENGTH, clip_norm=0.47, survivors=survivors, weight=math.nan)
    low, high = (stats.chi2.ppf(chance, LENGTH) / LENGTH for chance in (5e-7, 1 - 5e-7))
    found = float((mean.value.astype(np.float64) ** 2).mean())

    def accepted(scale: float) -> bool:
        return bool(low < found / (scale * mean.noise) ** 2 < high)

    assert accepted(1.0)
    assert not accepted(0.95)
    assert not accepted(1.05)
    least = 1.5 * 0.47 / 100 * math.sqrt(survivors / record.shares.honest)  # of the 100 contributors expected
    assert least < mean.noise < 1.1 * least  # the rest covers rounding


def test_a_sum_that_honest_members_cannot_make_is_refused() -> None:
    record, members = privacy(), 150
    hostile = np.full(LENGTH, 2**19 - 1, np.uint32)
    with pytest.raises(RoundFailed, match="larger than honest members can make it"):
        record.read_sum(hostile, length=LENGTH, clip_norm=1.0, survivors=members, weight=1.0)
    record.read_sum(total(record, members), length=LENGTH, clip_norm=1.0, survivors=members, weight=1.0)


@pytest.mark.parametrize(("size", "votes"), [(0.5, 0.5), (2.0, -0.5)])
def test_an_adaptive_clip_norm_follows_the_votes(size: float, votes: float) -> None:
    """Without noise: all norms are inside, or none is. S · exp(−0.2 · votes); one coordinate more is sent."""
    everybody = PoissonSampling(population=40, probability=1.0)
    record, source = privacy(everybody, noise_multiplier=0.0, clip="adaptive", bits=24), OSSecrets().source()
    assert record.wire(100).length == 101
    vector = Measurement(np.full(100, size / 10, np.float32))
    words = np.zeros(101, np.uint32)
    for _ in range(40):
        words += record.protect(vector, length=100, clip_norm=1.0, source=source).value
    mean = record.read_sum(words & np.uint32(2**24 - 1), length=100, clip_norm=1.0, survivors=40, weight=1.0)
    assert mean.clip_norm == pytest.approx(math.exp(-0.2 * votes))
    np.testing.assert_allclose(mean.value, min(size, 1.0) / 10, rtol=0.05)


def test_members_with_and_without_data_send_the_same_kind_of_vector() -> None:
    record, source = privacy(), OSSecrets().source()
    measurement = Measurement(np.ones(LENGTH, np.float32))
    with_data = record.protect(measurement, length=LENGTH, clip_norm=1.0, source=source).value
    without = record.protect(None, length=LENGTH, clip_norm=1.0, source=source).value
    assert with_data.dtype == without.dtype == np.uint32
    assert with_data.shape == without.shape == (LENGTH,)
    assert not np.array_equal(without, record.protect(None, length=LENGTH, clip_norm=1.0, source=source).value)


def test_one_record_gives_the_event_of_its_own_sampler() -> None:
    event = privacy().event()
    assert event is not None
    assert (event.kind, event.noise_multiplier, event.sampling_probability) == ("poisson", 1.5, 0.1)
    assert (event.roster, event.honest) == (157, privacy().shares.honest)
    fixed = privacy(FixedSizeSampling(population=1000, size=50)).event()
    assert fixed is not None
    assert (fixed.kind, fixed.sampling_probability, fixed.population) == ("fixed", 0.05, 1000)
    assert privacy(noise_multiplier=0.0).event() is None


def test_what_is_promised() -> None:
    promise = privacy().promise()
    assert (promise.noise_multiplier, promise.clip_rule, promise.delta) == (1.5, "1.0", 1e-5)
    assert promise.shares[:2] == (141, 125)  # ⌊0.9 · 157⌋, less ⌈0.1 · 157⌉
    adaptive = privacy(clip="adaptive").promise().clip_rule
    assert adaptive.startswith("1.0 AdaptiveClip(count_std=5.0")


@pytest.mark.parametrize(("limit", "expected"), [("unlimited", None), (7, 7), (np.int64(7), 7)])
def test_the_limit_of_contributions(limit: object, expected: int | None) -> None:
    assert privacy(max_contributions=limit).max_contributions == expected


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"delta": 0.01}, "below 0.001"),
        ({"noise_multiplier": "auto"}, r"open choices; call ClientPrivacy\.resolve"),
        ({"bits": None}, r"open choices; call ClientPrivacy\.resolve"),
        ({"max_contributions": "auto"}, r"open choices; call ClientPrivacy\.resolve"),
        ({"dropouts": 0.4}, r"privacy\.dropouts is 0\.4; it must be below 1/3"),
        ({"colluders": 0.95}, "no honest share"),
        ({"clip": "adaptive", "noise_multiplier": 10.0}, "count_std is 5.0; it must be above 5, half the noise"),
    ],
)
def test_settings_that_do_not_fit_the_population_are_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        privacy(**changes)


def test_without_a_clip_norm_nothing_is_sent_or_read() -> None:
    record, source = privacy(), OSSecrets().source()
    with pytest.raises(InvalidInput, match="no clip norm"):
        record.protect(None, length=5, clip_norm=None, source=source)
    with pytest.raises(InvalidInput, match="without the clip norm"):
        record.read_sum(np.zeros(5, np.uint32), length=5, clip_norm=None, survivors=150, weight=1.0)
