"""Encoding: hand-computed rows, nothing learned from held-out rows, unseen values, no leaks, real sizes."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
import pytest

from lowkey.errors import DataError, InvalidInput
from lowkey.tasks.mortality.admissions import Admissions
from lowkey.tasks.mortality.features import fit_features
from lowkey.tasks.mortality.sources import SOURCES, load_admissions
from tests.tasks.mortality.tables import real


def admissions(
    *, age: list[float | None], kind: list[str] | None = None, drug: list[list[str]] | None = None
) -> Admissions:
    return Admissions(
        source="test",
        numeric=pl.DataFrame({"age": age}, schema={"age": pl.Float32}),
        categorical=pl.DataFrame({"kind": kind} if kind else {}),
        codes=pl.DataFrame({"drug": drug} if drug else {}),
        died=np.zeros(len(age), bool),
    )


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.intp)


def test_by_hand() -> None:
    table = admissions(
        age=[20, 40, 60, 30], kind=["a", "b", "b", "a"], drug=[["x", "y", "x"], ["y"], [], ["y", "z", "x"]]
    )
    encode = fit_features(table, rows(0, 1, 2, 3), min_count=2)
    assert encode.names == ("age", "kind=a", "kind=b", "drug=x", "drug=y")
    found = encode(table, rows(3, 0, 2))
    expected = [[0.25, 1, 0, 1, 1], [0, 1, 0, 1, 1], [1, 0, 1, 0, 0]]
    np.testing.assert_array_equal(found.toarray(), np.array(expected, np.float32))
    assert found.format == "csr"
    assert found.dtype == np.float32
    assert found.indices.dtype == found.indptr.dtype == np.int32


def test_only_training_rows_are_learned_from() -> None:
    train = rows(0, 1, 2)
    one = admissions(age=[20, 40, 60, 10], kind=["a", "a", "b", "a"], drug=[["x"], ["x"], ["y"], ["y"]])
    other = admissions(age=[20, 40, 60, 99], kind=["a", "a", "b", "b"], drug=[["x"], ["x"], ["y"], ["x", "y"]])
    encoders = [fit_features(table, train, min_count=2) for table in (one, other)]
    assert encoders[0].names == encoders[1].names == ("age", "kind=a", "kind=infrequent", "drug=x")
    np.testing.assert_array_equal(encoders[0](one, train).toarray(), encoders[1](one, train).toarray())


def test_unseen_values_have_a_place() -> None:
    table = admissions(age=[20, 40, 60, 90], kind=["a", "a", "b", "new"], drug=[["x"], ["x"], ["x"], ["new", "x"]])
    counted_as_infrequent = fit_features(table, rows(0, 1, 2), min_count=2)
    assert counted_as_infrequent(table, rows(3)).toarray().tolist() == [[1, 0, 1, 1]]  # the age is clipped
    all_zeros = fit_features(table, rows(0, 1, 2), min_count=1)
    assert all_zeros.names == ("age", "kind=a", "kind=b", "drug=x")
    assert all_zeros(table, rows(3)).toarray().tolist() == [[1, 0, 0, 1]]


def test_a_missing_age_is_the_median_of_training_rows() -> None:
    table = admissions(age=[20, 30, 60, None, float("nan"), 60])
    encode = fit_features(table, rows(0, 1, 2, 3))
    np.testing.assert_array_equal(encode(table, rows(3, 4)).toarray(), np.array([[0.25], [0.25]], np.float32))
    with pytest.raises(DataError, match="age is missing in all 2 training rows"):
        fit_features(table, rows(3, 4))


def test_codes_may_all_be_rare() -> None:
    table = admissions(age=[1, 2], drug=[["x"], []])
    encode = fit_features(table, rows(0, 1), min_count=2)
    assert encode.names == ("age",)
    assert encode(table, rows(0, 1)).shape == (2, 1)
    assert encode(table, rows()).shape == (0, 1)


def test_bad_requests_are_refused() -> None:
    table = admissions(age=[1, 2], kind=["a", "b"])
    with pytest.raises(InvalidInput, match="min_count is 0"):
        fit_features(table, rows(0), min_count=0)
    with pytest.raises(InvalidInput, match="training rows is 0"):
        fit_features(table, rows())
    with pytest.raises(InvalidInput, match="fitted to age"):
        fit_features(table, rows(0))(admissions(age=[1]), rows(0))
    with pytest.raises(InvalidInput, match="hospitals has 1 rows, but there are 2 labels"):
        Admissions(
            source="test",
            numeric=pl.DataFrame(),
            categorical=pl.DataFrame(),
            codes=pl.DataFrame(),
            died=np.zeros(2, bool),
            hospitals=np.array(["a"]),
        )


@pytest.mark.parametrize(("name", "place"), [("diabetes130", "diabetes130"), ("sih-sus", "sih_sus")])
def test_real_features_hold_no_leak(name: str, place: str) -> None:
    """Of all features, the optional ones included; names of leaking columns in any of the names that files use."""
    table = load_admissions(name, real(place), features=list(SOURCES[name].features))
    everyone = np.arange(len(table))
    encode = fit_features(table, everyone)
    leaks = re.compile(
        "discharge|disposition|time_in|days|dias|stay|readmit|morte|died|death|still|cnes|patient|hospital"
    )
    assert [feature for feature in encode.names if leaks.search(feature.split("=")[0])] == []
    features = encode(table, everyone)
    assert features.shape == (len(table), len(encode.names))
    assert 0 <= features.min() <= features.max() == 1
    counts = np.diff(features.tocsc().indptr)
    assert (
        counts[[i for i, feature in enumerate(encode.names) if "=" in feature and "infrequent" not in feature]].min()
        >= 100
    )
