"""Who takes part: the chances that accounting rests on, and rosters that tell nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lowkey.errors import InvalidInput
from lowkey.privacy import SAMPLINGS, FixedSizeSampling, PoissonSampling, flip_coin, make_sampling
from lowkey.rng import OSSecrets, PublicStream

PAPER = PoissonSampling(population=6000, probability=1 / 60)


class Words:
    """A source that gives chosen words."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def bits(self, count: int) -> np.ndarray:
        return np.array([self.words.pop(0) for _ in range(count)], np.uint64)


def test_poisson_contributors_are_binomial_and_uniform() -> None:
    """Exact test and chi-square, false alarm 1e-6 each."""
    sampling = PoissonSampling(population=1000, probability=0.1)
    source = OSSecrets().source()
    cohorts = [sampling.draw(source) for _ in range(500)]
    sizes = [len(c.contributors) for c in cohorts]
    assert stats.binomtest(sum(sizes), 500 * 1000, 0.1).pvalue > 1e-6
    assert len(set(sizes)) > 10
    members = np.bincount([m for c in cohorts for m in c.contributors], minlength=1000)
    assert stats.chisquare(members).pvalue > 1e-6
    on_roster = np.bincount([m for c in cohorts for m in c.roster], minlength=1000)
    assert stats.chisquare(on_roster).pvalue > 1e-6
    assert sampling.expected_size == 100


@given(st.integers(1, 200), st.floats(1e-3, 1.0), st.integers(0, 2**32))
def test_rosters_are_distinct_sorted_and_of_constant_size(population: int, probability: float, seed: int) -> None:
    sampling = PoissonSampling(population=population, probability=probability)
    cohort = sampling.draw(PublicStream(seed))
    assert cohort.size == sampling.roster_size == len(set(cohort.roster))
    assert list(cohort.roster) == sorted(cohort.roster)
    assert all(0 <= member < population for member in cohort.roster)
    assert set(cohort.roster) == set(cohort.contributors) | set(cohort.noise_only)


@pytest.mark.parametrize(("population", "cohort"), [(6000, 100), (5011, 100)])
def test_rosters_of_the_paper_have_160_members(population: int, cohort: int) -> None:
    assert make_sampling(None, population=population, cohort=cohort).roster_size == 160


@pytest.mark.parametrize(
    ("population", "probability", "roster"),
    [(100, 0.5, 80), (1000, 0.9, 957), (1000, 1.0, 1000), (10, 0.5, 10), (1, 1.0, 1)],
)
def test_rosters_have_room_for_six_deviations(population: int, probability: float, roster: int) -> None:
    """By hand: 50 + 6·5; 900 + 6·9.487, rounded up; never more than there are."""
    assert PoissonSampling(population=population, probability=probability).roster_size == roster


def test_too_many_candidates_are_cut_to_a_uniform_subset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chi-square, false alarm 1e-6."""
    monkeypatch.setattr(PoissonSampling, "roster_size", 10)
    sampling = PoissonSampling(population=40, probability=0.9)
    cohorts = [sampling.draw(OSSecrets().source()) for _ in range(1000)]
    assert {(len(c.contributors), c.noise_only) for c in cohorts} == {(10, ())}
    assert stats.chisquare(np.bincount(np.concatenate([c.contributors for c in cohorts]))).pvalue > 1e-6


def test_rosters_do_not_overflow_at_any_seed_we_will_see() -> None:
    assert stats.binom.sf(PAPER.roster_size, 6000, 1 / 60) < 1e-8


def test_everybody_is_everybody() -> None:
    sampling = PoissonSampling(population=7, probability=1.0)
    assert sampling.draw(OSSecrets().source()).contributors == tuple(range(7))
    assert (sampling.mode, sampling.roster_size, sampling.expected_size) == ("all", 7, 7)


def test_nobody_drawn_still_fills_the_roster() -> None:
    cohort = PoissonSampling(population=50, probability=1e-12).draw(OSSecrets().source())
    assert cohort.contributors == ()
    assert len(cohort.noise_only) == cohort.size == 1


def test_fixed_cohorts() -> None:
    """Chi-square, false alarm 1e-6."""
    sampling = FixedSizeSampling(population=30, size=7)
    drawn = [sampling.draw(OSSecrets().source()).contributors for _ in range(300)]
    assert all(len(set(c)) == 7 for c in drawn)
    assert stats.chisquare(np.bincount(np.concatenate(drawn), minlength=30)).pvalue > 1e-6


def test_the_coin_has_64_bits_and_never_too_many_heads() -> None:
    third = int(2**64 / 3)
    for word, heads in ((0, True), (third - 2048, True), (third + 2048, False), (2**64 - 1, False)):
        assert flip_coin(Words(word), 1 / 3) is heads
    assert flip_coin(Words(0), 2.0**-64) is True
    assert flip_coin(Words(1), 2.0**-64) is False
    assert flip_coin(Words(), 1.0) is True
    source = OSSecrets().source()
    count = sum(flip_coin(source, 0.25) for _ in range(20_000))
    assert stats.binomtest(count, 20_000, 0.25).pvalue > 1e-6  # false alarm 1e-6
    for bad in (0.0, -0.1, 1.1, float("nan")):
        with pytest.raises(InvalidInput, match="coin"):
            flip_coin(source, bad)


MODES: list[tuple[dict[str, Any], str, float, float, int]] = [
    ({"mode": None, "cohort": 100}, "poisson_padded", 1 / 60, 1.0, 160),
    ({"mode": None, "cohort": 6000}, "all", 1.0, 1.0, 6000),
    ({"mode": "all", "cohort": 6000}, "all", 1.0, 1.0, 6000),
    ({"mode": "poisson_padded", "cohort": 100}, "poisson_padded", 1 / 60, 1.0, 160),
    ({"mode": "secret_poisson", "cohort": 100}, "secret_poisson", 1.0, 1 / 60, 6000),
    ({"mode": "secret_poisson", "cohort": 100, "roster": 1000}, "secret_poisson", 1 / 6, 0.1, 1174),
    ({"mode": "fixed", "cohort": 100}, "fixed", 1 / 60, 1.0, 100),
]


@pytest.mark.parametrize(("options", "mode", "probability", "coin", "roster"), MODES)
def test_modes(options: dict[str, Any], mode: str, probability: float, coin: float, roster: int) -> None:
    sampling = make_sampling(population=6000, **options)
    assert (sampling.mode, sampling.population, sampling.roster_size) == (mode, 6000, roster)
    assert (sampling.probability, sampling.coin) == pytest.approx((probability, coin))
    assert sampling.expected_size == pytest.approx(6000 * probability * coin)
    event = sampling.event(1.54, honest=80)
    assert event.to_json() == {
        "kind": "fixed" if mode == "fixed" else "poisson",
        "noise_multiplier": 1.54,
        "sampling_probability": pytest.approx(probability * coin),
        "coin": coin,
        "population": 6000,
        "roster": roster,
        "honest": 80,
        "count": 1,
        "unit": "client",
        "failure": 0.0,
        "adjacency": "replace-one" if mode == "fixed" else "zero-out",
    }


def test_samplings_are_named_with_the_nearest() -> None:
    assert list(SAMPLINGS) == ["all", "poisson_padded", "secret_poisson", "fixed"]
    assert all(SAMPLINGS[name].words for name in SAMPLINGS)
    with pytest.raises(InvalidInput, match=r"privacy\.sampling is 'poisson_pad'; .*did you mean 'poisson_padded'\?"):
        make_sampling("poisson_pad", population=30, cohort=10)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"mode": "all", "cohort": 10}, "set the cohort to the number of clients, or choose 'poisson_padded'"),
        ({"mode": "poisson", "cohort": 10}, "all, poisson_padded, secret_poisson, fixed"),
        ({"mode": "secret_poisson", "cohort": 30}, "above federation.cohort"),
        ({"mode": "secret_poisson", "cohort": 10, "roster": 31}, "at most the number of clients, 30"),
        ({"mode": "secret_poisson", "cohort": 10, "roster": 10}, "above federation.cohort"),
        ({"mode": "fixed", "cohort": 10, "roster": 20}, "needs privacy.sampling = 'secret_poisson'"),
        ({"mode": None, "cohort": 0}, "federation.cohort is 0"),
        ({"mode": None, "cohort": 31}, "federation.cohort is 31"),
        ({"mode": None, "cohort": 2.5}, "federation.cohort is 2.5; it must be a whole number"),
        ({"mode": "secret_poisson", "cohort": 10, "roster": 20.5}, "privacy.roster is 20.5; it must be a whole number"),
    ],
)
def test_contradictions_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        make_sampling(population=30, **options)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"population": 0, "probability": 0.1}, "number of clients"),
        ({"population": 9, "probability": 0.0}, "sampling probability"),
        ({"population": 9, "probability": 1.1}, "sampling probability"),
        ({"population": 9, "probability": float("nan")}, "sampling probability"),
        ({"population": 9, "probability": 0.1, "coin": 0.0}, "coin"),
        ({"population": 9, "probability": 0.1, "coin": 1.1}, "coin"),
    ],
)
def test_impossible_chances_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        PoissonSampling(**options)


@pytest.mark.parametrize("size", [0, 10])
def test_impossible_cohorts_are_refused(size: int) -> None:
    with pytest.raises(InvalidInput, match="cohort is"):
        FixedSizeSampling(population=9, size=size)


def test_one_client_alone_is_everybody() -> None:
    assert make_sampling(None, population=1, cohort=1).mode == "all"
