"""ε against published and independently computed values."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from lowkey.errors import InvalidInput
from lowkey.privacy import Event, PoissonSampling, affordable_rounds, calibrate_noise, claimed_epsilon, epsilon

DELTA = 1e-5
FASHION = {"noise_multiplier": 1.54, "sampling_probability": 1 / 60, "population": 6000}
MEDICAL = {"noise_multiplier": 1.49, "sampling_probability": 100 / 5011, "population": 5011}
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


@pytest.mark.parametrize(
    ("setting", "table"), [(FASHION, FASHION_TABLE), (MEDICAL, MEDICAL_TABLE)], ids=["fashion", "medical"]
)
def test_three_accountants(setting: dict[str, float], table: dict[int, tuple[float, float, float]]) -> None:
    for rounds, expected in table.items():
        spent = epsilon([Event(**setting, count=rounds)], DELTA)  # type: ignore[arg-type]
        assert (spent.paper, spent.rdp, spent.pld) == pytest.approx(expected, abs=5e-4)


def test_the_papers_own_figures() -> None:
    for rounds, published in PUBLISHED.items():
        assert round(epsilon([Event(**FASHION, count=rounds)], DELTA).paper, 2) == published


def test_ordering_on_random_settings() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        event = Event(
            sampling_probability=float(np.exp(rng.uniform(np.log(1e-3), 0))),
            noise_multiplier=float(rng.uniform(0.7, 5)),
            count=int(rng.integers(1, 500)),
        )
        spent = epsilon([event], DELTA)
        assert spent.pld <= spent.rdp * (1 + 1e-9) + 1e-4
        assert spent.rdp <= spent.paper * (1 + 1e-9)


def test_no_sampling_is_the_gaussian_mechanism() -> None:
    """k participations at z compose exactly to μ = √k / z; values from the closed form."""
    for k, expected in ((1, 2.6727), (3, 5.0181), (10, 10.3277)):
        spent = claimed_epsilon([Event(noise_multiplier=1.54, sampling_probability=1.0, count=k)], DELTA)
        assert spent == pytest.approx(expected, abs=1e-3)


def test_rounds_add_up_in_any_order() -> None:
    one, other = Event(**FASHION, count=30), Event(noise_multiplier=2.0, sampling_probability=0.1, count=5)
    together = epsilon([one, other], DELTA)
    apart = epsilon([other, *[Event(**FASHION)] * 30], DELTA)
    assert together == apart
    assert together.pld > max(epsilon([one], DELTA).pld, epsilon([other], DELTA).pld)
    assert epsilon([], DELTA).pld == 0.0


@pytest.mark.parametrize(("setting", "expected"), [(FASHION, 3.3534), (MEDICAL, 3.3732)], ids=["fashion", "medical"])
def test_fixed_size_is_accounted_as_such(setting: dict[str, float], expected: float) -> None:
    rounds = 200 if setting is FASHION else 100
    spent = epsilon([Event(kind="fixed", adjacency="replace-one", **setting, count=rounds)], DELTA)  # type: ignore[arg-type]
    assert spent.pld == pytest.approx(expected, abs=5e-3)
    assert spent.rdp == pytest.approx(4.9076 if setting is FASHION else 4.9931, abs=5e-4)
    assert spent.paper is None
    assert spent.pld >= 3.08


def test_dp_accounting_still_needs_half_the_multiplier_for_replacing_one() -> None:
    """If this fails, dp-accounting has mended issue 378: remove the halving in accounting._rdp."""
    rdp = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    rdp.compose(dp_accounting.GaussianDpEvent(1.54))
    assert rdp.get_epsilon(DELTA) == pytest.approx(2.8980, abs=1e-3)
    pld = PLDAccountant(NeighboringRelation.REPLACE_ONE)
    pld.compose(dp_accounting.GaussianDpEvent(1.54))
    assert pld.get_epsilon(DELTA) == pytest.approx(5.9414, abs=1e-3)


def test_mixed_sampling_is_refused() -> None:
    with pytest.raises(InvalidInput, match="different neighbours"):
        epsilon([Event(**FASHION), Event(kind="fixed", adjacency="replace-one", **FASHION)], DELTA)


@pytest.mark.parametrize(("q", "rounds", "expected"), [(1 / 60, 200, 1.2245), (100 / 5011, 100, 1.1615)])
def test_calibrated_noise(q: float, rounds: int, expected: float) -> None:
    sampling = PoissonSampling(population=6000 if rounds == 200 else 5011, probability=q)
    z = calibrate_noise(sampling, target_epsilon=1.0, delta=DELTA, rounds=rounds)
    assert z == pytest.approx(expected, abs=1.01e-4)

    def spent(noise: float) -> float:
        return claimed_epsilon([Event(noise_multiplier=noise, sampling_probability=q, count=rounds)], DELTA)

    assert spent(z) <= 1.0 < spent(z - 0.001)


def test_affordable_rounds() -> None:
    event = Event(**FASHION)
    assert affordable_rounds(event, target_epsilon=1.0, delta=DELTA) == 431
    assert affordable_rounds(Event(**MEDICAL), target_epsilon=1.0, delta=DELTA) == 264
    before = [Event(**FASHION, count=400)]
    assert affordable_rounds(event, target_epsilon=1.0, delta=DELTA, spent=before) == 31
    assert affordable_rounds(event, target_epsilon=0.05, delta=DELTA) == 0


def test_claim_is_rounded_up() -> None:
    spent = epsilon([Event(**FASHION, count=200)], DELTA)
    assert spent.claimed >= spent.pld
    assert spent.claimed == pytest.approx(0.6806, abs=1e-9)


@pytest.mark.parametrize(
    "bad",
    [
        {"noise_multiplier": 0.0},
        {"noise_multiplier": -1.0},
        {"noise_multiplier": math.nan},
        {"noise_multiplier": math.inf},
        {"sampling_probability": 0.0},
        {"sampling_probability": 1.1},
        {"sampling_probability": math.nan},
        {"count": 0},
        {"kind": "shuffled"},
        {"kind": "fixed", "adjacency": "replace-one", "population": None},
    ],
)
def test_bad_events_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must|accounted"):
        Event(**(FASHION | bad))  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", [0.0, 1.0, 2.0, -1e-5, math.nan])
def test_bad_delta_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        epsilon([Event(**FASHION)], delta)
