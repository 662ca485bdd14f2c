"""The sampler draws the discrete Gaussian, exactly and from secret words alone."""

from __future__ import annotations

import decimal
import itertools
import math
from collections.abc import Iterable

import numpy as np
import pytest
from scipy import stats

from lowkey.errors import InvalidInput
from lowkey.privacy import discrete_gaussian
from lowkey.privacy.discrete_gaussian import add_discrete_gaussian, pmf
from lowkey.rng import BitSource, OSSecrets, ReplaySecrets
from lowkey.types import Bits


class Words:
    """A source that gives these words, then nothing."""

    def __init__(self, words: Iterable[int]) -> None:
        self.left = list(words)

    def bits(self, count: int) -> Bits:
        given, self.left = self.left[:count], self.left[count:]
        return np.array(given, np.uint64)


def draws(std: float, count: int, source: BitSource) -> np.ndarray:
    values = np.zeros(count, np.int32)
    add_discrete_gaussian(values, std, source)
    return values


def test_probabilities_known_to_twelve_digits() -> None:
    known = {0: 0.099735570100, 1: 0.096667029201, 4: 0.060492681130}
    for k, probability in known.items():
        assert pmf(k, 4.0) == pytest.approx(probability, abs=1e-12)
        assert pmf(-k, 4.0) == pytest.approx(probability, abs=1e-12)


@pytest.mark.parametrize("std", [0.3, 1.0, 8.0, 157.3127])
def test_table_is_the_discrete_gaussian(std: float) -> None:
    """Against direct summation in floating point, far into the tails."""
    k = np.arange(-20 * math.ceil(std), 20 * math.ceil(std) + 1)
    weights = np.exp(-(k**2) / (2 * std**2))
    expected = weights / math.fsum(weights)
    ours = np.array([pmf(int(i), std) for i in k])
    near = np.abs(k) <= 8 * std
    np.testing.assert_allclose(ours[near], expected[near], rtol=1e-11)
    np.testing.assert_allclose(ours, expected, atol=1e-38)
    assert ours.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("std", [0.3, 8.5, 250.2567])
def test_thresholds_are_right_to_the_last_of_128_bits(std: float) -> None:
    """Against sums of exponentials with 100 decimal digits over twice the reach; beyond the table there is nothing."""
    table, far = discrete_gaussian._table(std), math.ceil(28 * std)
    with decimal.localcontext(prec=100):
        variance = decimal.Decimal(std) ** 2
        weights = [(-(decimal.Decimal(k) ** 2) / (2 * variance)).exp() for k in range(-far, far + 1)]
        scale = decimal.Decimal(2**128) / sum(weights)
        exact = [int(below * scale) for below in itertools.accumulate(weights)]
    for k in range(-table.reach, table.reach):
        assert abs(table.cumulative(k) - exact[k + far]) <= 1
    assert [table.cumulative(int(k)) for k in (-table.reach - 1, -far, table.reach, far)] == [0, 0, 2**128, 2**128]


@pytest.mark.parametrize("std", [4.0, 250.2567])
def test_a_million_draws_fit(std: float) -> None:
    """Chi-square, false alarm 1e-6; a distribution 3 % wider is rejected."""
    drawn = draws(std, 1_000_000, OSSecrets().source())
    edges = np.linspace(-3.5 * std, 3.5 * std, 29).astype(int)  # of bins (previous edge, edge], the outer two open
    observed = np.bincount(np.searchsorted(edges, drawn), minlength=30)

    def p_value(assumed: float) -> float:
        below = [discrete_gaussian._table(assumed).cumulative(int(edge)) / 2**128 for edge in edges]
        return float(stats.chisquare(observed, np.diff([0.0, *below, 1.0]) * drawn.size).pvalue)

    assert p_value(std) > 1e-6
    assert p_value(1.03 * std) < 1e-6


def test_variance_and_mean_of_a_million_draws() -> None:
    """Variance 16 ± 0.11 is 4.9 standard deviations, false alarm 1e-6; the mean likewise."""
    drawn = draws(4.0, 1_000_000, OSSecrets().source())
    assert abs(float(drawn.var()) - 16) < 0.11
    assert abs(float(drawn.mean())) < 4.9 * 4 / 1000


def test_noise_is_added_to_what_is_there() -> None:
    values = np.arange(100_000, dtype=np.int32)
    add_discrete_gaussian(values, 8.0, ReplaySecrets(1).source())
    np.testing.assert_array_equal(values, np.arange(100_000) + draws(8.0, 100_000, ReplaySecrets(1).source()))


def test_no_noise_draws_no_words() -> None:
    values = np.arange(5, dtype=np.int32)
    add_discrete_gaussian(values, 0.0, Words([]))
    assert values.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("std", [1.0, 250.2567, 1116.5488])
def test_draws_follow_the_words_alone(std: float) -> None:
    """Every draw is the number of 128-bit thresholds below its word, also next to thresholds and in the far tails."""
    table = discrete_gaussian._table(std)
    some = table.high[:: max(1, table.high.size // 300)]
    words = np.unique(np.concatenate([some - np.uint64(1), some + np.uint64(1), ReplaySecrets(2).source().bits(500)]))
    words = words[~np.isin(words, table.high)]
    expected = np.searchsorted(table.high, words) - table.reach
    np.testing.assert_array_equal(draws(std, words.size, Words(words.tolist())), expected)


def test_ties_are_resolved_by_64_more_bits() -> None:
    """A word that equals the leading half of the threshold 2¹²⁸·P(X ≤ 3) draws 3 or 4, as the next word decides."""
    table = discrete_gaussian._table(4.0)
    high, low = divmod(table.cumulative(3), 2**64)
    middle = 2**63
    for more, drawn in ((0, 3), (low - 1, 3), (low, 4), (2**64 - 1, 4)):
        source = Words([middle, high, middle, more])
        assert draws(4.0, 3, source).tolist() == [0, drawn, 0]
        assert not source.left


def test_far_tails_are_reached_where_leading_words_are_equal() -> None:
    assert draws(4.0, 1, Words([0, 0])).tolist() == [-52]  # −53 and beyond have less than 2⁻¹²⁸ together
    assert draws(4.0, 1, Words([2**64 - 1, 2**64 - 1])).tolist() == [56]


def test_bad_std_is_refused() -> None:
    for std in (-1.0, math.nan, math.inf):
        with pytest.raises(InvalidInput, match="std"):
            draws(std, 1, Words([]))
    with pytest.raises(InvalidInput, match="std"):
        pmf(0, 0.0)
