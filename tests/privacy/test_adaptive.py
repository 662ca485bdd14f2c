"""The adaptive clip norm: its price, its votes, and that it finds the median."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from lowkey.errors import InvalidInput
from lowkey.privacy import Measurement
from lowkey.privacy.adaptive import AdaptiveClip
from lowkey.privacy.encoding import Encoding
from lowkey.rng import OSSecrets

ADAPTIVE = AdaptiveClip(count_std=5.0)
PAPER = Encoding(length=83_200, members=160, honest=128, noise_multiplier=1.54, adaptive=ADAPTIVE)
SMALL = Encoding(length=500, members=100, honest=80, noise_multiplier=1.5, adaptive=ADAPTIVE)


@pytest.mark.parametrize(
    ("noise_multiplier", "count_std", "known"),
    [(1.54, 5.0, 1.55859), (1.22441, 5.0, 1.23369), (1.54, 8.0, 1.54718), (1.22441, 8.0, 1.22801)],
)
def test_known_splits_of_the_noise(noise_multiplier: float, count_std: float, known: float) -> None:
    assert AdaptiveClip(count_std=count_std).value_multiplier(noise_multiplier) == pytest.approx(known, abs=1e-5)


@pytest.mark.parametrize("length", [500, 5_000, 83_200, 332_800])
@pytest.mark.parametrize("noise_multiplier", [1.0, 1.2245, 1.54, 3.0])
def test_integers_on_the_wire_cost_what_the_noise_multiplier_says(length: int, noise_multiplier: float) -> None:
    """(Δ² + (A/2)²)/σ² = 1/z² for the integers that are sent; votes get the noise asked for and measurements z_Δ."""
    encoding = replace(PAPER, length=length, noise_multiplier=noise_multiplier)
    variance = encoding.share_std**2 * encoding.honest - 3**2  # what smoothing takes is no noise against anybody
    votes, values = encoding.vote**2 / variance, encoding.value_sensitivity**2 / variance
    assert votes + values == pytest.approx(noise_multiplier**-2, rel=1e-10)
    assert math.sqrt(variance) / (2 * encoding.vote) >= ADAPTIVE.count_std * (1 - 1e-10)
    assert math.sqrt(variance) <= ADAPTIVE.value_multiplier(noise_multiplier) * encoding.value_sensitivity
    finer = encoding.vote + 1  # a vote any larger would get less noise than asked for
    assert noise_multiplier * math.hypot(encoding.value_sensitivity, finer) / (2 * finer) < ADAPTIVE.count_std


def test_votes_say_who_is_inside_and_noise_only_members_have_none() -> None:
    source, vote = OSSecrets().source(), SMALL.vote
    one = np.zeros(500, np.float32)
    one[3] = 1.0

    def voted(values: np.ndarray, clip_norm: float) -> int:
        bounded = SMALL.bound(Measurement(values), clip_norm, source)
        assert sum(int(v) ** 2 for v in bounded.value) <= bounded.l2_bound**2 * (1 + 1e-12)
        return int(bounded.value[-1])

    assert voted(one, 1.0) == voted(one, 1.5) == voted(0 * one, 1.0) == vote
    assert voted(one, 0.999) == voted(one * np.float32(1e30), 0.999) == -vote
    assert voted(one * np.float32(math.nan), 1.0) == 0
    assert SMALL.zeros().value.tolist() == [0] * 501


def test_votes_are_counted_and_do_not_touch_the_measurements() -> None:
    silent = replace(SMALL, noise_multiplier=0.0)
    source = OSSecrets().source()
    inside, outside = np.full(500, 0.01, np.float32), np.full(500, 1.0, np.float32)
    members = [silent.bound(Measurement(v), 1.0, source) for v in (inside, inside, inside, outside)] + [silent.zeros()]
    total = np.zeros(501, np.uint32)
    for member in members:
        total += silent.add_noise(member, source).value
    total &= np.uint32(2**20 - 1)
    assert silent.count(total) == 1.0  # (3 − 1)/2
    expected = 3 * 0.01 + 1 / math.sqrt(500)
    np.testing.assert_allclose(silent.decode(total, 1.0), np.full(500, expected), atol=4 * silent.step(1.0))


def test_update_by_hand() -> None:
    assert ADAPTIVE.update(2.0, 0.0, 100) == 2.0  # half of them inside
    assert ADAPTIVE.update(2.0, 50.0, 100) == pytest.approx(2 * math.exp(-0.1))  # all inside: the norm falls
    assert ADAPTIVE.update(2.0, -50.0, 100) == pytest.approx(2 * math.exp(0.1))  # none inside: it rises
    assert ADAPTIVE.update(2.0, 5e4, 100) == ADAPTIVE.update(2.0, 50.0, 100)  # more than all cannot be inside
    assert ADAPTIVE.update(2.0, -5e4, 100) == ADAPTIVE.update(2.0, -50.0, 100)
    tenth = AdaptiveClip(count_std=5.0, quantile=0.1, rate=1.0)
    assert tenth.update(1.0, 0.0, 100) == pytest.approx(math.exp(-0.4))


@pytest.mark.parametrize(
    ("clip_norm", "contributors", "said"),
    [(0.0, 70, "clip_norm"), (math.nan, 70, "clip_norm"), (1.0, 0, "contributors")],
)
def test_no_update_from_nothing(clip_norm: float, contributors: float, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        ADAPTIVE.update(clip_norm, 0.0, contributors)


@pytest.mark.parametrize("start", [0.05, 5.0])
def test_finds_the_median_norm(start: float) -> None:
    """Through bound, noise and sum: 70 of 100 members contribute, with log-normal norms around 0.47.

    The stationary spread of the logarithm is about 0.03; a band of ± 0.2 has a false alarm below 1e-9.
    """
    rng = np.random.default_rng(0)
    source = OSSecrets().source()
    clip_norm = start
    for _ in range(80):
        total = np.zeros(SMALL.wire_length, np.uint32)
        for norm in 0.47 * np.exp(0.5 * rng.normal(size=70)):
            values = rng.normal(size=500)
            values *= norm / np.linalg.norm(values)
            bounded = SMALL.bound(Measurement(values.astype(np.float32)), clip_norm, source)
            total += SMALL.add_noise(bounded, source).value
        for _ in range(30):
            total += SMALL.add_noise(SMALL.zeros(), source).value
        total &= np.uint32(2**20 - 1)
        clip_norm = ADAPTIVE.update(clip_norm, SMALL.count(total), 70)
    assert abs(math.log(clip_norm / 0.47)) < 0.2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"count_std": 0.0}, "count_std"),
        ({"count_std": math.inf}, "count_std"),
        ({"rate": 0.0}, "rate"),
        ({"quantile": 0.0}, "quantile"),
        ({"quantile": 1.0}, "quantile"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        replace(ADAPTIVE, **changes)


def test_the_smallest_vote_is_one_step() -> None:
    ten = AdaptiveClip(count_std=10.0)
    assert ten.vote(20.0, 1.0) == 1  # ⌊1.00125 · 20 / (2 · 10)⌋
    with pytest.raises(InvalidInput, match="lost in rounding"):
        ten.vote(19.9, 1.0)
    assert ten.vote(19.9, 0.0) == 1  # without noise nothing is lost


def test_votes_must_be_affordable_and_visible() -> None:
    with pytest.raises(InvalidInput, match=r"above 0\.75"):
        replace(SMALL, adaptive=AdaptiveClip(count_std=0.75))
    with pytest.raises(InvalidInput, match="lost in rounding"):
        replace(SMALL, adaptive=AdaptiveClip(count_std=1e4))
    with pytest.raises(InvalidInput, match="no votes"):
        replace(SMALL, adaptive=None).count(np.zeros(500, np.uint32))
