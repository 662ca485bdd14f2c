"""ε against published and independently computed values."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import replace
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting import NeighboringRelation, PoissonSampledDpEvent, TruncatedSubsampledGaussianDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from dp_accounting.rdp import RdpAccountant
from scipy import stats

from lowkey.errors import InvalidInput
from lowkey.privacy import (
    Event,
    Ledger,
    claimed_epsilon,
    distributions,
    make_sampling,
    released_epsilon,
    require_small_delta,
)

DELTA = 1e-5
FASHION = Event(noise_multiplier=1.54, sampling_probability=1 / 60, population=6000)
MEDICAL = Event(noise_multiplier=1.49, sampling_probability=100 / 5011, population=5011)
PAPER = [(FASHION, 200), (MEDICAL, 100)]
NAMES = ["fashion", "medical"]
# round: classic, improved, PLD
FASHION_TABLE = {
    1: (0.6197, 0.4107, 0.0965), 25: (0.6915, 0.4738, 0.2679), 64: (0.7724, 0.5535, 0.3982),
    87: (0.8179, 0.5907, 0.4578), 93: (0.8276, 0.6004, 0.4721), 101: (0.8405, 0.6133, 0.4906),
    150: (0.9197, 0.6925, 0.5918), 196: (0.9941, 0.7669, 0.6739), 197: (0.9957, 0.7685, 0.6755),
    199: (0.9989, 0.7718, 0.6789), 200: (1.0006, 0.7734, 0.6806),
}  # fmt: skip
MEDICAL_TABLE = {
    1: (0.6967, 0.4695, 0.1299), 25: (0.7987, 0.5610, 0.3474), 64: (0.9176, 0.6682, 0.5123),
    87: (0.9715, 0.7221, 0.5878), 93: (0.9856, 0.7362, 0.6060), 99: (0.9997, 0.7503, 0.6237),
    100: (1.0020, 0.7526, 0.6266),
}  # fmt: skip
PUBLISHED = {25: 0.69, 101: 0.84, 150: 0.92, 196: 0.99, 197: 1.0, 199: 1.0, 200: 1.0}
PUBLISHED_MEDICAL = {64: 0.92, 87: 0.97, 93: 0.99, 99: 1.0, 100: 1.0}


@pytest.mark.parametrize(("event", "table"), [(FASHION, FASHION_TABLE), (MEDICAL, MEDICAL_TABLE)], ids=NAMES)
def test_three_accountants(event: Event, table: dict[int, tuple[float, float, float]]) -> None:
    for rounds, expected in table.items():
        spent = released_epsilon([replace(event, count=rounds)], DELTA)
        assert (spent.paper, spent.rdp, spent.pld) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize(("event", "table"), [(FASHION, PUBLISHED), (MEDICAL, PUBLISHED_MEDICAL)], ids=NAMES)
def test_the_papers_own_figures(event: Event, table: dict[int, float]) -> None:
    for rounds, published in table.items():
        spent = released_epsilon([replace(event, count=rounds)], DELTA).paper
        assert spent is not None
        assert round(spent, 2) == published


@pytest.mark.parametrize(("event", "rounds", "least"), [(FASHION, 200, 0.6790), (MEDICAL, 100, 0.6255)], ids=NAMES)
def test_the_claim_is_tight(event: Event, rounds: int, least: float) -> None:
    """A discretisation that errs to the other side comes within a thousandth, so the claim cannot be far too high."""
    optimistic = from_gaussian_mechanism(
        event.noise_multiplier,
        sampling_prob=event.sampling_probability,
        pessimistic_estimate=False,
        use_connect_dots=False,
        value_discretization_interval=1e-5,
    )
    below = optimistic.self_compose(rounds).get_epsilon_for_delta(DELTA)
    assert least <= below <= claimed_epsilon([replace(event, count=rounds)], DELTA) <= below + 2e-3


def test_ordering_on_random_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributions, "INTERVAL", 1e-3)  # quicker, and coarser only raises the PLD figure
    rng = np.random.default_rng(0)
    for _ in range(50):
        event = Event(
            sampling_probability=float(np.exp(rng.uniform(np.log(1e-3), 0))),
            noise_multiplier=float(rng.uniform(0.7, 5)),
            count=int(rng.integers(1, 501)),
        )
        spent = released_epsilon([event], DELTA)
        assert spent.rdp is not None
        assert spent.paper is not None
        assert spent.pld <= spent.rdp
        assert spent.rdp <= spent.paper


@pytest.mark.parametrize(
    ("q", "relation"), [(1 / 60, "zero-out"), (0.3, "zero-out"), (0.02, "replace-one"), (0.3, "replace-one")]
)
def test_our_distributions_are_those_of_dp_accounting(q: float, relation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributions, "INTERVAL", 1e-3)  # theirs is slow
    names = {"zero-out": NeighboringRelation.REPLACE_SPECIAL, "replace-one": NeighboringRelation.REPLACE_ONE}
    accountant = PLDAccountant(names[relation], value_discretization_interval=1e-3)
    accountant.compose(PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(1.3)), 20)
    event = Event(noise_multiplier=1.3, sampling_probability=q, count=20, adjacency=relation)
    for delta in (1e-3, 1e-5, 1e-8):
        assert claimed_epsilon([event], delta) == pytest.approx(accountant.get_epsilon(delta), rel=1e-6)


@pytest.mark.parametrize(("event", "rounds", "expected"), [(FASHION, 200, 1.1803), (MEDICAL, 100, 1.0304)], ids=NAMES)
def test_replacing_one_client_of_a_poisson_cohort(event: Event, rounds: int, expected: float) -> None:
    spent = released_epsilon([replace(event, count=rounds, adjacency="replace-one")], DELTA)
    assert spent.pld == pytest.approx(expected, abs=5e-4)
    assert (spent.rdp, spent.paper) == (None, None)


@pytest.mark.parametrize(("roster", "expected"), [(160, 0.6806), (140, 0.6855), (130, 0.8458), (120, 1.4550)])
def test_rosters_that_may_overflow(roster: int, expected: float) -> None:
    event = replace(FASHION, roster=roster, count=200)
    assert claimed_epsilon([event], DELTA) == pytest.approx(expected, abs=5e-4)


def test_overflowing_rosters_as_in_dp_accounting() -> None:
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(TruncatedSubsampledGaussianDpEvent(6000, 1 / 60, 130, 1.54), 20)
    event = replace(FASHION, roster=130, count=20)
    assert claimed_epsilon([event], DELTA) == pytest.approx(accountant.get_epsilon(DELTA), abs=2e-4)


def test_rdp_takes_overflowing_rosters_off_delta() -> None:
    """Of the client's rounds, ρ·P[Bin(N − 1, ρ) ≥ M] are not Poisson sampling of it."""
    event = replace(FASHION, roster=160, count=200)
    lost = 200 * stats.binom.sf(159, 5999, 1 / 60) / 60
    assert released_epsilon([event], DELTA).rdp == pytest.approx(
        released_epsilon([replace(event, roster=None)], DELTA - lost).rdp
    )
    assert released_epsilon([event], DELTA).rdp == pytest.approx(0.7737, abs=5e-4)
    assert released_epsilon([replace(event, roster=130)], DELTA).rdp is None  # there nothing of δ is left


def test_secret_coins_on_a_small_roster() -> None:
    event = replace(make_sampling("secret_poisson", population=6000, cohort=100, roster=1000).event(1.54), count=200)
    plain = replace(FASHION, count=200)
    lost = 200 * stats.binom.sf(1173, 5999, 1 / 6) / 6
    assert claimed_epsilon([event], DELTA) == pytest.approx(claimed_epsilon([plain], DELTA - lost), abs=1e-6)
    with pytest.raises(InvalidInput, match="raise the noise or delta, or lower the number of rounds"):
        released_epsilon([replace(event, roster=1100)], DELTA)


def test_no_sampling_is_the_gaussian_mechanism() -> None:
    """T rounds at z compose exactly to μ = √T / z; values from the closed form."""
    everybody = Event(noise_multiplier=1.54, sampling_probability=1.0)
    for z, rounds, expected in (
        (1.54, 1, 2.6727), (1.54, 3, 5.0181), (1.54, 10, 10.3277), (5, 50, 6.5730), (10, 50, 2.9432), (20, 100, 1.9931),
    ):  # fmt: skip
        event = replace(everybody, noise_multiplier=z, count=rounds)
        assert claimed_epsilon([event], DELTA) == pytest.approx(expected, abs=1e-4)
    twice = claimed_epsilon([replace(everybody, adjacency="replace-one")], DELTA)
    assert twice == pytest.approx(5.9414, abs=1e-4)
    assert twice == pytest.approx(claimed_epsilon([replace(everybody, count=4)], DELTA))
    assert claimed_epsilon([replace(everybody, noise_multiplier=1e6)], DELTA) == 0.0


@pytest.mark.parametrize("mu", [0.05, 0.5, 1 / 1.54, 2.0, 10.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_the_exact_figure_errs_to_the_private_side_and_hardly(mu: float, delta: float) -> None:
    found = distributions.gaussian_epsilon(mu, delta)
    assert distributions.gaussian_delta(mu, np.array(found)) <= delta
    assert distributions.gaussian_delta(mu, np.array(found - 1e-10)) > delta


@pytest.mark.filterwarnings("error")
def test_hardly_any_noise_is_hardly_any_privacy_but_no_accident() -> None:
    event = replace(make_sampling(None, population=30, cohort=10).event(0.1), count=30)
    everybody = claimed_epsilon([Event(noise_multiplier=0.1, sampling_probability=1.0, count=30)], DELTA)
    assert everybody / 10 < claimed_epsilon([event], DELTA) < everybody
    with pytest.raises(InvalidInput, match="the noise is too small"):
        released_epsilon([replace(event, noise_multiplier=1e-6)], DELTA)


def test_rounds_add_up_in_any_order() -> None:
    one, other = replace(FASHION, count=30), Event(noise_multiplier=2.0, sampling_probability=0.1, count=5)
    everybody = Event(noise_multiplier=9.0, sampling_probability=1.0, count=2)
    together = released_epsilon([one, other, everybody], DELTA)
    apart = released_epsilon([other, replace(everybody, count=1), *[FASHION] * 30, replace(everybody, count=1)], DELTA)
    assert together == apart
    assert together.pld > max(released_epsilon([event], DELTA).pld for event in (one, other, everybody))
    assert together.rdp is not None
    assert together.pld < together.rdp


def test_nothing_run_is_nothing_spent() -> None:
    spent = released_epsilon([], DELTA)
    assert (spent.paper, spent.rdp, spent.pld, spent.claimed) == (0.0, 0.0, 0.0, 0.0)
    assert claimed_epsilon([], DELTA) == 0.0


def test_little_noise_needs_orders_between_whole_numbers() -> None:
    accountant = RdpAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(0.3))
    found = released_epsilon([Event(noise_multiplier=0.3, sampling_probability=1.0)], DELTA).rdp
    assert found == pytest.approx(accountant.get_epsilon(DELTA))
    whole = RdpAccountant(range(2, 65))
    whole.compose(dp_accounting.GaussianDpEvent(0.3))
    assert found < whole.get_epsilon(DELTA) - 0.1


@pytest.mark.parametrize(("event", "expected"), [(FASHION, (3.3534, 4.9076)), (MEDICAL, (3.3732, 4.9931))], ids=NAMES)
def test_fixed_size_is_accounted_as_such(event: Event, expected: tuple[float, float]) -> None:
    rounds = 200 if event is FASHION else 100
    fixed = make_sampling("fixed", population=event.population or 0, cohort=100).event(event.noise_multiplier)
    spent = released_epsilon([replace(fixed, count=rounds)], DELTA)
    assert spent.pld == pytest.approx(expected[0], abs=5e-3)
    assert spent.rdp == pytest.approx(expected[1], abs=5e-4)
    assert spent.paper is None
    assert spent.pld >= 3.08


def test_dp_accounting_still_needs_half_the_multiplier_for_replacing_one() -> None:
    """dp-accounting's RDP takes S for 2S here (google/differential-privacy, issue 378)."""
    rdp = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    rdp.compose(dp_accounting.GaussianDpEvent(1.54))
    mended = "dp-accounting may have mended issue 378: remove the halving in accounting._rdp"
    assert rdp.get_epsilon(DELTA) == pytest.approx(2.8980, abs=5e-4), mended
    pld = PLDAccountant(NeighboringRelation.REPLACE_ONE)
    pld.compose(dp_accounting.GaussianDpEvent(1.54))
    assert pld.get_epsilon(DELTA) == pytest.approx(5.9414, abs=5e-4), mended


def test_mixed_neighbours_are_refused() -> None:
    with pytest.raises(InvalidInput, match="different neighbours"):
        released_epsilon([FASHION, make_sampling("fixed", population=6000, cohort=100).event(1.54)], DELTA)


def test_one_more_round_recomputes_no_distribution() -> None:
    distributions.round_pld.cache_clear()
    for rounds in range(1, 6):
        released_epsilon([replace(FASHION, roster=160, count=rounds)], DELTA)
    assert distributions.round_pld.cache_info().misses == 1


def test_claim_is_rounded_up() -> None:
    spent = released_epsilon([replace(FASHION, count=200)], DELTA)
    assert spent.claimed >= spent.pld
    assert spent.claimed == pytest.approx(0.6806, abs=1e-9)


BAD: list[dict[str, Any]] = [
    {"noise_multiplier": 0.0},
    {"noise_multiplier": -1.0},
    {"noise_multiplier": math.nan},
    {"noise_multiplier": math.inf},
    {"noise_multiplier": "1.5"},
    {"noise_multiplier": True},
    {"sampling_probability": 0.0},
    {"sampling_probability": 1.1},
    {"sampling_probability": math.nan},
    {"sampling_probability": None},
    {"coin": 0.0},
    {"coin": math.nan},
    {"coin": 0.01},  # below q
    {"count": 0},
    {"count": 1.5},
    {"count": math.nan},
    {"count": None},
    {"population": 0},
    {"population": math.nan},
    {"roster": 0},
    {"roster": 6001},
    {"population": None, "roster": 10},
    {"honest": 0},
    {"roster": 10, "honest": 11},
    {"unit": ""},
    {"adjacency": "add-remove"},
    {"kind": "shuffled"},
    {"kind": "fixed"},  # zero-out
    {"kind": "fixed", "adjacency": "replace-one", "population": None},
    {"kind": "fixed", "adjacency": "replace-one", "coin": 0.5},
]


@pytest.mark.parametrize("bad", BAD)
def test_bad_events_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must"):
        Event.from_json(FASHION.to_json() | bad)


@pytest.mark.parametrize("fine", [{"population": 1, "roster": 1, "honest": 1}, {"roster": 6000, "honest": 6000}])
def test_events_at_their_limits_are_accepted(fine: dict[str, Any]) -> None:
    assert {name: getattr(replace(FASHION, **fine), name) for name in fine} == fine


@pytest.mark.parametrize(
    ("probability", "coin", "candidate", "mode"),
    [
        (1.0, 1.0, 1.0, "all"),
        (0.95, 1.0, 0.95, "poisson_padded"),
        (0.95, 0.95, 1.0, "secret_poisson"),
        (0.1, 0.5, 0.2, "secret_poisson"),
    ],
)
def test_what_an_event_says_of_its_sampling(probability: float, coin: float, candidate: float, mode: str) -> None:
    event = Event(noise_multiplier=1.0, sampling_probability=probability, coin=coin)
    assert (event.candidate_probability, event.mode) == (candidate, mode)
    assert event.sensitivity == 1.0
    assert replace(event, adjacency="replace-one").sensitivity == 2.0


def test_events_survive_json_and_nothing_else_passes() -> None:
    event = make_sampling("secret_poisson", population=6000, cohort=100, roster=1000).event(1.54, honest=900)
    table = json.loads(json.dumps(event.to_json()))
    assert Event.from_json(table) == event
    assert Event.from_json({name: value for name, value in table.items() if name != "failure"}) == event  # older ones
    for name in table.keys() - {"failure"}:
        with pytest.raises(InvalidInput, match=f"missing: {name};"):
            Event.from_json({key: value for key, value in table.items() if key != name})
    with pytest.raises(InvalidInput, match="unknown: colour"):
        Event.from_json(table | {"colour": "blue"})
    no_table: Any = [1, 2]
    with pytest.raises(InvalidInput, match="not an accounting event"):
        Event.from_json(no_table)


def test_events_survive_the_ledger(tmp_path: Any) -> None:
    event = make_sampling(None, population=6000, cohort=100).event(1.54, honest=128)
    with contextlib.closing(Ledger(tmp_path / "ledger.jsonl", run="one")) as ledger:
        ledger.intend(1, 0, event)
    assert Ledger.read(tmp_path / "ledger.jsonl").events == (event,)


@pytest.mark.parametrize("delta", [0.0, 1.0, 2.0, -1e-5, math.nan])
def test_bad_delta_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        released_epsilon([FASHION], delta)
    with pytest.raises(ValueError, match="delta"):
        require_small_delta(delta, 10, allow_large=True)


def test_delta_that_would_allow_publishing_a_client() -> None:
    require_small_delta(1e-5, 6000)
    require_small_delta(0.2, 10, allow_large=True)
    with pytest.raises(InvalidInput, match=r"with 10 clients it must be below 0\.1"):
        require_small_delta(0.1, 10)
