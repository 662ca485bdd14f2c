"""Public rules: hand-computed rows, no row longer than 1, columns that depend on nobody's rows, recorded hashes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from lowkey.errors import InvalidInput
from lowkey.tabular import Hashed, Limits, Listed, Rule, SparseRows, bucket, joined
from lowkey.tasks.mortality import synthetic
from lowkey.tasks.mortality.admissions import Admissions
from lowkey.tasks.mortality.clients import make_hospital_data
from lowkey.tasks.mortality.division import Layout, divide
from lowkey.tasks.mortality.features import fit_features
from lowkey.tasks.mortality.public import public_features
from lowkey.tasks.mortality.sources import SOURCES, load_admissions
from lowkey.tasks.mortality.synthetic import make_synthetic_hospital_data
from tests.tasks.mortality.tables import Columns, diabetes, real, sih, write

RULES: dict[str, Rule] = {
    "age": Limits(20, 60),
    "kind": Listed(("a", "b")),
    "drug": Listed(("x", "y", "z")),
    "code": Hashed({2: 8, None: 64}),
}
WIDTH = 1 + 2 + 3 + 8 + 64 + 1


def admissions(
    *,
    age: list[float | None] | None = None,
    kind: list[str | None] | None = None,
    drug: list[list[str | None] | None] | None = None,
    code: list[str | None] | None = None,
) -> Admissions:
    """Those of the four features that are given."""
    texts, lists = {"kind": kind, "code": code}, {"drug": drug}
    count = len(next(values for values in (age, kind, drug, code) if values is not None))
    return Admissions(
        source="test",
        numeric=pl.DataFrame({"age": age} if age is not None else {}, schema_overrides={"age": pl.Float64}),
        categorical=pl.DataFrame({name: values for name, values in texts.items() if values is not None}),
        codes=pl.DataFrame({name: values for name, values in lists.items() if values is not None}),
        died=np.zeros(count, bool),
    )


def everyone(table: Admissions) -> np.ndarray:
    return np.arange(len(table))


def encoded(table: Admissions) -> np.ndarray:
    """Rows of all admissions, without the constant, relative to the weight of their block."""
    found, _ = public_features(table, everyone(table), RULES)
    return found.toarray()[:, :-1] / found[:, [-1]].toarray()


def norms(rows: SparseRows) -> np.ndarray:
    return np.sqrt(rows.astype(np.float64).power(2).sum(axis=1))


def test_numbers_end_at_their_limits_and_missing_ones_are_in_the_middle() -> None:
    ages = [20.0, 30.0, 60.0, 61.0, 1e300, float("inf"), -5.0, float("-inf"), None, float("nan")]
    expected = [-1, -0.5, 1, 1, 1, 1, -1, -1, 0, 0]
    np.testing.assert_allclose(encoded(admissions(age=ages))[:, 0], np.multiply(2**0.125, expected), rtol=1e-6)


def test_listed_texts_have_columns_in_their_order_and_others_have_none() -> None:
    found = encoded(admissions(kind=["b", "a", "unknown", "", None, "A"]))
    expected = np.zeros((6, 2))
    expected[0, 1] = expected[1, 0] = 2**0.125
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_list_of_codes_has_norm_1_whatever_it_holds() -> None:
    lists: list[list[str | None] | None]
    lists = [["x"], ["z", "x"], ["x", "x", "x"], ["x", "other", None], ["y", "z", "x"], ["other"], [], None]
    two, three = 0.5**0.5, (1 / 3) ** 0.5
    expected = [[1, 0, 0], [two, 0, two], [1, 0, 0], [1, 0, 0], 3 * [three], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    np.testing.assert_allclose(encoded(admissions(drug=lists)), np.multiply(3**0.125, expected), rtol=1e-6)


def test_nobody_may_have_a_code() -> None:
    assert not encoded(admissions(drug=[[], []])).any()


def test_hashed_texts_have_a_column_for_each_prefix_and_one_for_the_whole() -> None:
    found = encoded(admissions(code=["abc", "abd", "ab", None]))
    assert [np.flatnonzero(row).tolist() for row in found] == [
        [bucket("code[:2]=ab", 8), 8 + bucket("code=abc", 64)],
        [bucket("code[:2]=ab", 8), 8 + bucket("code=abd", 64)],
        [bucket("code[:2]=ab", 8), 8 + bucket("code=ab", 64)],
        [],
    ]
    np.testing.assert_allclose(found[:, :8].max(axis=1), [8**0.125] * 3 + [0], rtol=1e-6)
    np.testing.assert_allclose(found[:, 8:].max(axis=1), [64**0.125] * 3 + [0], rtol=1e-6)
    assert bucket("code=abc", 64) != bucket("code=abd", 64)


def test_texts_that_share_a_column_count_once() -> None:
    table = admissions(drug=[["x", "y", "z"]])
    found, names = public_features(table, everyone(table), {"drug": Hashed({None: 1})})
    assert names == ("drug", "constant")
    np.testing.assert_allclose(found.toarray(), [[0.5**0.5, 0.5**0.5]], rtol=1e-6)


def test_hashes_are_the_recorded_ones() -> None:
    """A node with another hash would learn another model without any error."""
    assert bucket("procedure[:4]=0303", 128) == 112
    assert bucket("procedure=0303010061", 4096) == 697
    assert bucket("", 7) == 2
    assert bucket("cirurgia=coração", 2**31) == 2_119_669_403


def test_blocks_are_weighted_by_the_eighth_root_of_their_categories() -> None:
    ones = sparse.csr_array(np.ones((2, 1), np.float32))
    found, names = joined([("many", ones, 256), ("few", ones, 2)], 2)
    weights = np.array([2, 2**0.125, 1])
    np.testing.assert_allclose(found.toarray(), 2 * [weights / np.linalg.norm(weights)], rtol=1e-6)
    assert names == ("many", "few", "constant")


texts = st.one_of(st.none(), st.sampled_from(["a", "b", "x", "y", "z", "unknown", ""]), st.text(max_size=4))
people = st.lists(st.tuples(st.one_of(st.none(), st.floats()), texts, st.lists(texts, max_size=5), texts), min_size=1)


@given(people, st.data())
def test_any_row_has_norm_1_at_most_and_depends_on_no_other(some: list[Any], data: st.DataObject) -> None:
    age, kind, drug, code = (list(values) for values in zip(*some, strict=True))
    table = admissions(age=age, kind=kind, drug=drug, code=code)
    whole, names = public_features(table, everyone(table), RULES)
    assert whole.shape == (len(some), WIDTH)
    assert len(set(names)) == WIDTH
    assert np.isfinite(whole.data).all()
    assert norms(whole).max() <= 1 + 1e-6
    chosen = np.array(data.draw(st.lists(st.integers(0, len(some) - 1), max_size=4)), np.intp)
    part, same_names = public_features(table, chosen, RULES)
    assert same_names == names
    np.testing.assert_array_equal(part.toarray(), whole.toarray()[chosen])


def test_a_full_row_has_norm_1() -> None:
    table = admissions(age=[60], kind=["a"], drug=[["x", "y"]], code=["abc"])
    found, _ = public_features(table, everyone(table), RULES)
    assert norms(found) == pytest.approx([1], abs=1e-6)
    assert found.dtype == np.float32
    assert found.indices.dtype == found.indptr.dtype == np.int32
    assert found.has_canonical_format


def test_a_feature_without_a_rule_is_refused() -> None:
    rules = {name: rule for name, rule in RULES.items() if name != "kind"}
    with pytest.raises(InvalidInput, match=r"feature kind has no public rule; leave it out of data\.features, or set"):
        public_features(admissions(age=[30], kind=["a"]), np.arange(1), rules)


def test_impossible_rules_are_refused() -> None:
    for low, high in ((1, 1), (2, 1), (0, float("inf")), (float("nan"), 1)):
        with pytest.raises(InvalidInput, match=f"limits are {low} and {high}"):
            Limits(low, high)
    for values in ((), ("a", "b", "a")):
        with pytest.raises(InvalidInput, match="list each text once"):
            Listed(values)
    with pytest.raises(InvalidInput, match="number of hashes is 0"):
        Hashed({})
    with pytest.raises(InvalidInput, match="number of hashed columns is 0"):
        Hashed({None: 0})
    with pytest.raises(InvalidInput, match="number of letters to hash is 0"):
        Hashed({0: 8})


def test_rules_must_fit_their_features() -> None:
    source = SOURCES["diabetes130"]
    with pytest.raises(InvalidInput, match="public rule for weight, which is none of its features"):
        replace(source, public={**source.public, "weight": Limits(0, 200)})
    for name, rule in (("age", Listed(("old",))), ("gender", Limits(0, 1)), ("drug", Limits(0, 1))):
        with pytest.raises(InvalidInput, match=f"public rule of {name} is {type(rule).__name__}"):
            replace(source, public={**source.public, name: rule})


@pytest.mark.parametrize("name", SOURCES)
def test_all_default_features_have_a_rule(name: str) -> None:
    source = SOURCES[name]
    assert set(source.default) <= set(source.public)


@pytest.mark.parametrize(
    ("name", "table", "widths"),
    [("diabetes130", diabetes, [1, 1, 2, 3, 3 * 23, 1]), ("sih-sus", sih, [1, 2, 5, 6, 15, 128, 512, 4096, 1])],
)
def test_columns_of_the_sources(tmp_path: Path, name: str, table: Callable[[int], Columns], widths: list[int]) -> None:
    loaded = load_admissions(name, write(tmp_path / "t.csv", table(6)), any_version=True)
    rows, names = public_features(loaded, everyone(loaded), SOURCES[name].public)
    blocks = [column.split("#")[0] for column in names]
    assert list(Counter(blocks).values()) == widths
    assert rows.shape[1] == sum(widths) == len(set(names))
    filled = {block for place, block in enumerate(blocks) if rows[:, [place]].nnz}
    assert set(blocks) - filled == (set() if name == "diabetes130" else {"race"})  # 99 says nothing


def test_a_missing_procedure_is_hashed_as_unknown(tmp_path: Path) -> None:
    table = sih(2) | {"proc_solic": ["", "unknown"]}
    loaded = load_admissions("sih-sus", write(tmp_path / "t.csv", table), any_version=True)
    rows, names = public_features(loaded, everyone(loaded), SOURCES["sih-sus"].public)
    of_procedures = [place for place, name in enumerate(names) if name.startswith("procedure")]
    missing, unknown = rows[:, of_procedures].toarray()
    np.testing.assert_array_equal(missing, unknown)
    assert np.count_nonzero(missing) == 3


def test_a_hospital_alone_has_the_rows_that_it_has_among_others(tmp_path: Path) -> None:
    """With fitted features it does not: the other half of this test."""
    table = sih(60)
    table["age_years"] = [str(30 + 30 * (i % 2) + i // 4) for i in range(60)]
    mine = np.array([owner == "0000" for owner in table["cnes"]])
    own = {name: [value for value, taken in zip(values, mine, strict=True) if taken] for name, values in table.items()}
    together, alone = (
        load_admissions("sih-sus", write(tmp_path / f"{len(part['cnes'])}.csv", part), any_version=True)
        for part in (table, own)
    )
    rules = SOURCES["sih-sus"].public
    (among, names), (by_itself, same) = (
        public_features(together, np.flatnonzero(mine), rules),
        public_features(alone, everyone(alone), rules),
    )
    assert names == same
    np.testing.assert_array_equal(among.toarray(), by_itself.toarray())
    fitted = [fit_features(data, everyone(data), min_count=1) for data in (together, alone)]
    assert fitted[0].names != fitted[1].names


def test_both_sides_of_a_division_are_encoded_by_the_rules(tmp_path: Path) -> None:
    loaded = load_admissions("diabetes130", write(tmp_path / "t.csv", diabetes(120)), any_version=True)
    rules, layout = SOURCES["diabetes130"].public, Layout(clients=8)
    data = make_hospital_data(loaded, layout, rng=np.random.default_rng(0), public=rules)
    division = divide(loaded.died, layout, rng=np.random.default_rng(0), patients=loaded.patients)
    whole, names = public_features(loaded, everyone(loaded), rules)
    assert data.feature_names == names
    np.testing.assert_array_equal(data.train.toarray(), whole.toarray()[division.train])
    np.testing.assert_array_equal(data.test.toarray(), whole.toarray()[division.test])


def test_synthetic_admissions_are_the_same_people_by_public_rules() -> None:
    fitted, public = (make_synthetic_hospital_data(scale=0.002, public=public) for public in (False, True))
    np.testing.assert_array_equal(fitted.train_died, public.train_died)
    assert public.bayes_auroc == fitted.bayes_auroc
    assert len(public.feature_names) == len(set(public.feature_names)) == 7_281
    assert all(name.startswith("synthetic ") for name in public.feature_names[:-1])
    weights = np.array([2, 2, 3, 4, 7_271, 1]) ** 0.125
    weights /= np.linalg.norm(weights)
    for before, after in ((fitted.train, public.train), (fitted.test, public.test)):
        assert norms(after).max() <= 1 + 1e-6
        numbers = after[:, :2].toarray()
        np.testing.assert_allclose(numbers, weights[0] * (2 * before[:, :2].toarray() - 1), atol=1e-6)
        ends = np.cumsum([2, 3, 4, 7_271, 1])
        for start, end, weight in zip(ends[:-1], ends[1:], weights[2:], strict=True):
            np.testing.assert_allclose(norms(after[:, start:end]), weight, rtol=1e-5)
        np.testing.assert_array_equal(after[:, 2:-1].indptr, before[:, 2:].indptr)
        np.testing.assert_array_equal(after[:, 2:-1].indices, before[:, 2:].indices)


def test_synthetic_rows_depend_on_no_other() -> None:
    rows = make_synthetic_hospital_data(scale=0.001).train
    (whole, names), (part, same) = synthetic._weighted(rows, {}), synthetic._weighted(rows[[5, 3]], {})
    assert names == same
    np.testing.assert_array_equal(part.toarray(), whole[[5, 3]].toarray())


@pytest.mark.parametrize(("name", "place"), [("diabetes130", "diabetes130"), ("sih-sus", "sih_sus")])
def test_the_rules_cover_the_real_files(name: str, place: str) -> None:
    """Every listed feature has a column for all that a file says, except that it does not know (99 is such a code)."""
    table, source = load_admissions(name, real(place)), SOURCES[name]
    for feature, rule in source.public.items():
        if isinstance(rule, Limits):
            values = table.numeric[feature].to_numpy()
            assert np.mean((values >= rule.low) & (values <= rule.high)) > 0.98
        elif isinstance(rule, Listed):
            codes = feature in table.codes.columns
            said = set(table.codes[feature].explode() if codes else table.categorical[feature])
            assert said - set(rule.values) <= {None, "unknown", "99"}
            assert len(said & set(rule.values)) > len(rule.values) / 2
    rows, _ = public_features(table, everyone(table), source.public)
    assert 0.99 < norms(rows).max() <= 1 + 1e-6


def test_rows_are_the_recorded_ones(tmp_path: Path) -> None:
    """Bit for bit as before the rules moved to :mod:`lowkey.tabular`: published results rest on them."""
    table = sih(60)
    table["age_years"] = [str(10 + 2 * i) for i in range(60)]
    table["proc_solic"] = [f"0303010{i:03d}" for i in range(60)]
    loaded = load_admissions("sih-sus", write(tmp_path / "t.csv", table), any_version=True)
    rows, names = public_features(loaded, everyone(loaded), SOURCES["sih-sus"].public)
    digest = hashlib.sha256(b"".join(part.tobytes() for part in (rows.indptr, rows.indices, rows.data)))
    digest.update("|".join(names).encode())
    assert digest.hexdigest() == "ae3ce00c6328a93d60354f69b50a092419138c4ae8539085df511ee8ced7813c"
