"""What a client answers from its rows: whose fault is whose, where persons are protected."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from lowkey.analytics import Frequencies, Mean, Question, ScoreQuestion
from lowkey.errors import CannotContribute
from lowkey.learning import DataRespondent, RiskHead, model_vector

PERSONS, FEATURES = 50, 3
WEIGHTS = model_vector(RiskHead(FEATURES, bias=False))
SCORES = ScoreQuestion(rows=2, prevalence=0.3)
CODES = Frequencies(name="codes", column="code", vocabulary=("a", "b"), among="units")
AGE = Mean(name="age", limits={"age": (0, 100)})


def damaged(what: str | None) -> Any:
    """Two rows of each of 50 persons; one row of person 8 is not what it should be."""
    rng = np.random.default_rng(0)
    rows, died = rng.uniform(-0.5, 0.5, (2 * PERSONS, FEATURES)).astype(np.float32), np.zeros(2 * PERSONS, np.float32)
    died[::3] = 1
    codes: NDArray[Any] = rng.choice(np.array(["a", "b", "c"], object), 2 * PERSONS)
    ages: NDArray[Any] = rng.uniform(0, 100, 2 * PERSONS).astype(object)
    if what == "nan":
        rows[17] = np.nan
    elif what == "label":
        died[17] = 2
    elif what == "code":
        codes[17] = 5
    elif what == "age":
        ages[17] = "old"
    ids = np.arange(2 * PERSONS) // 2
    return [(rows, died, ids)], [({"code": codes, "age": ages}, ids)]


def answers(question: Question, what: str | None, units: Literal["client", "ids"] = "ids") -> NDArray[np.float64]:
    held_out, tables = damaged(what)
    respondent = DataRespondent(RiskHead(FEATURES, bias=False), held_out, tables, units=units)
    return np.concatenate(list(respondent.answers(question, WEIGHTS, 0)))


@pytest.mark.parametrize(
    ("question", "what"), [(SCORES, "nan"), (SCORES, "label"), (CODES, "code"), (AGE, "age")], ids=str
)
def test_what_is_wrong_with_one_person_silences_no_other(
    question: Question, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    before, after = answers(question, None), answers(question, what)
    assert before.any(axis=1).all()
    assert not after[8].any()
    np.testing.assert_array_equal(np.delete(after, 8, axis=0), np.delete(before, 8, axis=0))
    assert f"1 of {PERSONS} persons cannot answer" in caplog.text


@pytest.mark.parametrize(("question", "what"), [(SCORES, "nan"), (CODES, "code"), (AGE, "age")], ids=str)
def test_a_client_that_is_protected_itself_says_why(question: Question, what: str) -> None:
    assert answers(question, None, "client").shape[0] == 1
    with pytest.raises(CannotContribute):
        answers(question, what, "client")
