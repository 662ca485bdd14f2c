"""A head that states risks: the last rounds fit slope and intercept, all others learn the weights."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import scipy.special
import torch

import lowkey
from lowkey.errors import InvalidInput
from lowkey.learning import FullGradient, RiskHead, fit_line, line_moments, line_of_moments, model_shape, risk_metrics
from lowkey.server import TailAverage

CLIENTS, FEATURES = 40, 4
PRIVACY = lowkey.ClientPrivacy(clip="normalise", epsilon=500.0, rounds=12, dropouts=0.0, colluders=0.0)


def data() -> list[Any]:
    """Rows of norm at most 1, and an event of about one in nine."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(CLIENTS):
        rows = rng.uniform(-0.5, 0.5, (120, FEATURES)).astype(np.float32)
        chance = scipy.special.expit(4 * rows[:, 0] - 2.3)
        made.append((rows, (rng.random(120) < chance).astype(np.float32)))
    return made


def learned(head: RiskHead, name: str = "fl-std", *, rounds: int = 12, calibration: int = 4, **changes: Any) -> Any:
    privacy = replace(PRIVACY, **changes) if name.endswith("-dp") else None
    server = lowkey.Plain(rate=40.0 if privacy is None else 1.0)
    scheme = lowkey.scheme(
        name, clients=CLIENTS, cohort=CLIENTS, privacy=privacy, server=server, averaging=TailAverage(start=5)
    )
    return lowkey.simulate(
        scheme=scheme, model=head, clients=data(), test=data()[0], rounds=rounds, calibration=calibration,
        training=FullGradient(balanced=True), workers=0,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["fl-std", "fl-std-dp"])
def test_risks_are_those_of_the_data_although_classes_were_balanced(name: str) -> None:
    head = RiskHead(FEATURES, bias=False, frequency=0.1)
    learned(head, name)
    rows, died = (np.concatenate(part) for part in zip(*data(), strict=True))
    risk = head.risk(torch.from_numpy(rows)).detach().numpy()[:, 0]
    assert head.is_calibrated
    assert float(risk.mean()) == pytest.approx(float(died.mean()), rel=0.15)
    slope, _ = fit_line(scipy.special.logit(risk.astype(np.float64)), died > 0)
    assert slope == pytest.approx(1.0, abs=0.25)
    alarms = head(torch.from_numpy(rows)).detach().numpy()[:, 0] > 0
    assert 0.3 < alarms.mean() < 0.7, "the output itself stays that of balanced classes"


def test_calibration_fits_the_average_that_is_released_and_moves_nothing_else() -> None:
    without, with_it = RiskHead(FEATURES, bias=False), RiskHead(FEATURES, bias=False)
    learned(without, rounds=8, calibration=0)
    learned(with_it, rounds=12, calibration=4)
    torch.testing.assert_close(without.weight, with_it.weight)
    assert not without.is_calibrated
    rows = [line_moments(x @ with_it.weight.detach().numpy()[0].astype(float), y > 0, np.array(with_it.start))
            for x, y in data()]  # fmt: skip
    expected = line_of_moments(np.mean(rows, axis=0), np.array(with_it.start))
    assert with_it.line == pytest.approx(tuple(expected), abs=1e-2)


def test_masked_sums_are_the_plain_ones() -> None:
    kinds: tuple[Literal["plain", "masked"], ...] = ("plain", "masked")
    found = []
    for kind in kinds:
        privacy = replace(PRIVACY, aggregation=kind)
        scheme = lowkey.scheme("fl-std-dp", clients=CLIENTS, cohort=CLIENTS, privacy=privacy)
        result = lowkey.simulate(
            scheme=scheme, model=RiskHead(FEATURES, bias=False), clients=data(), rounds=3, calibration=1, workers=0,
            training=FullGradient(balanced=True), secrets=lowkey.rng.ReplaySecrets(3),
        )  # fmt: skip
        found.append(result.weights)
    np.testing.assert_array_equal(found[0], found[1])


PERSONS = replace(PRIVACY, unit="person", row="stay", persons=120 * CLIENTS, clip="fixed", clip_norm=1.0)


def test_persons_are_bounded_each_by_itself_and_the_line_is_that_of_all_rows() -> None:
    head = RiskHead(FEATURES, bias=False, frequency=0.05)
    server = lowkey.Plain(rate=20.0)
    scheme = lowkey.scheme("fl-std-dp", clients=CLIENTS, cohort=CLIENTS, privacy=PERSONS, server=server)
    lowkey.simulate(
        scheme=scheme, model=head, clients=data(), rounds=12, calibration=4, workers=0,
        training=FullGradient(positive_weight=8.0),
    )  # fmt: skip
    rows, died = (np.concatenate(part) for part in zip(*data(), strict=True))
    scores = rows @ head.weight.detach().numpy()[0].astype(float)
    assert np.abs(scores).max() > 1.5
    expected = line_of_moments(line_moments(scores, died > 0, np.array(head.start)), np.array(head.start))
    assert head.line == pytest.approx(tuple(expected), abs=0.05)
    assert np.linalg.norm(expected - head.start) > 0.3


def test_the_bound_of_persons_is_in_the_terms_of_the_last_rounds() -> None:
    scheme = lowkey.scheme("fl-std-dp", clients=CLIENTS, cohort=CLIENTS, privacy=PERSONS)
    made = scheme.for_model(model_shape(RiskHead(FEATURES)), rounds=12, calibration=4)
    rules = [made.at(number).terms(FEATURES + 6, number).clip_rule for number in (1, 12)]
    assert [float(rule.split()[0]) for rule in rules] == [1.0, 3.0]
    assert made.at(1).privacy.event() == made.at(12).privacy.event()
    with pytest.raises(InvalidInput, match=r"the clip norm of the request is 1.0; 3.0 was agreed"):
        made.at(12).privacy.require_clip(1.0)


def test_every_round_costs_the_same() -> None:
    result = learned(RiskHead(FEATURES, bias=False), "fl-std-dp")
    epsilons = [record.epsilon.claimed for record in result.records]
    assert epsilons == sorted(epsilons)
    usual = lowkey.simulate(
        scheme=lowkey.scheme("fl-std-dp", clients=CLIENTS, cohort=CLIENTS, privacy=PRIVACY),
        model=lowkey.LinearHead(FEATURES, 1), clients=data(), rounds=12, workers=0,
    )  # fmt: skip
    assert usual.epsilon is not None
    assert epsilons[-1] == pytest.approx(usual.epsilon.claimed)


def test_moments_have_norm_1_and_one_step_from_there_is_newtons() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=500)
    positive = rng.random(500) < scipy.special.expit(0.7 * scores - 1)
    start = np.array([1.0, -1.2])
    moments = line_moments(scores, positive, start)
    assert np.linalg.norm(moments) == pytest.approx(1)
    once = line_of_moments(moments, start)
    best = fit_line(scores, positive)
    assert np.linalg.norm(once - best) < 0.1 * np.linalg.norm(start - best)
    assert np.linalg.norm(line_moments(scores, positive, best)[:2]) < 1e-9


def test_moments_that_noise_made_impossible_move_the_line_a_little_only() -> None:
    line = line_of_moments(np.array([0.3, 0.3, -0.5, 0.1, -0.2]), np.array([1.0, -3.0]))
    assert np.isfinite(line).all()
    assert np.linalg.norm(line - [1.0, -3.0]) <= 2.0 + 1e-9


def test_metrics_of_risks() -> None:
    logits = torch.tensor([-2.0, -1.0, 0.5, 1.5, -0.5, 2.0, -1.5, 0.0])
    happened = torch.tensor([0, 0, 1, 1, 1, 1, 0, 0])
    found: Any = risk_metrics(logits, logits - 1, happened)
    risk = torch.sigmoid(logits - 1)
    assert found["brier"] == pytest.approx(float(((risk - happened) ** 2).mean()), rel=1e-5)
    assert found["calibration"][0][1] == pytest.approx(float(risk[0]), rel=1e-4)  # the model's own risk
    slope, intercept = fit_line((logits - 1).double().numpy(), happened.numpy() > 0)
    assert (found["calibration_slope"], found["calibration_intercept"]) == pytest.approx((slope, intercept))


def test_refusals() -> None:
    scheme = lowkey.scheme("fl-std", clients=4, cohort=4)
    shape = model_shape(RiskHead(3))
    with pytest.raises(InvalidInput, match="no slope and intercept"):
        scheme.for_model(model_shape(lowkey.LinearHead(3, 1)), rounds=9, calibration=2)
    with pytest.raises(InvalidInput, match="must leave rounds to learn"):
        scheme.for_model(shape, rounds=2, calibration=2)
    with pytest.raises(InvalidInput, match="parts that SGD does not learn"):
        lowkey.simulate(
            scheme=scheme, model=RiskHead(3), clients=[([[0.0] * 3], [0])] * 4, rounds=1, training=lowkey.LocalSGD()
        )
    with pytest.raises(InvalidInput, match="frequency"):
        RiskHead(3, frequency=1.0)
    assert RiskHead(3, frequency=0.5).line == pytest.approx((1.0, 0.0))
    assert RiskHead(3).line == pytest.approx((1.0, math.log(1 / 19)))
