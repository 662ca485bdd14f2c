"""The encoder's file: round trip, a digest that stays and that notices, and every damage refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkey.errors import DataError, InvalidInput
from lowkey.tabular import Column, Cost, Encoder, Hashed, Limits, Listed, load_encoder
from lowkey.tabular.encoder import MISSING

ENCODER = Encoder(
    columns=(
        Column(name="age", kind="number", rule=Limits(18, 100, fill=60, missing=True)),
        Column(name="sex", kind="category", rule=Listed(("f", "m"), other=True, missing=True)),
        Column(name="ward", kind="category", rule=Hashed({2: 4, None: 8}, missing=True)),
        Column(name="drugs", kind="codes", rule=Listed(("a", "b")), separator="|"),
    ),
    cost=Cost(epsilon=0.25, delta=1e-5, unit="person", run="stats/7", ledger="ab12"),
    notes=("The limits of age are a private answer.",),
)


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    ENCODER.save(tmp_path / "encoder.json")
    found = load_encoder(tmp_path / "encoder.json", ENCODER.digest)
    assert found == ENCODER
    assert found.digest == ENCODER.digest
    assert json.loads((tmp_path / "encoder.json").read_bytes())["sha256"] == ENCODER.digest


def test_the_digest_is_the_recorded_one() -> None:
    """Clients compare it: it must be the same in every release that reads this format."""
    assert ENCODER.digest == "241a63d67708cd73ad513cd3d4b05ddf3eff38dbe468ee4e08e4ca08e847018e"


def test_names_and_width() -> None:
    assert ENCODER.names == (
        "age", "age is missing", "sex=f", "sex=m", "sex is other", "sex is missing",
        *(f"ward[:2]#{place}" for place in range(4)), "ward[:2] is missing",
        *(f"ward#{place}" for place in range(8)), "ward is missing", "drugs=a", "drugs=b", "constant",
    )  # fmt: skip
    assert ENCODER.width == 23


def with_rule(place: int, rule: Any) -> Encoder:
    columns = list(ENCODER.columns)
    columns[place] = replace(columns[place], rule=rule)
    return replace(ENCODER, columns=tuple(columns))


OTHERS = [
    with_rule(0, Limits(19, 100, 60, True)),
    with_rule(0, Limits(18, 101, 60, True)),
    with_rule(0, Limits(18, 100, 61, True)),
    with_rule(0, Limits(18, 100, None, True)),
    with_rule(0, Limits(18, 100, 60, False)),
    with_rule(1, Listed(("m", "f"), True, True)),
    with_rule(1, Listed(("f", "m"), False, True)),
    with_rule(1, Listed(("f", "m"), True, False)),
    with_rule(2, Hashed({2: 4, None: 9}, True)),
    with_rule(2, Hashed({3: 4, None: 8}, True)),
    with_rule(2, Hashed({None: 8, 2: 4}, True)),
    with_rule(2, Hashed({2: 4, None: 8}, False)),
    replace(ENCODER, columns=ENCODER.columns[::-1]),
    replace(ENCODER, columns=ENCODER.columns[:-1]),
    replace(ENCODER, columns=(*ENCODER.columns[:-1], replace(ENCODER.columns[-1], separator=";"))),
    replace(ENCODER, columns=(*ENCODER.columns[:-1], replace(ENCODER.columns[-1], name="drug"))),
    replace(ENCODER, missing=("",)),
    replace(ENCODER, cost=replace(ENCODER.cost, epsilon=0.26)),
    replace(ENCODER, notes=()),
]


def test_whatever_differs_changes_the_digest(tmp_path: Path) -> None:
    assert len({encoder.digest for encoder in (ENCODER, *OTHERS)}) == 1 + len(OTHERS)
    OTHERS[0].save(tmp_path / "other.json")
    with pytest.raises(DataError, match=f"{OTHERS[0].digest[:16]}, but {ENCODER.digest[:16]} was agreed on"):
        load_encoder(tmp_path / "other.json", ENCODER.digest)


def test_whole_numbers_and_others_are_the_same_limits() -> None:
    assert with_rule(0, Limits(18.0, 100.0, 60.0, True)).digest == ENCODER.digest


names = st.text(min_size=1, max_size=5).map(str.strip).filter(bool)
bounded = st.floats(-1e6, 1e6)
listed = names.filter(lambda text: text not in MISSING and ";" not in text)
rules = st.one_of(
    st.tuples(bounded, bounded).filter(lambda ends: ends[0] < ends[1]).map(lambda ends: Limits(*ends)),
    st.lists(listed, min_size=1, max_size=4, unique=True).map(lambda values: Listed(tuple(values))),
    st.dictionaries(st.one_of(st.none(), st.integers(1, 9)), st.integers(1, 99), min_size=1).map(Hashed),
)


@given(st.dictionaries(names, rules, min_size=1, max_size=4), st.lists(st.text(max_size=3), max_size=3))
def test_any_encoder_survives_its_file(found: dict[str, Any], words: list[str]) -> None:
    columns = tuple(
        Column(name=name, kind="number" if isinstance(rule, Limits) else "codes", rule=rule)
        for name, rule in found.items()
    )
    encoder = Encoder(columns=columns, notes=tuple(words))
    again = Encoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again == encoder
    assert again.digest == encoder.digest


def edited(path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    ENCODER.save(path)
    table = json.loads(path.read_bytes())
    change(table)
    path.write_text(json.dumps(table), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t["columns"][0].update(low=17.0), "was changed after it was made"),
        (lambda t: t.pop("sha256"), "was changed after it was made"),
        (lambda t: t.update(sha256=5), "was changed after it was made"),
        (lambda t: t.update(format=2), "has format 2; this release reads 1"),
        (lambda t: t.update(more=1), "has the keys"),
        (lambda t: t.pop("cost"), "has the keys"),
        (lambda t: t.update(columns=[]), "number of columns is 0"),
        (lambda t: t.update(columns={}), "columns that is not of type list"),
        (lambda t: t.update(columns=[5]), "a column is not a table"),
        (lambda t: t["columns"].append(t["columns"][0]), "'age' is there twice"),
        (lambda t: t["columns"][0].update(kind="date"), "has the keys"),
        (lambda t: t["columns"][1].update(kind="date"), "must be one of number, category, codes"),
        (lambda t: t["columns"][0].update(low=float("nan")), "limits are nan"),
        (lambda t: t["columns"][0].update(low=18), "low that is not of type float"),
        (lambda t: t["columns"][0].update(fill="x"), "fill that is no number"),
        (lambda t: t["columns"][0].update(fill=5.0), "fill is 5.0; it must lie between"),
        (lambda t: t["columns"][1].update(values=["f", 5]), "lists something that is no text"),
        (lambda t: t["columns"][1].update(values=["f", "f"]), "list each text once"),
        (lambda t: t["columns"][1].update(values=["f", "m "]), "lists 'm ', which has blanks around it"),
        (lambda t: t["columns"][1].update(values=["f", "NA"]), "lists 'NA', which means missing"),
        (lambda t: t["columns"][3].update(values=["a", "b|c"]), "lists 'b|c', which holds the separator '|'"),
        (lambda t: t["columns"][1].update(other=1), "other that is not of type bool"),
        (lambda t: t["columns"][2].update(hashed=[[2, 4], [2, 5]]), "the same number of letters twice"),
        (lambda t: t["columns"][2].update(hashed=[[[], 4]]), "no pairs of a length"),
        (lambda t: t["columns"][2].update(hashed=[[2]]), "no pairs of a length"),
        (lambda t: t["columns"][2].update(hashed=[[True, 4]]), "no pairs of a length"),
        (lambda t: t["columns"][2].update(hashed=[[None, 10**12]]), "at most 1.04858e"),
        (lambda t: t["columns"][3].update(separator=""), "separator of column 'drugs' is ''"),
        (lambda t: t["columns"][3].update(name=" drugs"), "without blanks around it"),
        (lambda t: t["columns"][1].update(values=["\ud800"]), "is not an encoder"),
        (lambda t: t["cost"].update(epsilon=-1.0), "epsilon is -1.0"),
        (lambda t: t["cost"].update(run=5), "run is 5; it must be text"),
        (lambda t: t.update(notes=[None]), "notes lists something that is no text"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], Any], reason: str) -> None:
    with pytest.raises(DataError, match=r"encoder\.json") as caught:
        load_encoder(edited(tmp_path / "encoder.json", change))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"5", b"{", b"\xff", b"[" * 100_000, b'{"format": 1e999}'])
def test_what_is_no_encoder_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "encoder.json").write_bytes(content)
    with pytest.raises(DataError, match="is not an encoder"):
        load_encoder(tmp_path / "encoder.json")
    with pytest.raises(DataError, match="cannot be read"):
        load_encoder(tmp_path / "nowhere.json")


def test_a_rule_must_fit_its_column() -> None:
    with pytest.raises(InvalidInput, match="rule of column 'age' is Listed, but its kind is 'number'"):
        Column(name="age", kind="number", rule=Listed(("a",)))
    with pytest.raises(InvalidInput, match="rule of column 'age' is Limits, but its kind is 'codes'"):
        Column(name="age", kind="codes", rule=Limits(0, 1))


def test_reading_an_encoder_needs_no_library_for_tables(tmp_path: Path) -> None:
    ENCODER.save(tmp_path / "encoder.json")
    code = (
        f"from lowkey.tabular import load_encoder; load_encoder({str(tmp_path / 'encoder.json')!r}).width;"
        "import sys; assert not {'polars', 'scipy', 'sklearn', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
