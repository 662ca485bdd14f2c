"""What becomes of a client's table: known answers, the same from CSV, Parquet and frames, and errors without data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkey.errors import DataError, InvalidInput
from lowkey.tabular import (
    Column,
    Encoder,
    Hashed,
    Limits,
    Listed,
    apply,
    bucket,
    labels_of,
    persons_of,
    raw_columns,
    read_table,
)
from lowkey.tasks.mortality.public import public_features
from lowkey.tasks.mortality.sources import SOURCES, load_admissions
from tests.tabular.test_encoder import ENCODER
from tests.tasks.mortality.tables import sih, write

EIGHTH = 0.125
CSV = """age,sex, ward ,drugs,died,id
18,f,icu,a|b,0,p1
"100", m ,icu2,b,1,p1
59,x,,c|a,false,p2
,,er,,yes,p3
200,f,icu,|,0,p4
 59 ,NA,?,a|a|,1,p4
"""


def csv(path: Path, content: str = CSV) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


def test_known_rows(tmp_path: Path) -> None:
    """Every field by hand, relative to the constant, whose weight is that of one category."""
    found = apply(ENCODER, csv(tmp_path / "t.csv"), label="died", person="id")
    rows = found.rows.toarray()
    relative = rows / rows[:, -1:]
    number, sex, drugs = 2**EIGHTH, 4**EIGHTH, 2**EIGHTH
    middle = (60 - 59) / 41
    np.testing.assert_allclose(relative[:, 0] / number, [-1, 1, 0, middle, 1, 0], atol=1e-6)
    np.testing.assert_allclose(relative[:, 1] / number, [0, 0, 0, 1, 0, 0], atol=1e-6)
    sexes = [0, 1, 2, 3, 0, 3]
    np.testing.assert_allclose(relative[:, 2:6] / sex, np.eye(4)[sexes], atol=1e-6)
    wards: list[str | None] = ["icu", "icu2", None, "er", "icu", None]
    for row, ward in zip(relative, wards, strict=True):
        places = [4, 8] if ward is None else [bucket(f"ward[:2]={ward[:2]}", 4), bucket(f"ward={ward}", 8)]
        np.testing.assert_allclose(row[6:11] / 5**EIGHTH, np.eye(5)[places[0]], atol=1e-6)
        np.testing.assert_allclose(row[11:20] / 9**EIGHTH, np.eye(9)[places[1]], atol=1e-6)
    half = 0.5**0.5
    np.testing.assert_allclose(
        relative[:, 20:22] / drugs, [[half, half], [0, 1], [1, 0], [0, 0], [0, 0], [1, 0]], atol=1e-6
    )
    squares = np.array([2, 2, 4, 5, 9, 2, 1]) ** (2 * EIGHTH)
    np.testing.assert_allclose(rows[:, -1], squares.sum() ** -0.5, rtol=1e-6)
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert found.labels.dtype == np.float32
    assert found.persons is not None
    assert found.persons.tolist() == ["p1", "p1", "p2", "p3", "p4", "p4"]
    assert found.treated == {
        "age": {"missing": 1, "clipped": 1},
        "sex": {"missing": 2, "unknown": 1},
        "ward": {"missing": 2},
        "drugs": {"missing": 2, "unknown": 1},
    }
    assert found.rows.dtype == np.float32
    assert found.rows.indices.dtype == found.rows.indptr.dtype == np.int32
    assert found.rows.has_canonical_format


def test_codes_that_are_not_listed_share_a_column_and_no_code_may_have_one() -> None:
    rule = Listed(("a", "b"), other=True, missing=True)
    encoder = Encoder(columns=(Column(name="c", kind="codes", rule=rule),))
    found = apply(encoder, pl.DataFrame({"c": ["a;x;y", "x;y", "", None, "b"]})).rows.toarray()
    half = 0.5**0.5
    expected = [[half, 0, half, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1], [0, 1, 0, 0]]
    np.testing.assert_allclose(found[:, :-1] / found[:, -1:] / 4**EIGHTH, expected, atol=1e-6)


def test_parquet_csv_and_frame_give_the_same_rows(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "age": [18, 59, None, 200],
            "sex": ["f", "m", None, "x"],
            "ward": ["icu", None, "er", "icu"],
            "drugs": ["a|b", "b", None, "a|a"],
            "died": [False, True, True, False],
            "id": [7, 7, 8, 9],
        }
    )
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet")
    lists = frame.with_columns(pl.col("drugs").str.split("|"), age=pl.col("age").cast(pl.Float32))
    first, *others = (
        apply(ENCODER, table, label="died", person="id")
        for table in (tmp_path / "t.csv", str(tmp_path / "t.parquet"), frame, lists)
    )
    for other in others:
        for part in ("indptr", "indices", "data"):
            assert getattr(first.rows, part).tobytes() == getattr(other.rows, part).tobytes()
        np.testing.assert_array_equal(first.labels, other.labels)
        np.testing.assert_array_equal(first.persons, other.persons)
        assert first.treated == other.treated


def test_the_encoder_makes_the_public_features_of_the_hospitals_bit_for_bit(tmp_path: Path) -> None:
    table = sih(60)
    table["age_years"] = [str(10 + 2 * i) for i in range(60)]
    table["proc_solic"] = [f"0303010{i:03d}" for i in range(60)]
    loaded = load_admissions("sih-sus", write(tmp_path / "t.csv", table), any_version=True)
    rules = SOURCES["sih-sus"].public
    expected, _ = public_features(loaded, np.arange(len(loaded)), rules)
    columns = [
        Column(name=name, kind="number" if isinstance(rules[name], Limits) else "category", rule=rules[name])
        for name in loaded.columns
    ]
    frame = pl.concat([loaded.numeric, loaded.categorical], how="horizontal")
    found = apply(Encoder(columns=tuple(columns)), frame).rows
    for part in ("indptr", "indices", "data"):
        assert getattr(found, part).tobytes() == getattr(expected, part).tobytes()


texts = st.one_of(st.none(), st.sampled_from(["f", "m", "a", "b", "a|b", "NA", "", " f "]), st.text(max_size=4))
people = st.lists(st.tuples(st.one_of(st.none(), st.floats()), texts, texts, texts), min_size=1, max_size=8)


@given(people, st.data())
def test_no_row_is_longer_than_1_and_none_depends_on_another(some: list[Any], data: st.DataObject) -> None:
    schema = {"age": pl.Float64, "sex": pl.String, "ward": pl.String, "drugs": pl.String}
    frame = pl.DataFrame(some, schema=schema, orient="row")
    whole = apply(ENCODER, frame).rows
    assert whole.shape == (len(some), ENCODER.width)
    assert np.isfinite(whole.data).all()
    assert np.sqrt(whole.astype(np.float64).power(2).sum(axis=1)).max() <= 1 + 1e-6
    chosen = data.draw(st.lists(st.integers(0, len(some) - 1), min_size=1, max_size=4))
    np.testing.assert_array_equal(apply(ENCODER, frame[chosen]).rows.toarray(), whole.toarray()[chosen])


def test_a_table_without_rows_has_no_features() -> None:
    empty = pl.DataFrame({name: [] for name in ("age", "sex", "ward", "drugs")}, schema_overrides={"sex": pl.String})
    assert apply(ENCODER, empty).rows.shape == (0, 23)


def test_ten_thousand_codes_of_one_patient_are_a_row_of_norm_1() -> None:
    encoder = Encoder(columns=(Column(name="c", kind="codes", rule=Hashed({None: 64})),))
    frame = pl.DataFrame({"c": [";".join(map(str, range(10_000))), "1"]})
    rows = apply(encoder, frame).rows
    np.testing.assert_allclose(rows.power(2).sum(axis=1), 1, rtol=1e-5)


def test_raw_columns_are_what_questions_read(tmp_path: Path) -> None:
    found = raw_columns(read_table(csv(tmp_path / "t.csv")), ENCODER.columns, ENCODER.missing)
    np.testing.assert_array_equal(found["age"], [18, 100, 59, np.nan, 200, 59])
    assert found["sex"].tolist() == ["f", "m", "x", None, "f", None]
    assert found["drugs"].tolist() == [("a", "b"), ("b",), ("c", "a"), (), (), ("a", "a")]
    assert found["drugs"].dtype == object
    assert found["age"].dtype == np.float64


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (f"age,sex,ward\n1,{SECRET},x\n", "the table has no column 'drugs'; it has age, sex, ward"),
        (f"age,sex,ward,drugs\n1,f,x,a\n{SECRET},f,x,a\n", "'age' holds no number in 1 of 2 rows, first in row 2"),
        (f"age,sex,ward,drugs\n1,f,x,{SECRET},5,6\n", "is not a valid CSV file"),
        (f"age;sex;ward;drugs\n1;f;x;{SECRET}\n", "separates its columns by ';'"),
        (f"age,age,sex,ward,drugs\n1,2,f,x,{SECRET}\n", "has the column 'age' twice"),
        (f"age, age,sex,ward,drugs\n1,2,f,x,{SECRET}\n", "has the column 'age' twice"),
        ("", "is empty"),
    ],
)
def test_a_table_that_does_not_fit_names_the_column_and_no_field(tmp_path: Path, content: str, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        apply(ENCODER, csv(tmp_path / "t.csv", content))
    assert reason in str(caught.value)
    shown: BaseException | None = caught.value
    while shown is not None:
        assert SECRET not in str(shown)
        shown = None if shown.__suppress_context__ else shown.__cause__ or shown.__context__


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    for name, content, reason in (
        ("t.txt", b"age\n1\n", "neither a .csv nor a .parquet"),
        ("t.parquet", b"age\n1\n", "not a valid Parquet file"),
        ("t.csv", b"\xff\xfe,x\n1,2\n", "no first row in UTF-8"),
        ("u.csv", b"age,sex\n1,\xff\xfe\n", "not a valid CSV file"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=reason):
            read_table(tmp_path / name)
    with pytest.raises(DataError, match=r"nowhere\.csv cannot be read"):
        read_table(tmp_path / "nowhere.csv")


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfage\n1\n")
    assert read_table(tmp_path / "t.csv").columns == ["age"]


@pytest.mark.parametrize("values", [["1", SECRET], ["1", ""], ["1", None], [1, 2], [1.0, 0.5], [True, None]])
def test_labels_are_yes_or_no_in_every_row(values: list[Any]) -> None:
    with pytest.raises(DataError, match="'died' holds no outcome in 1 of 2 rows, first in row 2") as caught:
        labels_of(pl.DataFrame({"died": values}), "died", ENCODER.missing)
    assert SECRET not in str(caught.value)


def test_labels_in_many_words() -> None:
    frame = pl.DataFrame({"died": ["1", "0", "TRUE", "False", "yes", "NO", "1.0", ' "0" ']})
    assert labels_of(frame, "died", ()).tolist() == [1, 0, 1, 0, 1, 0, 1, 0]
    for values in ([1, 0], [1.0, 0.0], [True, False]):
        assert labels_of(pl.DataFrame({"died": values}), "died", ()).tolist() == [1, 0]


def test_every_row_belongs_to_somebody() -> None:
    with pytest.raises(DataError, match="'id' holds no person in 1 of 2 rows, first in row 2"):
        persons_of(pl.DataFrame({"id": ["p", ""]}), "id", ENCODER.missing)


def test_columns_of_a_wrong_type_are_named() -> None:
    for dtype, name in ((pl.List(pl.Int64), "age"), (pl.Binary, "sex"), (pl.List(pl.List(pl.String)), "drugs")):
        frame = pl.DataFrame({n: [None] for n in ("age", "sex", "ward", "drugs")}).with_columns(
            pl.col(name).cast(dtype)
        )
        with pytest.raises(DataError, match=f"the column '{name}' is of type"):
            apply(ENCODER, frame)


@pytest.mark.parametrize("role", ["label", "person"])
def test_outcomes_and_persons_are_no_features(role: str) -> None:
    with pytest.raises(InvalidInput, match=f"the {role} column is 'age', which the encoder makes features of"):
        apply(ENCODER, pl.DataFrame({"age": [1]}), **{role: "age"})
