"""No vector is longer than 1, whatever the rows are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowkey.analytics import (
    Count,
    Frequencies,
    FrequentCodes,
    Histogram,
    Mean,
    Missingness,
    Moments,
    Quantiles,
    Question,
    Sum,
    codes,
    vocabularies,
)
from lowkey.analytics import rows as rows_module
from tests.analytics.tables import objects

LIMITS = {"x": (-3.0, 5.0), "y": (0.0, 1e-3)}
CLASSES = {"by": "label", "values": ("a", "b")}
ALL: list[Question] = [
    Count(name="q", column="x", most_rows=2),
    Count(name="q", column="x", most_rows=3, by="label", values=("a", "b")),
    Sum(name="q", limits=LIMITS, most_rows=2),
    Mean(name="q", limits=LIMITS),
    Mean(name="q", limits=LIMITS, weight="rows", most_rows=2, by="label", values=("a", "b")),
    Missingness(name="q", of=("x", "label", "codes")),
    Histogram(name="q", column="x", low=-1, high=1, bins=3, outside="own", by="label", values=("a",)),
    Quantiles(name="q", column="x", edges=(0, 1), weight="rows", most_rows=1),
    Frequencies(name="q", column="label", vocabulary=("a",)),
    Frequencies(name="q", column="codes", vocabulary=("A", "B", "C"), most=2),
    Frequencies(name="q", column="codes", vocabulary=("A", "B", "C"), most=2, weight="rows", most_rows=2),
    Frequencies(name="q", column="codes", vocabulary=("A", "B"), among="units", most=1),
    Frequencies(name="q", column="codes", vocabulary=("A", "B", "C"), among="units", by="label", values=("a", "b")),
    FrequentCodes(name="q", column="codes", alphabet="ABCDE", characters=3, most=4, cells=8, by="label", values=("b",)),
    Moments(name="q", limits=LIMITS, by="label", values=("a", "b")),
]
NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
ROWS = st.tuples(
    NUMBERS, NUMBERS, st.sampled_from(["a", "b", "c", None]), st.lists(st.text("ABCDEF", max_size=4), max_size=6)
)


@settings(max_examples=60, deadline=None)
@given(units=st.lists(st.lists(ROWS, max_size=6), min_size=1, max_size=4))
def test_no_vector_is_longer_than_one(units: list[list[tuple[float, float, str | None, list[str]]]]) -> None:
    every = [row for unit in units for row in unit]
    rows = {
        "x": np.array([row[0] for row in every], float),
        "y": np.array([row[1] for row in every], float),
        "label": objects([row[2] for row in every]),
        "codes": objects([tuple(row[3]) for row in every]),
    }
    starts = np.concatenate([[0], np.cumsum([len(unit) for unit in units])]).astype(np.intp)
    for question in ALL:
        found = question.vectors(rows, starts)
        assert found.shape == (len(units), question.length)
        assert np.linalg.norm(found, axis=1).max() <= 1 + 1e-9
        with pytest.MonkeyPatch.context() as patch:  # they are not made that short at last, but by what they are
            for module in (rows_module, vocabularies, codes):
                patch.setattr(module, "within_one", lambda vectors: vectors)
            assert np.linalg.norm(question.vectors(rows, starts), axis=1).max() <= 1 + 1e-9


@pytest.mark.parametrize("question", ALL, ids=lambda question: type(question).__name__)
def test_a_vector_depends_on_no_other_unit(question: Question) -> None:
    rng = np.random.default_rng(0)
    rows = {
        "x": rng.normal(size=9),
        "y": rng.random(9) / 1000,
        "label": objects(list("abcabcabc")),
        "codes": objects([tuple(rng.choice(list("ABCD"), 3)) for _ in range(9)]),
    }
    together = question.vectors(rows, np.array([0, 4, 9]))
    alone = question.vectors({name: column[4:] for name, column in rows.items()}, np.array([0, 5]))
    np.testing.assert_allclose(together[1], alone[0], atol=1e-12)
