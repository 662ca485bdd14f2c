"""``lowkey encoder``: from a schema to an encoder, to rows of features; and exit code 2 for what does not fit."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from examples.three_hospitals.make import write_tables
from lowkey.tabular import Cost, apply, load_encoder
from tests.cli.command import lowkey
from tests.cli.test_cli import error_of, json_of
from tests.tabular.test_fitting import ANSWERS, written

EXAMPLE = Path(__file__).parents[2] / "examples" / "three_hospitals"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    shutil.copy(EXAMPLE / "schema.toml", tmp_path)
    write_tables(tmp_path)
    return tmp_path


def test_a_public_encoder_from_schema_to_rows(place: Path) -> None:
    assert lowkey("encoder", "questions", "schema.toml", cwd=place).stdout.startswith("# nothing to ask")
    made = lowkey("encoder", "fit", "schema.toml", cwd=place)
    assert made.returncode == 0, made.stderr
    encoder = load_encoder(place / "encoder.json")
    assert encoder.digest in made.stdout
    shown = lowkey("encoder", "show", "encoder.json", cwd=place).stdout
    for words in (
        encoder.digest,
        "nothing: everything in it is public",
        "number from 0 to 20, 10 where it is missing, and one for missing",
        "category: 2 listed (f, m), one for others, and one for missing",
        "category: hashed to 16 columns",
        "codes: 6 listed (aspirin, heparin, insulin, morphine, noradrenaline, …), one for others",
    ):
        assert words in shown
    options = ("--label", "died", "--person", "patient", "--out", "rows.npz")
    text = lowkey("encoder", "apply", "encoder.json", "a.csv", *options, cwd=place).stdout
    assert "643" in text
    assert "age  all fields fit" in text
    found, expected = np.load(place / "rows.npz"), apply(encoder, place / "a.csv", label="died", person="patient")
    rows = sparse.load_npz(place / "rows.npz")
    np.testing.assert_array_equal(rows.toarray(), expected.rows.toarray())
    np.testing.assert_array_equal(found["labels"], expected.labels)
    np.testing.assert_array_equal(found["persons"], expected.persons)
    assert (place / "rows.npz").stat().st_mode & 0o077 == 0


def test_what_a_table_holds_is_counted_for_its_owner(place: Path) -> None:
    lowkey("encoder", "fit", "schema.toml", cwd=place)
    found = json_of("encoder", "apply", "encoder.json", "c.csv", cwd=place)
    assert (found["rows"], found["features"], found["events"]) == (2085, 31, None)
    assert found["columns"]["lactate"]["missing"] == pytest.approx(0.4 * 2085, abs=90)
    assert found["columns"]["drugs"]["unknown"] == 0
    assert {file.name for file in place.iterdir()} == {"a.csv", "b.csv", "c.csv", "schema.toml", "encoder.json"}


def test_answers_make_an_encoder_that_says_what_it_cost(tmp_path: Path) -> None:
    schema = written(tmp_path)
    asked = tomllib.loads(lowkey("encoder", "questions", schema).stdout)["questions"]
    assert asked == json_of("encoder", "questions", schema)
    assert [question["kind"] for question in asked] == ["quantiles", "frequencies", "codes", "missingness"]
    answers = tmp_path / "answers.json"
    answers.write_text(json.dumps([answer.to_json() for answer in ANSWERS]))
    out = tmp_path / "encoder.json"
    cost = ("--epsilon", "0.2", "--delta", "1e-5", "--unit", "client", "--run", "stats/1")
    found = json_of("encoder", "fit", schema, "--answers", answers, "--out", out, *cost)
    encoder = load_encoder(out, found["sha256"])
    assert encoder.cost == Cost(epsilon=0.2, delta=1e-5, unit="client", run="stats/1")
    assert len(found["notes"]) == 3
    shown = lowkey("encoder", "show", out).stdout
    assert "ε = 0.2000, δ = 1e-05, per client, run stats/1" in shown
    assert "The limits of lactate are a private answer." in shown
    assert json_of("encoder", "show", out)["features"] == encoder.width
    untold = lowkey("encoder", "fit", schema, "--answers", answers, "--out", out).stdout
    assert "not known: nobody told an ε" in untold


def test_mistakes_are_named(place: Path) -> None:
    lowkey("encoder", "fit", "schema.toml", cwd=place)
    assert "nowhere.json cannot be read" in error_of("encoder", "show", "nowhere.json", cwd=place)
    assert "neither a .csv nor" in error_of("encoder", "apply", "encoder.json", "schema.toml", cwd=place)
    assert "no column 'dead'" in error_of("encoder", "apply", "encoder.json", "a.csv", "--label", "dead", cwd=place)
    assert "nowhere.toml cannot be read" in error_of("encoder", "fit", "nowhere.toml", cwd=place)
    schema = written(place)
    assert "the answers lack 'limits of lactate'" in error_of("encoder", "fit", schema, "--out", place / "x.json")
    assert not (place / "x.json").exists()


def test_a_run_that_asked_gives_answers_and_their_cost_and_training_counts_both(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    for file in (EXAMPLE / "asking").glob("*.toml"):
        shutil.copy(file, place)
    with (place / "stats.toml").open("a") as stats_file:
        stats_file.write(lowkey("encoder", "questions", "schema.toml", cwd=place).stdout)
    ledger = ("--set", f"federation.ledger={place / 'ledger.jsonl'}", "--set", "runtime.workers=0")
    stats = json_of("stats", "stats.toml", "--quiet", "--out", "runs/stats", *ledger, cwd=place)
    fit = ("encoder", "fit", "schema.toml", "--from", "runs/stats")
    assert "--from takes answers and costs" in error_of(*fit, "--epsilon", "1", cwd=place)
    json_of(*fit, cwd=place)
    cost = load_encoder(place / "encoder.json").cost
    assert cost.epsilon == pytest.approx(stats["epsilon_pld"])
    assert (cost.delta, cost.unit) == (1e-5, "person")
    assert str(cost.run).startswith("stats/")
    train = ("run", "study.toml", "--quiet")
    assert "name their ledger" in error_of(*train, cwd=place)
    little = error_of(*train, *ledger, "--set", "privacy.spent=0.1", "--out", "runs/little", cwd=place)
    assert "privacy.spent is 0.1, but the runs in" in little
    study = json_of(*train, *ledger, "--out", "runs/study", cwd=place)
    assert study["stopped"] == "rounds"
    assert stats["epsilon_pld"] < study["epsilon_pld"] <= 3
