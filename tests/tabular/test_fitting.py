"""From a schema to questions, and from answers to an encoder: private where an answer is above its noise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from examples.three_hospitals.make import write_tables
from lowkey.analytics import QUESTIONS, Answer, Estimate, Total
from lowkey.errors import ConfigError, DataError, InvalidInput
from lowkey.tabular import (
    Column,
    Cost,
    Encoder,
    Hashed,
    Limits,
    Listed,
    NumberPlan,
    Schema,
    TextPlan,
    confirmations,
    fit,
    questions,
    raw_columns,
    read_answers,
    read_schema,
    read_table,
)

TOML = """
missing = ["", "-"]

[columns.age]
kind = "number"
low = 18
high = 100

[columns.lactate]
kind = "number"
low = 0
high = 50
ask = true
bins = 20
missing = "ask"

[columns.sex]
kind = "category"
values = ["f", "m"]
missing = true

[columns.ward]
kind = "category"
values = ["er", "icu", "spa"]
ask = true
other = false

[columns.drugs]
kind = "codes"
separator = "|"
buckets = 64
prefixes = { 2 = 16 }
ask = true
alphabet = "abc"
characters = 9
missing = "ask"
"""


def written(tmp_path: Path, text: str = TOML) -> Path:
    (tmp_path / "schema.toml").write_text(text, encoding="utf-8")
    return tmp_path / "schema.toml"


def quantiles(low: float, median: float, high: float, width: float = 1.0) -> Answer:
    values = {"quantile 0.05": low, "quantile 0.5": median, "quantile 0.95": high}
    estimates = {name: Estimate(value, value - width, value + width) for name, value in values.items()}
    return Answer(question="limits of lactate", estimates=estimates)


def frequencies(column: str, shares: dict[str, float], noise: float = 0.05) -> Answer:
    lows, highs = ([share + sign * noise for share in shares.values()] for sign in (-1, 1))
    table: dict[str, list[Any]] = {"entry": list(shares), "share": list(shares.values()), "low": lows, "high": highs}
    return Answer(question=f"texts of {column}", tables={"frequencies": table})


def missing(lactate: float, drugs: float) -> Answer:
    table: dict[str, list[Any]] = {"column": ["lactate", "drugs"], "share": [0.1, 0.1], "low": [lactate, drugs]}
    return Answer(question="missing fields", tables={"missing": table})


CANDIDATES = Answer(question="texts of drugs", tables={"candidates": {"code": ["aspirin", "rare"]}})
NONE = Answer(question="texts of drugs", tables={"candidates": {}})
ANSWERS = [
    quantiles(0.5, 1.5, 12.0),
    frequencies("ward", {"er": 0.3, "icu": 0.6, "spa": 0.01}),
    CANDIDATES,
    missing(0.05, -0.05),
    frequencies("drugs confirmed", {"aspirin": 0.2, "rare": 0.04}),
]


def test_questions_ask_for_what_is_not_public(tmp_path: Path) -> None:
    assert questions(read_schema(written(tmp_path))) == [
        {
            "kind": "quantiles", "name": "limits of lactate", "column": "lactate", "low": 0.0, "high": 50.0, "bins": 20,
            "at": [0.05, 0.5, 0.95],
        },
        {"kind": "frequencies", "name": "texts of ward", "column": "ward", "vocabulary": ["er", "icu", "spa"]},
        {"kind": "codes", "name": "texts of drugs", "column": "drugs", "alphabet": "abc", "characters": 9},
        {"kind": "missingness", "name": "missing fields", "of": ["lactate", "drugs"]},
    ]  # fmt: skip


def test_answers_make_the_encoder(tmp_path: Path) -> None:
    cost = Cost(epsilon=0.2, delta=1e-5, unit="client", run="stats/1")
    found = fit(read_schema(written(tmp_path)), ANSWERS, cost)
    assert found == Encoder(
        columns=(
            Column(name="age", kind="number", rule=Limits(18.0, 100.0)),
            Column(name="lactate", kind="number", rule=Limits(0.5, 12.0, 1.5, True)),
            Column(name="sex", kind="category", rule=Listed(("f", "m"), True, True)),
            Column(name="ward", kind="category", rule=Listed(("icu", "er"))),
            Column(name="drugs", kind="codes", rule=Listed(("aspirin",), True), separator="|"),
        ),
        missing=("", "-"),
        cost=cost,
        notes=(
            "The limits of lactate are a private answer.",
            "The texts of ward are a private answer.",
            "The texts of drugs are a private answer.",
        ),
    )


def test_an_answer_below_its_noise_leaves_the_public_rule(tmp_path: Path) -> None:
    weak = [
        quantiles(0.5, 1.5, 12.0, width=6.0),
        frequencies("ward", {"er": 0.3, "icu": 0.6, "spa": 0.01}, noise=0.7),
        NONE,
        missing(-0.1, 0.01),
    ]
    found = fit(read_schema(written(tmp_path)), weak)
    rules = {column.name: column.rule for column in found.columns}
    assert rules["lactate"] == Limits(0.0, 50.0)
    assert rules["ward"] == Listed(("er", "icu", "spa"))
    assert rules["drugs"] == Hashed({2: 16, None: 64}, True)
    nobody = Answer(question="texts of drugs confirmed", tables={"frequencies": {}})
    assert fit(read_schema(written(tmp_path)), [*weak[:2], CANDIDATES, weak[3], nobody]) == found
    assert found.notes == (
        "The answer about the limits of lactate is not above its noise, so that the public limits stay.",
        "The answer about the texts of ward is not above its noise, so that the public list stays.",
        "The answer about the texts of drugs is not above its noise, so that the public hash stays.",
    )
    assert found.cost == Cost(epsilon=None, delta=None)


def test_what_is_public_needs_no_answer_and_costs_nothing() -> None:
    schema = Schema(columns=(NumberPlan(name="age", low=0, high=9, fill=3), TextPlan(name="sex", values=("f",))))
    assert questions(schema) == []
    found = fit(schema)
    assert found.cost == Cost(epsilon=0.0, delta=0.0)
    assert found.columns[0].rule == Limits(0.0, 9.0, 3.0)


def test_a_public_fill_beyond_private_limits_moves_to_them() -> None:
    plan = NumberPlan(name="lactate", low=0, high=50, ask=True, fill=40)
    assert fit(Schema(columns=(plan,)), ANSWERS).columns[0].rule == Limits(0.5, 12.0, 12.0)


def test_every_question_needs_its_own_answer(tmp_path: Path) -> None:
    schema = read_schema(written(tmp_path))
    with pytest.raises(InvalidInput, match="the answers lack 'limits of lactate', 'missing fields'"):
        fit(schema, ANSWERS[1:3])
    other = Answer(question="limits of lactate", tables=ANSWERS[1].tables)
    with pytest.raises(InvalidInput, match=r"'limits of lactate' has no quantile 0\.05"):
        fit(schema, [other, *ANSWERS[1:]])
    other = Answer(question="texts of ward", tables=ANSWERS[3].tables)
    with pytest.raises(InvalidInput, match="'texts of ward' has no table 'frequencies' with entry"):
        fit(schema, [ANSWERS[0], other, *ANSWERS[2:]])
    silent = Answer(question="missing fields", tables={"missing": {"column": ["drugs"], "low": [0.1]}})
    with pytest.raises(InvalidInput, match="says nothing about the column 'lactate'"):
        fit(schema, [*ANSWERS[:3], silent])
    with pytest.raises(InvalidInput, match="the candidates of 'texts of drugs' were not confirmed"):
        fit(schema, ANSWERS[:4])


def test_answers_are_read_from_their_file(tmp_path: Path) -> None:
    (tmp_path / "answers.json").write_text(json.dumps([answer.to_json() for answer in ANSWERS]))
    assert read_answers(tmp_path / "answers.json") == ANSWERS
    for content in ("", "5", '[{"question": "x"}]', "{}x", "[5]", '[{"question": 1, "estimates": [], "tables": {}}]'):
        (tmp_path / "answers.json").write_text(content)
        with pytest.raises(DataError, match=r"answers\.json holds no answers"):
            read_answers(tmp_path / "answers.json")
    with pytest.raises(DataError, match="cannot be read"):
        read_answers(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "number of columns is 0"),
        ("columns = 5", "columns must be tables"),
        ("colums = {}", "unknown key colums; did you mean 'columns'?"),
        ("missing = [5]\n[columns.a]\nkind='category'\nvalues=['x']", "missing lists something that is no text"),
        ("[columns]\na = 5", "columns.a is 5; it must be a table"),
        ("[columns.a]\nvalues = ['x']", "columns.a.kind is missing"),
        ("[columns.a]\nkind = 'date'\nvalues=['x']", "it must be one of number, category, codes"),
        ("[columns.a]\nkind = 'number'\nlow = 0", "columns.a.high is missing; a number needs public limits"),
        ("[columns.a]\nkind = 'number'\nlow = 'x'\nhigh = 1", "low of column 'a' is 'x'; it must be a number"),
        ("[columns.a]\nkind = 'number'\nlow = 2\nhigh = 1", "limits are 2.0 and 1.0"),
        ("[columns.a]\nkind = 'number'\nlow = 0\nhigh = inf", "limits are 0.0 and inf"),
        ("[columns.a]\nkind = 'number'\nlow = 0\nhigh = 1\nfill = 2", "fill is 2.0; it must lie between"),
        ("[columns.a]\nkind = 'number'\nlow = 0\nhigh = 1\nbins = 1", "bins of column 'a' is 1"),
        ("[columns.a]\nkind = 'number'\nlow = 0\nhigh = 1\nask = 1", "ask of column 'a' is 1; it must be one of True"),
        ("[columns.a]\nkind = 'number'\nlow = 0\nhigh = 1\nmissing = 'x'", "missing of column 'a' is 'x'"),
        ("[columns.a]\nkind = 'number'\nlow = 0\nhigh = 1\nvalues = ['x']", "unknown key columns.a.values"),
        ("[columns.a]\nkind = 'category'", "needs either values (a public list) or buckets"),
        ("[columns.a]\nkind = 'category'\nvalues = ['x']\nbuckets = 4", "needs either values"),
        ("[columns.a]\nkind = 'category'\nvalues = 'x'", "columns.a.values is 'x'; it must be a list"),
        ("[columns.a]\nkind = 'category'\nvalues = [1]", "values of column 'a' must be texts"),
        ("[columns.a]\nkind = 'category'\nvalues = ['x', 'x']", "list each text once"),
        ("[columns.a]\nkind = 'category'\nvalues = ['x']\nprefixes = {2 = 4}", "prefixes of column 'a' are for a hash"),
        ("[columns.a]\nkind = 'category'\nbuckets = 0", "number of hashed columns is 0"),
        ("[columns.a]\nkind = 'codes'\nbuckets = 4\nprefixes = {x = 4}", "prefixes has the key 'x'"),
        ("[columns.a]\nkind = 'codes'\nbuckets = 4\nseparator = ''", "separator of column 'a' is ''"),
        ("[columns.a]\nkind = 'codes'\nbuckets = 4\nlow = 1", "unknown key columns.a.low"),
        ("[columns.a]\nkind = 'codes'\nbuckets = 4\nalphabet = 'ab'", "are for asking without a list"),
        ("[columns.' a']\nkind = 'codes'\nbuckets = 4", "without blanks around it"),
        ("= 5", "is not valid TOML"),
    ],
)
def test_a_schema_with_a_mistake_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_schema(written(tmp_path, text))
    assert reason in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_schema_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_schema(tmp_path / "nowhere.toml")


ASKING = """
[columns.age]
kind = "number"
low = 0
high = 150
ask = true

[columns.lactate]
kind = "number"
low = 0
high = 100
ask = true
missing = "ask"

[columns.ward]
kind = "category"
values = ["burns", "er", "icu", "maternity", "surgery"]
ask = true
missing = "ask"

[columns.drugs]
kind = "codes"
values = ["aspirin", "heparin", "insulin", "morphine", "noradrenaline", "snake oil", "statin"]
ask = true

[columns.sex]
kind = "category"
buckets = 4
ask = true
alphabet = "abcdefghijklmnopqrstuvwxyz"
characters = 2
other = false
"""


@pytest.mark.skipif("quantiles" not in QUESTIONS, reason="the questions are not there yet")
@pytest.mark.parametrize("noise", [0.0, 5.0])
def test_the_questions_of_a_schema_find_what_persons_have(tmp_path: Path, noise: float) -> None:
    """Sums over all patients of the three hospitals, as an aggregation would give them."""
    schema, rng = read_schema(written(tmp_path, ASKING)), np.random.default_rng(0)
    table = pl.concat([read_table(file) for file in write_tables(tmp_path)]).sort("patient")
    rows = raw_columns(table, schema.columns, schema.missing)
    _, starts = np.unique(table["patient"].to_numpy(), return_index=True)
    ends = np.append(starts, len(table))

    def answered(asking: list[dict[str, Any]]) -> Iterator[Answer]:
        for question in asking:
            asked = QUESTIONS[question.pop("kind")](**question)
            total = asked.vectors(rows, ends).sum(axis=0)
            noisy = total + noise * rng.standard_normal(len(total))
            yield asked.read(Total(value=noisy, noise=noise, units=len(starts), unit="person"))

    with pytest.raises(InvalidInput, match="lack 'texts of sex'"):
        confirmations(schema, [])
    answers = list(answered(questions(schema)))
    with pytest.raises(InvalidInput, match="were not confirmed"):
        fit(schema, answers)
    answers += answered(confirmations(schema, answers))
    found = {column.name: column.rule for column in fit(schema, answers).columns}
    age, lactate, ward, drugs = (found[name] for name in ("age", "lactate", "ward", "drugs"))
    assert isinstance(age, Limits)
    assert (age.low, age.high) == pytest.approx((36, 90), abs=4)
    assert age.fill == pytest.approx(62.5, abs=3)
    assert isinstance(lactate, Limits)
    assert lactate.missing
    assert lactate.high == pytest.approx(4.5, abs=1)
    assert isinstance(ward, Listed)
    assert set(ward.values) == {"burns", "er", "icu", "surgery"}
    assert not ward.missing
    assert found["sex"] in (Listed(("m", "f")), Listed(("f", "m")))  # nearly as many of each
    assert isinstance(drugs, Listed)
    assert set(drugs.values) == {"aspirin", "heparin", "insulin", "morphine", "noradrenaline", "statin"}
