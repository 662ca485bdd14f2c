"""Rules of private heads, and presets that must keep to them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from lowkey.errors import InvalidInput
from lowkey.experiments import Config, load_config
from lowkey.federation import projection_by_rule, rounds_by_rule, vectors_up, widths_by_rule
from lowkey.federation.rules import (
    CALIBRATION_ROUNDS,
    CENTRING,
    LARGEST_STEP,
    LARGEST_STEP_OF_PERSONS,
    LEAST_ROUNDS,
    MOST_SAMPLED_ROUNDS,
    NOISE_IN_A_SCORE,
    NOISE_OF_PERSONS,
    average_by_rule,
    noise_in_a_score,
    rate_by_rule,
    rounds_that_learn,
    total_noise,
)
from lowkey.learning import FullGradient, model_shape
from lowkey.privacy import ClientMechanism, ClientPrivacy
from lowkey.server import Plain, TailAverage

EVERYBODY = [
    "fashion-mnist/private",
    "hospital/sih-sus/private",
    "hospital/diabetes130/private",
    "hospital/synthetic/private",
]
SMALL = "fashion-mnist/private-small"
SMALL_LIMIT = 0.5e6 / 8
PROMISE = ClientPrivacy(clip="normalise", epsilon=1.0)


def mechanism(settings: ClientPrivacy, clients: int, cohort: int, rounds: int) -> ClientMechanism:
    resolved = settings.resolve(clients=clients, cohort=cohort, rounds=rounds)
    return ClientMechanism(settings=resolved, sampling=resolved.sampling_of(clients=clients, cohort=cohort))


def within_half_a_megabit(config: Config) -> tuple[int, int]:
    """Features and rounds that the rule gives the small preset."""

    def upload(features: int, learning: int) -> float:
        study = replace(config.study, model=replace(config.model, features=features))
        shape = model_shape(config.find_task().model(study))
        return vectors_up(config.scheme().for_model(shape, rounds=learning + 1), shape.size, learning + 1)

    features, learning = projection_by_rule(SMALL_LIMIT, widths_by_rule(3969), upload)
    return features, learning + 1


def departures(name: str, *changes: str) -> set[str]:
    """Settings of a preset that differ from their rules."""
    config = load_config(name, changes)
    privacy, schedule, training = config.privacy, config.schedule, config.training
    assert privacy is not None
    images, calibration = config.task == "fashion-mnist", schedule.calibration
    federation = config.federation
    made = ClientMechanism(
        settings=privacy, sampling=privacy.sampling_of(clients=federation.clients, cohort=federation.cohort)
    )
    learning = rounds_that_learn(schedule.last_round, privacy, calibration)
    found: dict[str, tuple[Any, Any]] = {
        "privacy.clip": (privacy.clip, "normalise"),
        "privacy.centring": (privacy.centring, CENTRING if images else 0.0),
        "schedule.calibration": (calibration, 0 if images else CALIBRATION_ROUNDS),
        "training.steps": (isinstance(training, FullGradient) and training.steps, 1),
        "averaging": (config.averaging, TailAverage(start=average_by_rule(schedule.last_round, privacy, calibration))),
        "server": (config.server, Plain(rate=rate_by_rule(made, learning))),
    }
    if name == SMALL:
        found["features, rounds"] = ((config.model.features, schedule.last_round), within_half_a_megabit(config))
    else:
        fresh = replace(privacy, noise_multiplier="auto", centring_noise="auto", max_contributions="auto")
        rounds = rounds_by_rule(fresh, clients=federation.clients, calibration=calibration)
        found["schedule.rounds"] = (schedule.last_round, rounds)
        found["federation.cohort"] = (federation.cohort, federation.clients)
    return {setting for setting, (is_set, by_rule) in found.items() if is_set != by_rule}


@pytest.mark.parametrize("name", [*EVERYBODY, SMALL])
def test_presets_keep_to_the_rules(name: str) -> None:
    assert departures(name) == set()


@pytest.mark.parametrize(
    ("name", "change", "named"),
    [
        (EVERYBODY[0], "schedule.rounds=100", "schedule.rounds"),
        (EVERYBODY[0], "server.rate=3.0", "server"),
        (EVERYBODY[0], "averaging.start=9", "averaging"),
        (EVERYBODY[0], "privacy.centring=0.1", "privacy.centring"),
        (EVERYBODY[0], "training.steps=2", "training.steps"),
        (EVERYBODY[1], "schedule.calibration=3", "schedule.calibration"),
        (SMALL, "schedule.rounds=201", "features, rounds"),
        (SMALL, "model.features=500", "features, rounds"),
    ],
)
def test_a_preset_with_a_setting_of_its_own_is_noticed(name: str, change: str, named: str) -> None:
    assert named in departures(name, change)


def test_the_small_preset_is_what_half_a_megabit_allows() -> None:
    assert within_half_a_megabit(load_config(SMALL)) == (400, 229)


@pytest.mark.parametrize(("clients", "cohort"), [(227, 227), (6000, 6000), (6000, 100)])
def test_noise_in_a_score_is_kappa(clients: int, cohort: int) -> None:
    made = mechanism(PROMISE, clients, cohort, 400)
    rate = rate_by_rule(made, 400)
    assert noise_in_a_score(made, 400, rate=rate) == pytest.approx(NOISE_IN_A_SCORE)
    per_round = rate * total_noise(made) / cohort  # of a mean over the cohort, in each number
    assert math.sqrt(400 * per_round**2) == pytest.approx(NOISE_IN_A_SCORE)


def test_few_rounds_or_little_noise_make_no_steps_that_overshoot() -> None:
    """Of three hospitals with 3,000 patients, 20 rounds and the rate that noise alone allows ranked them worse."""
    assert rate_by_rule(mechanism(PROMISE, 6000, 6000, 20), 20) == LARGEST_STEP
    persons = replace(
        PROMISE, unit="person", persons=3000, clip="fixed", clip_norm=2.0, epsilon=8.0, dropouts=0.0, colluders=0.0
    )
    few = mechanism(persons, 3, 3, 20)
    assert rate_by_rule(few, 20) == 2.0 * LARGEST_STEP_OF_PERSONS
    many = mechanism(persons, 3, 3, 2000)
    assert noise_in_a_score(many, 2000, rate=rate_by_rule(many, 2000)) == pytest.approx(NOISE_OF_PERSONS)


def test_more_clients_have_more_rounds_and_never_fewer_than_sixty() -> None:
    rounds = [rounds_by_rule(PROMISE, clients=clients) for clients in (10, 227, 410, 3000, 6000, 12000)]
    assert rounds == sorted(rounds)
    assert rounds[:3] == [LEAST_ROUNDS] * 3
    assert LEAST_ROUNDS < rounds[3] < rounds[4] < rounds[5]
    assert rounds_by_rule(replace(PROMISE, centring=0.05), clients=10, calibration=6) == LEAST_ROUNDS + 7


def test_rounds_by_rule_are_for_everybody() -> None:
    with pytest.raises(InvalidInput, match="everybody in every round"):
        rounds_by_rule(replace(PROMISE, sampling="poisson_padded"), clients=100)


def test_widths() -> None:
    assert widths_by_rule(350) == [350, 300, 200, 100]
    assert widths_by_rule(300) == [300, 200, 100]
    assert widths_by_rule(70) == [70]
    with pytest.raises(InvalidInput, match="features is 0"):
        widths_by_rule(0)


def test_projection_within_a_limit() -> None:
    def upload(features: int, rounds: int) -> float:
        return 50 + features * rounds

    assert projection_by_rule(50 + 300 * 200, [400, 300, 200], upload) == (300, 200)
    assert projection_by_rule(50 + 300 * 200 - 1, [400, 300, 200], upload) == (200, 299)
    assert projection_by_rule(1e9, [400, 300], upload) == (400, MOST_SAMPLED_ROUNDS)
    assert projection_by_rule(50 + 300 * 20, [400, 300], upload, rounds=20) == (300, 20)
    with pytest.raises(InvalidInput, match=r"200 rounds of 300 features take 0\.48 Mbit; raise the limit"):
        projection_by_rule(300 * 200, [400, 300], upload)
    with pytest.raises(InvalidInput, match="the upload limit is 0"):
        projection_by_rule(0, [100], upload)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("hospital/synthetic/private", ["schedule.rounds=6"], "6 are for schedule.calibration; set more"),
        ("demo/private", ["schedule.rounds=1"], "0 are for schedule.calibration and one is for the centre"),
    ],
)
def test_rounds_of_which_none_learns_are_refused(name: str, changes: list[str], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        load_config(name, changes)
