"""``data.encoding = "private"``: ranges are asked for first, once, within the same ε."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lowkey.analytics import RANGE_BINS, Answer, Estimate
from lowkey.errors import ConfigError, RunError
from lowkey.experiments import Config, RunDirectory, build, load_config, prospects
from lowkey.privacy import Entry, Ledger, claimed_epsilon, make_sampling
from lowkey.simulation import evaluate_run, evaluation_config, run
from lowkey.tasks import TASKS, Study
from lowkey.tasks.mortality import AdmissionSettings
from lowkey.tasks.mortality.ranges import TAILS, answered

CLIENTS = 100
SMALL = (
    'data={scale=0.02, encoding="private"}',
    f"federation.clients={CLIENTS}",
    f"federation.cohort={CLIENTS}",
    "schedule={rounds=4, calibration=1}",
    "runtime.workers=0",
)


def private(*changes: str, epsilon: float = 20.0) -> Config:
    return load_config("hospital/synthetic/private", [*SMALL, f"privacy.epsilon={epsilon}", *changes])


def events(directory: Path) -> list[Entry]:
    with Ledger.read(directory / "ledger.jsonl") as ledger:
        return list(ledger.entries)


def test_ranges_are_found_and_all_is_within_one_budget(tmp_path: Path) -> None:
    """Of 100 hospitals at ε = 20: the quartiles of age are about 50 and 74, so that limits are about 33 and 91."""
    config, out = private("privacy.asking=0.5"), tmp_path / "run"
    result = run(config, out)
    data = RunDirectory.open(out).config.data
    assert data.encoding == "private"
    (age, *limits), (mrci, *_) = data.ranges
    assert (age, mrci) == ("age", "mrci")
    low, high, middle = limits
    assert 15 < low < 45 < 55 < middle < 70 < 80 < high < 105

    entries = events(out)
    runs = [entry.run for entry in entries]
    assert len(entries) == 2 + 4
    assert runs[0] == runs[1] != runs[2]
    assert len(set(runs)) == 2
    spent = claimed_epsilon([entry.event for entry in entries], 1e-5)
    assert result["epsilon_pld"] == pytest.approx(spent, rel=1e-6)
    assert 14 < result["epsilon_pld"] <= result["epsilon_server_limit"] <= 20


def test_rounds_have_the_noise_that_leaves_room_for_the_ranges() -> None:
    """Two questions with one spare attempt, and five attempts at rounds, are ε together, and no less noise would do."""
    config = private(epsilon=1.0)
    privacy = config.privacy
    assert privacy is not None
    everybody = make_sampling("all", population=CLIENTS, cohort=CLIENTS)

    def total(noise: float) -> float:
        asked, learned = everybody.event(float(privacy.asking_noise)), everybody.event(noise)
        return claimed_epsilon([replace(asked, count=3), replace(learned, count=5)], privacy.delta)

    noise = float(privacy.noise_multiplier)
    assert total(noise) <= 1 < total(noise - 2e-3)
    assert privacy.max_contributions == 5
    asking = config.asking(Path("ledger.jsonl"))
    assert asking.privacy is not None
    assert asking.privacy.asking_noise == privacy.asking_noise
    assert asking.privacy.max_contributions == 3
    public = private('data={scale=0.02, encoding="public"}', epsilon=1.0).privacy
    assert public is not None
    assert float(public.noise_multiplier) < noise


def test_resuming_asks_and_spends_nothing_again(tmp_path: Path) -> None:
    config, out = private(), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(config, out, observers=[stop_after(2)])
    before, ranges = events(out), RunDirectory.open(out).config.data.ranges
    assert len(before) == 2 + 2
    run(config, out, resume=True)
    after = events(out)
    assert after[:4] == before
    assert len(after) == 2 + 4
    stored = load_config(RunDirectory.open(out).config)
    run(stored, out, resume=True)
    assert events(out) == after
    assert RunDirectory.open(out).config.data.ranges == ranges
    with pytest.raises(RunError, match="add --resume"):
        run(config, out)


def stop_after(rounds: int) -> Callable[[Any], None]:
    def observer(metrics: Any) -> None:
        if metrics["round"] == rounds:
            raise KeyboardInterrupt

    return observer


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_that_stopped_before_its_first_round_keeps_its_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resume: bool
) -> None:
    config, out = private(), tmp_path / "run"

    def interrupted(config: Config) -> object:
        if config.only_asks:
            return build(config)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lowkey.simulation.experiment.build", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(config, out)
    answers, before = json.loads((out / "encoder" / "answers.json").read_text()), events(out)
    assert len(before) == 2
    run(config, out, resume=resume)
    assert events(out)[:2] == before
    assert len(events(out)) == 2 + 4
    assert json.loads((out / "encoder" / "answers.json").read_text()) == answers


def test_the_model_of_such_a_run_can_be_evaluated(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(private(), out)
    config, place = evaluation_config(out, epsilon=40.0)
    assert config.data.ranges
    assert config.asked_before == ()
    evaluate_run(out, config, place)
    before, after = (RunDirectory.open(each).metrics()[-1] for each in (out, place))
    assert after["auroc_server"] == pytest.approx(before["auroc"])
    assert len(events(out)) == 2 + 4 + 1


def test_without_privacy_ranges_are_exact(tmp_path: Path) -> None:
    changes = [*SMALL[:3], "schedule={rounds=1, calibration=0}", "runtime.workers=0"]
    run(load_config("hospital/synthetic/head", changes), tmp_path / "run")
    (_, low, high, middle), _ = RunDirectory.open(tmp_path / "run").config.data.ranges
    assert middle == pytest.approx(62, abs=3)
    assert (low, high) == (pytest.approx(32, abs=5), pytest.approx(91, abs=5))


def test_from_quartiles_to_limits() -> None:
    settings = AdmissionSettings(name="diabetes130", encoding="private")

    def quartiles(name: str, *values: float) -> Answer:
        levels = zip(("0.25", "0.5", "0.75"), values, strict=True)
        found = {f"quantile {level}": Estimate(value, value, value) for level, value in levels}
        return Answer(question=f"limits of {name}", estimates=found)

    answers = [quartiles("age", 50, 60, 65), quartiles("medications", 2, 2, 90)]
    found = answered(Study(data=settings), answers).ranges
    assert found[0] == ("age", 60 - 10 * TAILS, 60 + 5 * TAILS, 60)
    assert found[1] == ("medications", 0, 100, 2)
    narrow = answered(Study(data=settings), [quartiles("age", 50, 50, 50), answers[1]]).ranges[0]
    assert narrow == ("age", 50 - 60 / RANGE_BINS, 50 + 60 / RANGE_BINS, 50)
    assert answered(Study(data=settings), ()).ranges == ()


@pytest.mark.parametrize("name", ["synthetic", "diabetes130", "sih-sus"])
def test_the_digest_has_the_limits_in_it(name: str) -> None:
    def features(**settings: object) -> str:
        study = Study(data=AdmissionSettings(name=name, **settings))  # type: ignore[arg-type]
        return TASKS["mortality"].features_of(study)

    one, other = (("age", 30.0, 90.0, 60.0),), (("age", 30.0, 91.0, 60.0),)
    made = [features(encoding="public"), *(features(encoding="public", ranges=ranges) for ranges in (one, other))]
    made.append(features(encoding="private"))
    assert len(set(made)) == 4
    assert features(encoding="private", ranges=one) == made[1]
    assert "sha256" not in made[-1]


def test_other_limits_make_other_numbers() -> None:
    """Age by limits of 30 and 90 is −1 at 30 and below, and 1 at 90, times the weight of a number."""

    def ages(*changes: str) -> list[float]:
        config = private('data={scale=0.02, encoding="public"}', *changes)
        rows, *_ = TASKS["mortality"].all_clients(config.study)[0]
        weight = abs(rows[:, [0]].toarray()).max() if changes else 1.0
        return sorted(set((rows[:, [0]].toarray().ravel() / weight).round(3)))

    found = ages('data.ranges=[["age", 40, 70, 60]]')
    assert found[0] == -1
    assert found[-1] == 1
    assert len(found) < len(ages())


def test_where_it_cannot_be_is_told() -> None:
    with pytest.raises(ConfigError, match=r"nodes need two apps.*lowkey stats.*data\.ranges"):
        load_config("hospital/synthetic/private", SMALL, nodes=5)
    with pytest.raises(ConfigError, match=r"no ranges were asked for yet.*lowkey stats"):
        build(private())
    with pytest.raises(ConfigError, match=r"data\.ranges is for data\.encoding"):
        private('data={scale=0.02, encoding="fitted", ranges=[["age", 1, 2, 1]]}')
    with pytest.raises(ConfigError, match=r"data\.ranges has 'height', which is no number"):
        build(private('data={scale=0.02, encoding="public", ranges=[["height", 1, 2, 1]]}'))
    with pytest.raises(ConfigError, match="no number among"):
        load_config("hospital/sih-sus/private", ['data.encoding="private"', 'data.features=["sex"]'])
    asked = load_config("hospital/synthetic/private", [*SMALL, 'data.encoding="public"'], nodes=5)
    assert asked.asked_before == ()


def test_the_price_before_the_first_round_has_the_ranges_in_it() -> None:
    config = private(epsilon=1.0)
    told = prospects(config, 7_286)
    assert told is not None
    assert "after 4 rounds and 2 answers" in told
    assert ", 1.0000 if 2 spare attempts are needed; 1.0000 for the server" in told
