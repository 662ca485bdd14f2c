"""ε for the server, for groups, for searches."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from scipy import stats

from lowkey.errors import InvalidInput
from lowkey.privacy import (
    Event,
    claimed_epsilon,
    group_epsilon,
    guarantee_lines,
    likely_participations,
    make_sampling,
    noise_shares,
    released_epsilon,
    search_epsilon,
    server_epsilon,
    server_view,
)

DELTA = 1e-5
FASHION = Event(noise_multiplier=1.54, sampling_probability=1 / 60, population=6000, count=200)
MEDICAL = Event(noise_multiplier=1.49, sampling_probability=100 / 5011, population=5011, count=100)


@pytest.mark.parametrize(
    ("noise", "participations", "expected"),
    [(1.54, 1, 2.6727), (1.54, 2, 3.9671), (1.54, 3, 5.0181), (1.54, 10, 10.3277), (1.54, 20, 15.9894),
     (1.22441, 1, 3.4679), (1.22441, 10, 13.7626), (3.7306, 1, 1.0000)],
)  # fmt: skip
def test_the_server_knows_who_was_drawn(noise: float, participations: int, expected: float) -> None:
    assert server_epsilon(noise, participations, DELTA) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("coin", "participations", "expected"), [(0.1, 50, 2.4278), (0.05, 88, 1.5095)])
def test_secret_coins_help_against_the_server(coin: float, participations: int, expected: float) -> None:
    assert server_epsilon(1.54, participations, DELTA, coin=coin) == pytest.approx(expected, abs=5e-3)


def test_a_coin_that_rarely_falls_on_tails_helps_a_little() -> None:
    assert 9.0 < server_epsilon(1.54, 10, DELTA, coin=0.9) < 10.32  # 10.3277 without


def test_when_everybody_flips_a_coin_the_server_sees_no_more_than_others() -> None:
    event = replace(make_sampling("secret_poisson", population=6000, cohort=100).event(1.54), count=200)
    assert server_epsilon(1.54, 200, DELTA, coin=event.coin) == claimed_epsilon([event], DELTA)
    assert claimed_epsilon([event], DELTA) == pytest.approx(0.6806, abs=5e-4)


def test_the_server_sees_every_round_that_asked_however_rarely_clients_are_drawn() -> None:
    """Rounds without coins are Gaussian mechanisms in full: 1/z² adds up, whatever the sampling and the accounting."""
    once, other = replace(FASHION, count=1), replace(MEDICAL, count=1, noise_multiplier=1.22441)
    fixed = make_sampling("fixed", population=6000, cohort=100).event(1.54)
    assert server_view([once] * 10, DELTA) == pytest.approx(10.3277, abs=1e-4)
    assert server_view([replace(once, count=7), once, fixed, once], DELTA) == pytest.approx(10.3277, abs=1e-4)
    mu = math.sqrt(1.54**-2 + 2 * 1.22441**-2)
    assert server_view([once, replace(other, count=2)], DELTA) == pytest.approx(server_epsilon(1 / mu, 1, DELTA))
    assert server_view([], DELTA) == 0.0


def test_the_server_sees_less_of_rounds_with_secret_coins() -> None:
    coins = Event(noise_multiplier=1.54, sampling_probability=0.1 / 6, coin=0.1, count=50)
    assert server_view([coins], DELTA) == pytest.approx(2.4278, abs=5e-3)
    assert server_view([replace(coins, count=20)] + [replace(coins, count=1)] * 30, DELTA) == server_view(
        [coins], DELTA
    )
    mixed = server_view([coins, replace(FASHION, count=1)], DELTA)  # 2.6727 alone
    assert max(2.6727, 2.4278) < mixed < 2.6727 + 2.4278 + 1e-2


def test_a_client_that_was_never_asked_has_lost_nothing() -> None:
    assert server_epsilon(1.54, 0, DELTA) == 0.0


@pytest.mark.parametrize(("probability", "expected"), [(1 / 60, 10), (1 / 6, 50), (1 / 3, 88), (1.0, 200)])
def test_likely_participations(probability: float, expected: int) -> None:
    found = likely_participations(200, probability)
    assert found == expected
    assert stats.binom.cdf(found, 200, probability) >= 0.999


def test_groups() -> None:
    assert group_epsilon(FASHION, 12, DELTA) == pytest.approx(11.663, abs=0.02)
    assert group_epsilon(MEDICAL, 12, DELTA) == pytest.approx(10.579, abs=0.02)


def test_a_group_of_one_is_a_client() -> None:
    assert group_epsilon(FASHION, 1, DELTA) == pytest.approx(claimed_epsilon([FASHION], DELTA), abs=5e-3)
    alone = group_epsilon(FASHION, 2, DELTA)
    assert alone == pytest.approx(1.463, abs=5e-3)
    assert alone <= group_epsilon(replace(FASHION, roster=160), 2, DELTA) <= alone + 0.02


@pytest.mark.parametrize(("event", "expected"), [(FASHION, 0.7386), (MEDICAL, 0.6848)])
def test_losing_a_tenth_of_the_noise(event: Event, expected: float) -> None:
    """Nine tenths of the shares carry nine tenths of the variance."""
    left = replace(event, noise_multiplier=event.noise_multiplier * math.sqrt(0.9))
    assert claimed_epsilon([left], DELTA) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize(
    ("event", "runs", "expected"),
    [(FASHION, 10, 1.6493), (FASHION, 99, 2.1315), (FASHION, 3960, 2.7918), (MEDICAL, 10, 1.5804)],
)
def test_choosing_the_best_of_many_runs(event: Event, runs: float, expected: float) -> None:
    assert search_epsilon(event, runs, DELTA) == pytest.approx(expected, abs=5e-4)


def test_a_search_of_one_run_costs_no_less_than_the_run() -> None:
    spent = released_epsilon([FASHION], DELTA).rdp
    assert spent is not None
    assert spent <= search_epsilon(FASHION, 1, DELTA) < search_epsilon(FASHION, 2, DELTA)


def test_a_search_over_padded_rosters() -> None:
    padded = replace(FASHION, roster=160)
    assert search_epsilon(FASHION, 10, DELTA) < search_epsilon(padded, 10, DELTA) < 1.66
    with pytest.raises(InvalidInput, match="raise delta"):
        search_epsilon(padded, 3960, DELTA)


def test_bad_views_are_refused() -> None:
    fixed = make_sampling("fixed", population=6000, cohort=100).event(1.54)
    for bad, named in (
        (lambda: server_epsilon(0.0, 1, DELTA), "noise multiplier"),
        (lambda: server_epsilon(1.0, -1, DELTA), "participations"),
        (lambda: server_epsilon(1.0, 1, 1.0), "delta"),
        (lambda: server_epsilon(1.0, 1, DELTA, coin=0.0), "coin"),
        (lambda: server_view([], 0.0), "delta"),
        (lambda: server_view([FASHION], 1.0), "delta"),
        (lambda: likely_participations(10, 1.5), "probability"),
        (lambda: likely_participations(-1, 0.5), "rounds"),
        (lambda: likely_participations(10, 0.5, quantile=1.0), "quantile"),
        (lambda: group_epsilon(fixed, 2, DELTA), "Poisson"),
        (lambda: group_epsilon(FASHION, 0, DELTA), "group"),
        (lambda: search_epsilon(fixed, 2, DELTA), "Poisson"),
        (lambda: search_epsilon(FASHION, 0.5, DELTA), "at least 1"),
        (lambda: search_epsilon(FASHION, math.nan, DELTA), "at least 1"),
        (lambda: search_epsilon(FASHION, math.inf, DELTA), "at least 1"),
        (lambda: search_epsilon(FASHION, 2, 1.0), "delta"),
        (lambda: group_epsilon(FASHION, 2, 1.0), "delta"),
    ):
        with pytest.raises(InvalidInput, match=named):
            bad()


def test_the_guarantee_in_words_has_everything() -> None:
    sampling = make_sampling(None, population=6000, cohort=100)
    event = replace(sampling.event(1.54), count=25)
    text = "\n".join(
        guarantee_lines(
            event,
            released=released_epsilon([event], DELTA),
            server=server_epsilon(1.54, 3, DELTA),
            participations=3,
            delta=DELTA,
            shares=noise_shares(sampling.roster_size),
        )
    )
    always = guarantee_lines(
        event, released=released_epsilon([event], DELTA), server=9.0, participations=None, delta=DELTA
    )
    assert "asked for its data in all attempts so far" in always[1]
    for part in ("0.2679", "5.0181", "asked for its data 3 times", "one client", "zero-out", "poisson_padded", "1e-05",
                 "κ = 128", "c_max = 16", "Not covered", "hyper-parameters"):  # fmt: skip
        assert part in text, text


def test_a_random_graph_is_named_with_its_chance() -> None:
    sampling = make_sampling("all", population=6000, cohort=6000)
    drawn = noise_shares(6000, dropouts=0.1, colluders=0.1, kind="random")
    assert (drawn.min_survivors, drawn.strays, drawn.honest, drawn.colluders) == (5400, 21, 4779, 600)
    event = replace(sampling.event(50.0), failure=drawn.failure)
    lines = guarantee_lines(
        event, released=released_epsilon([event], DELTA), server=1.0, participations=1, delta=DELTA, shares=drawn
    )
    assert "Of the honest, 21 more may be cut off; with a chance of 2.2e-16 an attempt" in "\n".join(lines)
    plain = released_epsilon([replace(event, failure=0.0, count=100)], DELTA).pld
    assert plain < released_epsilon([replace(event, failure=1e-8, count=100)], DELTA).pld < 1.1 * plain
    assert server_view([replace(event, failure=1e-8, count=100)], DELTA) > server_view(
        [replace(event, count=100)], DELTA
    )
    assert math.isinf(server_view([replace(event, failure=0.1, count=100)], DELTA))
