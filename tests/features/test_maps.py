"""One contract for every map: shapes, single rows, digests, refusals; and chains of maps."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
import tomllib
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from lowkey.errors import InvalidInput
from lowkey.experiments.tables import to_record, to_table
from lowkey.features import (
    FEATURES,
    Beside,
    Bins,
    Centred,
    Chain,
    Columns,
    Constant,
    FeatureMap,
    GroupNorm,
    Hashing,
    Projection,
    Scattering,
    Splines,
    UnitNorm,
)
from lowkey.types import FloatArray

MAPS: dict[str, FeatureMap] = {
    "scattering": Scattering(scales=1, angles=3),
    "group-norm": GroupNorm(groups=4),
    "unit-norm": UnitNorm(norm=2.0),
    "constant": Constant(value=0.5),
    "centred": Centred(mean=tuple(range(96)), scales=(2.0,) * 96),
    "projection": Projection(size=20),
    "hashing": Hashing(size=20),
    "columns": Columns(chosen=(3, 95, 0)),
    "splines": Splines(knots=4, low=0.0, high=1.0),
    "bins": Bins(edges=(0.25, 0.5)),
}
"""One of each kind, for rows of the shape below."""
SHAPE = (8, 12)
CHANGES: dict[str, dict[str, Any]] = {
    "scattering": {"scales": 2, "angles": 4, "order": 1, "image": SHAPE},
    "group-norm": {"groups": 2, "epsilon": 1e-4},
    "unit-norm": {"norm": 1.0, "at_most": True},
    "constant": {"value": 0.25},
    "centred": {"mean": (1.0,) * 96, "scales": None},
    "projection": {"size": 19, "seed": 1},
    "hashing": {"size": 19, "seed": 1},
    "columns": {"chosen": (95, 3, 0)},
    "splines": {"knots": 3, "low": 0.5, "high": (1.0,) * 96, "missing": True},
    "bins": {"edges": (0.25, 0.75), "missing": True},
}
"""Another value of every setting."""
kinds = pytest.mark.parametrize("kind", list(FEATURES))


def rows_of(count: int, shape: tuple[int, ...] = SHAPE, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).random((count, *shape), np.float32)


def as_dense(rows: Any) -> Any:
    return rows.toarray() if hasattr(rows, "toarray") else rows


def test_every_kind_is_tested_here() -> None:
    assert set(MAPS) == set(CHANGES) == set(FEATURES)
    assert all(isinstance(MAPS[kind], FEATURES[kind]) for kind in FEATURES)


@kinds
@pytest.mark.parametrize("count", [0, 1, 5])
def test_width_tells_the_shape_without_data(kind: str, count: int) -> None:
    mapped = MAPS[kind](rows_of(count))
    assert mapped.shape == (count, MAPS[kind].width(SHAPE))
    assert mapped.dtype == np.float32


@kinds
def test_a_row_has_the_same_features_alone_and_with_others(kind: str) -> None:
    rows = rows_of(7)
    np.testing.assert_allclose(MAPS[kind](rows)[3], MAPS[kind](rows[3:4])[0], atol=1e-6)


@kinds
def test_rows_are_not_changed(kind: str) -> None:
    rows = rows_of(3)
    before = rows.copy()
    MAPS[kind](rows)
    np.testing.assert_array_equal(rows, before)


@kinds
def test_blocks_of_rows_are_put_together(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(11)
    whole = MAPS[kind](rows)
    monkeypatch.setattr("lowkey.features.maps._BLOCK", 3 * math.prod(SHAPE))
    np.testing.assert_allclose(MAPS[kind](rows), whole, atol=1e-6)


@kinds
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_named_with_its_row_and_map(
    kind: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lowkey.features.maps._BLOCK", 2 * math.prod(SHAPE))
    rows = rows_of(6)
    rows[4, 2, 3] = value
    if kind == "columns" and np.isnan(value):
        np.testing.assert_array_equal(Columns(chosen=(27,))(rows)[4], [np.nan])  # left to the next map
        return
    with pytest.raises(InvalidInput, match=f"row 4 of the input of the map '{kind}' holds {value}"):
        MAPS[kind](rows)


def test_features_that_overflow_are_refused() -> None:
    rows = np.ones((3, 2), np.float32)
    rows[1] = 3e38
    with pytest.raises(InvalidInput, match="row 1 of the output of the map 'centred' holds inf"):
        Centred(mean=(0.0, 0.0), scales=(1e-3, 1.0))(rows)


@kinds
def test_sparse_rows_are_taken_or_refused_by_name(kind: str) -> None:
    rows = rows_of(4).reshape(4, -1)
    sparse = scipy.sparse.csr_array(rows)
    if not FEATURES[kind].takes_sparse:  # type: ignore[attr-defined]
        with pytest.raises(InvalidInput, match=f"the map '{kind}' takes dense rows, and these are sparse"):
            MAPS[kind](sparse)
    else:
        np.testing.assert_allclose(as_dense(MAPS[kind](sparse)), MAPS[kind](rows), atol=1e-5)
        sparse.data[96 * 2 + 5] = np.inf
        with pytest.raises(InvalidInput, match=f"row 2 of the input of the map '{kind}' holds inf"):
            MAPS[kind](sparse)


@kinds
@pytest.mark.parametrize("rows", [np.ones(5), 3.0, [["a", "b"]]], ids=["vector", "number", "text"])
def test_what_is_no_matrix_of_numbers_is_refused(kind: str, rows: Any) -> None:
    with pytest.raises(InvalidInput, match=f"the map '{kind}' (got an array of shape|takes rows of numbers)"):
        MAPS[kind](rows)


@kinds
def test_equal_settings_have_equal_digests_and_any_change_another(kind: str) -> None:
    one = MAPS[kind]
    assert dataclasses.replace(one).digest == one.digest  # type: ignore[type-var]
    assert {field.name for field in dataclasses.fields(one)} == set(CHANGES[kind])  # type: ignore[arg-type]
    changed = [
        dataclasses.replace(one, **{name: value}).digest  # type: ignore[type-var]
        for name, value in CHANGES[kind].items()
    ]
    assert len({one.digest, *changed}) == 1 + len(changed)


def test_digests_stay_the_same() -> None:
    """Recorded once: policies and approvals hold them."""
    assert Scattering().digest == "526b53dcb05c0c4fea64bbf9874fbdecc0e55ce268e1b4c43daa30a88c177300"
    assert (
        Chain((GroupNorm(), Projection(size=1500))).digest
        == "433bc930dbcc31d1b5fa827b78d273b355a520f55ae99c45d09a1d6f406b1d0d"
    )


def test_kinds_with_the_same_settings_have_digests_of_their_own() -> None:
    assert Projection(size=3).digest != Hashing(size=3).digest


def test_equal_numbers_are_equal_settings() -> None:
    assert UnitNorm(norm=1).digest == UnitNorm(norm=1.0).digest
    assert Hashing(size=np.int64(3)).digest == Hashing(size=3).digest  # type: ignore[arg-type]


def test_a_digest_is_the_same_in_another_process() -> None:
    code = "from lowkey.features import *; print(Chain((Scattering(), Constant(value=0.1))).digest)"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.strip() == Chain((Scattering(), Constant(value=0.1))).digest


def test_a_chain_is_its_maps_one_after_the_other() -> None:
    rows = rows_of(4)
    chain = Chain((Scattering(scales=1), GroupNorm(groups=3), Projection(size=50), Constant(value=1.0), UnitNorm()))
    step = rows
    for one in chain.maps:
        step = one(step)
    np.testing.assert_array_equal(chain(rows), step)
    assert chain.width(SHAPE) == step.shape[1] == 51
    np.testing.assert_array_equal(Chain((Chain(chain.maps[:2]), *chain.maps[2:]))(rows), step)


def test_a_chain_of_nothing_changes_nothing() -> None:
    rows = rows_of(2)
    assert Chain()(rows) is rows
    assert Chain().width(SHAPE) == 96
    assert Chain().width(7) == 7


def test_the_order_of_a_chain_is_in_its_digest() -> None:
    one, other = Constant(value=1.0), UnitNorm()
    assert len({Chain(maps).digest for maps in ((), (one,), (one, other), (other, one))}) == 4


def test_what_is_no_map_is_not_chained() -> None:
    with pytest.raises(InvalidInput, match="part 1 of a chain is 'projection'; it must be a feature map"):
        Chain((UnitNorm(), "projection"))  # type: ignore[arg-type]


def test_maps_beside_each_other_have_their_columns_in_order() -> None:
    rows = np.array([[1.0, np.nan, 0.5], [2.0, 1.0, -3.0]], np.float32)
    ages, laboratory = Columns(chosen=(1,)), Columns(chosen=(2, 0))
    beside = Beside((Chain((ages, Bins(edges=(0.0,), missing=True))), laboratory))
    np.testing.assert_array_equal(beside(rows), [[0, 0, 1, 0.5, 1], [0, 1, 0, -3, 2]])
    assert beside.width(3) == 5
    assert len({beside.digest, Beside((laboratory,)).digest, Chain((laboratory,)).digest, laboratory.digest}) == 4


def test_sparse_maps_beside_each_other_stay_sparse_together_only() -> None:
    dense = rows_of(4, (50,))
    sparse = scipy.sparse.csr_array(dense)
    stays, becomes = Beside((Hashing(size=4), Columns(chosen=(7,)))), Beside((Hashing(size=4), Projection(size=5)))
    assert hasattr(stays(sparse), "toarray")
    assert isinstance(becomes(sparse), np.ndarray)
    for beside in (stays, becomes):
        np.testing.assert_allclose(as_dense(beside(sparse)), beside(dense), atol=1e-5)


def test_columns_and_beside_refuse_what_is_not_there() -> None:
    with pytest.raises(InvalidInput, match="column 3 is chosen, and a row has 3 numbers"):
        Columns(chosen=(0, 3)).width(3)
    with pytest.raises(InvalidInput, match="column 3 is chosen"):
        Columns(chosen=(0, 3))(scipy.sparse.csr_array(np.ones((2, 3))))
    with pytest.raises(InvalidInput, match="chosen is empty"):
        Columns(chosen=())
    with pytest.raises(InvalidInput, match="a column is -1"):
        Columns(chosen=(-1,))
    with pytest.raises(InvalidInput, match="beside has no maps"):
        Beside(())


@kinds
def test_tables_of_toml_make_the_same_map(kind: str) -> None:
    text = tomli_w.dumps({"map": to_table(MAPS[kind])})
    read = to_record("features", FEATURES[kind], tomllib.loads(text)["map"])
    assert read == MAPS[kind]
    assert read.digest == MAPS[kind].digest


@st.composite
def chains(draw: st.DrawFn) -> tuple[Chain, tuple[int, int]]:
    """A chain, and the shape of images for it."""
    shape = draw(st.tuples(st.integers(4, 20), st.integers(4, 20)))
    maps: list[FeatureMap] = []
    if draw(st.booleans()):
        maps.append(Scattering(scales=draw(st.integers(1, 2)), angles=2, order=draw(st.integers(1, 2))))
    for kind in draw(st.lists(st.sampled_from([kind for kind in FEATURES if kind != "scattering"]), max_size=6)):
        size = Chain(tuple(maps)).width(shape)
        settings: dict[str, Any] = {}
        if kind == "group-norm":
            settings["groups"] = draw(st.sampled_from([groups for groups in range(1, size + 1) if size % groups == 0]))
        elif kind == "projection":
            settings["size"] = draw(st.integers(1, size - 1))
        elif kind == "columns":
            settings["chosen"] = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=9))
        elif kind == "splines":
            settings |= {"knots": 3, "low": -1.0, "high": (1.0,) * size, "missing": draw(st.booleans())}
        elif kind == "bins":
            settings |= {"edges": (0.0, 0.5), "missing": draw(st.booleans())}
        elif kind == "hashing":
            settings["size"] = draw(st.integers(2, 30))
        elif kind == "centred":
            settings["mean"] = (0.5,) * size
        maps += [FEATURES[kind](**settings), Constant()]  # a row of one number cannot be projected
    return Chain(tuple(maps)), shape


@given(chains())
def test_any_chain_has_the_width_that_it_says(drawn: tuple[Chain, tuple[int, int]]) -> None:
    chain, shape = drawn
    mapped = chain(rows_of(2, shape))
    assert math.prod(mapped.shape[1:]) == chain.width(shape)
