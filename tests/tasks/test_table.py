"""The task for tables of one's own: who is held out, what a node reads, what an app brings, and every refusal."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.metrics import roc_auc_score

from examples.three_hospitals.make import write_tables
from lowkey.errors import ConfigError, DataError, InvalidInput
from lowkey.experiments import Config, RunDirectory, load_config
from lowkey.experiments.checkpoints import unpack
from lowkey.learning import model_vector
from lowkey.simulation import run
from lowkey.tabular import apply, fit, load_encoder, read_schema
from lowkey.tasks import TABLE
from lowkey.tasks.table import TableSettings
from lowkey.tasks.table.parts import is_held_out

EXAMPLE = Path(__file__).parents[2] / "examples" / "three_hospitals"


def example(place: Path) -> Path:
    """The directory of a reader of the tutorial."""
    for name in ("schema.toml", "study.toml"):
        shutil.copy(EXAMPLE / name, place)
    write_tables(place)
    fit(read_schema(place / "schema.toml")).save(place / "encoder.json")
    return place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return example(tmp_path)


def config(place: Path, *changes: str) -> Config:
    return load_config(place / "study.toml", ["runtime.workers=0", *changes])


def rows_of(sides: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    rows, labels, persons = zip(*(sides[number][:3] for number in range(len(sides))), strict=True)
    return sp.vstack(rows), np.concatenate(labels), np.concatenate(persons)


def test_every_row_is_on_one_side_and_every_person_too(place: Path) -> None:
    study = config(place).study
    assert TABLE.held_out is not None
    (train, died, learned), (test, tested_died, tested) = (
        rows_of(TABLE.all_clients(study)),
        rows_of(TABLE.held_out(study)),
    )
    whole = [apply(load_encoder("encoder.json"), f"{name}.csv", label="died", person="patient") for name in "abc"]
    assert train.shape[0] + test.shape[0] == sum(found.rows.shape[0] for found in whole)
    assert died.sum() + tested_died.sum() == sum(found.labels.sum() for found in whole if found.labels is not None)
    assert not set(learned) & set(tested)
    assert len(set(tested)) / 3000 == pytest.approx(0.2, abs=0.03)  # 4 standard deviations
    everyone = set(learned) | set(tested)
    assert len(everyone) == 3000


def test_groups_of_test_rows_are_compared(place: Path) -> None:
    """By the texts of the tables' own categories; a group that is too small is not shown."""
    asked = 'evaluation.question={prevalence=0.15, rows=1.3, groups=["sex=f", "sex=m", "ward=er"], least=100}'
    settings = ["evaluation.where=clients", asked, "privacy.epsilon=300.0", "privacy.asking=0.5"]
    run(config(place, *settings), place / "run")
    (answer,) = json.loads((place / "run" / "answers.json").read_text("utf-8"))
    (table,) = [table for name, table in answer["tables"].items() if "group" in name]
    assert table["group"][:2] == ["sex=f", "sex=m"]
    assert all(value is not None for value in table["auroc"][:2])


def test_who_is_held_out_depends_on_seed_and_person_alone() -> None:
    persons = [f"p{number}" for number in range(20_000)]
    chosen = is_held_out(persons, 0.3, 7)
    assert chosen.mean() == pytest.approx(0.3, abs=0.013)  # 4 standard deviations
    np.testing.assert_array_equal(is_held_out(persons[::-1], 0.3, 7), chosen[::-1])
    assert (is_held_out(persons, 0.3, 8) != chosen).mean() == pytest.approx(0.42, abs=0.014)
    assert not is_held_out(persons, 0.0, 7).any()
    assert (is_held_out(persons, 0.6, 7) | ~chosen).all()
    recorded = [True, True, False, False, False, False]  # all clients must choose alike, in every release
    assert is_held_out(["p1", "p2", "p3", "p4", "p5", "p6"], 0.5, 0).tolist() == recorded


@pytest.mark.parametrize(
    ("column", "field"), [("age", "old"), ("died", "perhaps"), ("patient", "")], ids=["number", "outcome", "nobody"]
)
def test_one_persons_field_keeps_nobody_else_out(
    place: Path, column: str, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a hospital whose patients are protected; one that is protected as a whole is told what to mend."""
    study = config(place).study
    assert study.by_person
    table = pl.read_csv(place / "a.csv", infer_schema=False)
    patients = table["patient"].to_list()
    someone = next(patient for patient in patients if patients.count(patient) > 2)
    first = patients.index(someone)
    before = rows_of([TABLE.all_clients(study)[0]]), TABLE.tables(study)[0]  # type: ignore[misc]
    damaged = table.with_columns(
        pl.when(pl.int_range(len(table)) == first).then(pl.lit(field)).otherwise(column).alias(column)
    )
    damaged.write_csv(place / "a.csv")
    after = rows_of([TABLE.all_clients(study)[0]]), TABLE.tables(study)[0]  # type: ignore[misc]
    gone = patients.count(someone) if column != "patient" else 1
    assert f"{gone} of {len(table)} rows" in caplog.text
    for old, new in ((before[0][2], after[0][2]), (before[1].persons, after[1].persons)):
        left = sorted(set(old) - {someone})
        assert sorted(set(new) - {someone}) == left
    others = [person != someone for person in before[0][2]], [person != someone for person in after[0][2]]
    np.testing.assert_array_equal(before[0][1][others[0]], after[0][1][others[1]])
    assert field == "" or field not in caplog.text
    with pytest.raises(DataError, match=column):
        TABLE.all_clients(replace(study, by_person=False))[0]


def test_where_rows_are_protected_one_of_them_moves_no_other(place: Path) -> None:
    """Rows are held out by their number in the file, which they keep when another one cannot be read."""
    study = config(place).study
    study = replace(study, data=replace(study.data, person=None))

    def sides() -> list[tuple[np.ndarray, np.ndarray]]:
        assert TABLE.held_out is not None
        found = (TABLE.all_clients(study)[0], TABLE.held_out(study)[0])
        return [(rows.toarray(), labels) for rows, labels, *_ in found]

    before, table = sides(), pl.read_csv(place / "a.csv", infer_schema=False)
    age = pl.when(pl.int_range(len(table)) == 5).then(pl.lit("old")).otherwise("age").alias("age")
    table.with_columns(age).write_csv(place / "a.csv")
    after = sides()
    assert sum(len(labels) for _, labels in after) == len(table) - 1
    for (rows, labels), (left, still) in zip(before, after, strict=True):
        gone = len(labels) - len(still)
        assert gone in (0, 1)
        place_of = next((n for n in range(len(still)) if (rows[n] != left[n]).any()), len(still)) if gone else None
        kept = [n for n in range(len(labels)) if n != place_of]
        np.testing.assert_array_equal(rows[kept], left)
        np.testing.assert_array_equal(labels[kept], still)


def test_without_persons_every_row_is_one(place: Path) -> None:
    study = config(place).study
    study = replace(study, data=replace(study.data, person=None))
    examples = TABLE.all_clients(study)[0]
    assert len(examples) == 2
    assert len(examples[1]) / 643 == pytest.approx(0.8, abs=0.07)


def test_a_node_reads_its_own_table_and_no_other(place: Path) -> None:
    study = config(place).study
    moved = replace(study, data=replace(study.data, tables=()))
    (place / "b.csv").rename(place / "elsewhere.csv")
    (place / "a.csv").unlink()
    (place / "c.csv").unlink()
    node = {"client": 1, "table": str(place / "elsewhere.csv")}
    rows, labels, persons = TABLE.data_at(moved, node)
    assert set(np.char.partition(persons, "b")[:, 1]) == {"b"}
    assert TABLE.local_held_out is not None
    assert TABLE.local_table is not None
    assert rows.shape[0] + TABLE.local_held_out(moved, node)[0].shape[0] == 1196
    table = TABLE.local_table(moved, node)
    np.testing.assert_array_equal(table.columns["died"], labels)
    np.testing.assert_array_equal(table.persons, persons)
    assert set(table.columns) == {"age", "sex", "lactate", "ward", "drugs", "died"}
    with pytest.raises(ConfigError, match="does not say where its table is"):
        TABLE.data_at(moved, {"client": 1})


def test_nodes_on_one_machine_find_their_tables_by_their_number(place: Path) -> None:
    study = config(place).study
    for client in range(3):
        here, there = TABLE.data_at(study, {"client": client}), TABLE.all_clients(study)[client]
        np.testing.assert_array_equal(here[0].toarray(), there[0].toarray())
    with pytest.raises(ConfigError, match=r"client is 3, but data\.tables has 3 tables"):
        TABLE.data_at(study, {"client": 3})


def test_questions_need_a_schema_and_no_encoder(place: Path) -> None:
    (place / "encoder.json").unlink()
    study = config(place).study
    asking = replace(study, data=replace(study.data, encoder=None))
    assert TABLE.tables is not None
    for found in (TABLE.tables(study), TABLE.tables(asking)):
        lactate, drugs = found[2].columns["lactate"], found[2].columns["drugs"]
        assert np.isnan(lactate).mean() == pytest.approx(0.4, abs=0.06)
        assert {drug for given in drugs for drug in given} >= {"aspirin", "statin"}
        assert set(found[2].columns["ward"]) == {"icu", "surgery", "er", "burns"}
    with pytest.raises(ConfigError, match=r"data\.encoder is missing; make one"):
        TABLE.model(asking)
    with pytest.raises(DataError, match=r"encoder\.json cannot be read"):
        TABLE.model(study)


def test_the_columns_of_the_encoder_do_without_a_schema(place: Path) -> None:
    study = config(place).study
    plain = replace(study, data=replace(study.data, schema=None))
    assert TABLE.tables is not None
    assert TABLE.tables(plain)[0].columns.keys() == TABLE.tables(study)[0].columns.keys()


def test_another_encoder_than_agreed_is_refused(place: Path) -> None:
    digest = load_encoder("encoder.json").digest
    assert TABLE.model(config(place, f"data.encoder_digest={digest}").study) is not None
    with pytest.raises(DataError, match=f"has the digest {digest[:16]}, but abcd was agreed on"):
        TABLE.model(config(place, "data.encoder_digest=abcd").study)


def test_the_model_has_a_weight_for_each_feature(place: Path) -> None:
    study = config(place).study
    assert model_vector(TABLE.model(study)).size == load_encoder("encoder.json").width + 5
    assert TABLE.test(study) is None
    found = TABLE.test(replace(study, data=replace(study.data, test="a.csv")))
    assert found is not None
    rows, labels = found
    assert rows.shape == (643, load_encoder("encoder.json").width)
    assert labels.shape == (643,)


def test_three_hospitals_learn_together(place: Path) -> None:
    """0.79 was measured in six runs, at ε = 3 and at ε = 1; logistic regression on all rows together has 0.817."""
    made = config(place)
    result = run(made, place / "run")
    assert result["final_auroc"] is None  # no test data at the server
    assert 2.5 < result["epsilon_pld"] <= 3.0
    weights = unpack(max((place / "run").glob("checkpoint-*"))).state.weights
    assert TABLE.held_out is not None
    rows, died, _ = rows_of(TABLE.held_out(made.study))
    assert roc_auc_score(died, rows @ weights[: rows.shape[1]]) > 0.74
    assert RunDirectory.open(place / "run").config.data == made.study.data


def test_a_server_with_a_table_of_its_own_evaluates(place: Path) -> None:
    result = run(config(place, "data.test=a.csv", "schedule.rounds=2"), place / "run")
    assert 0 <= result["final_auroc"] <= 1


def test_what_there_is_to_learn_from(place: Path) -> None:
    assert TABLE.describe is not None
    found = TABLE.describe(config(place).study)
    assert found["features"] == 31
    assert found["train_rows"] + found["test_rows"] == 643 + 1196 + 2085
    assert found["smallest_client"] < found["largest_client"]


def test_an_encoder_is_found_where_the_modules_of_an_app_are(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, app = config(place).study, place / "unpacked"
    (app / "hospitals").mkdir(parents=True)
    (place / "encoder.json").rename(app / "hospitals" / "encoder.json")
    named = replace(study, data=replace(study.data, encoder="hospitals/encoder.json"))
    with pytest.raises(DataError, match="cannot be read"):
        TABLE.model(named)
    monkeypatch.syspath_prepend(app)
    assert TABLE.model(named) is not None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("patient,age,sex,lactate,ward\np,1,f,1,icu\n", "the table has no column 'drugs'"),
        ("patient,age,sex,lactate,ward,drugs\np,1,f,1,icu,\n", "the table has no column 'died'"),
        ("age,sex,lactate,ward,drugs,died\n1,f,1,icu,,0\n", "the table has no column 'patient'"),
        ("patient,age,sex,lactate,ward,drugs,died\np,old,f,1,icu,,0\n", "'age' holds no number in 1 of 1 rows"),
        ("patient,age,sex,lactate,ward,drugs,died\np,1,f,1,icu,,dead\n", "'died' holds no outcome in 1 of 1 rows"),
        ("patient,age,sex,lactate,ward,drugs,died\n,1,f,1,icu,,0\n", "'patient' holds no person in 1 of 1 rows"),
    ],
)
def test_a_table_that_does_not_fit_says_why(place: Path, content: str, reason: str) -> None:
    (place / "a.csv").write_text(content)
    with pytest.raises(DataError, match=reason):
        TABLE.data_at(config(place).study, {"client": 0, "table": "a.csv"})


@pytest.mark.parametrize("rows", [0, 1])
def test_a_hospital_with_no_row_or_one(place: Path, rows: int) -> None:
    table = pl.read_csv("a.csv", infer_schema=False)[:rows]
    table.write_csv("a.csv")
    study = config(place).study
    assert TABLE.held_out is not None
    assert TABLE.all_clients(study)[0][0].shape[0] + TABLE.held_out(study)[0][0].shape[0] == rows
    assert run(config(place, "schedule.rounds=1"), place / "run")["rounds"] == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("data.test_share=1.0", "data.test_share is 1.0"),
        ("data.person=died", "data.label and data.person are both 'died'"),
        ("data.labels=x", r"unknown key data.labels; did you mean data.label\?"),
        ("model.frequency=0.0", "model.frequency is 0.0"),
        ("model.kind=mlp", "model.kind"),
        ("data.tables=a.csv", "data.tables is 'a.csv'"),
    ],
)
def test_settings_that_cannot_be(place: Path, change: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        config(place, change)


def test_a_task_without_any_file_is_refused() -> None:
    with pytest.raises(ValueError, match=r"data\.encoder is missing; name the file of an encoder, or data\.schema"):
        TableSettings(label="died")


def test_the_number_of_tables_is_the_number_of_clients(place: Path) -> None:
    with pytest.raises(ConfigError, match=r"federation\.clients is 3, but the task has data of 2"):
        TABLE.all_clients(config(place, 'data.tables=["a.csv", "b.csv"]').study)


def test_outcomes_are_no_features(place: Path) -> None:
    study = config(place, "data.label=age").study
    with pytest.raises(InvalidInput, match="the label column is 'age', which the encoder makes features of"):
        TABLE.all_clients(study)
