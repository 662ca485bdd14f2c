"""The synthetic stand-in: the paper's shape, a known ceiling, signal that can be learned, bounded memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from lowkey.errors import InvalidInput
from lowkey.rng import generator
from lowkey.tabular import SparseRows
from lowkey.tasks.mortality import synthetic as module
from lowkey.tasks.mortality.division import Layout
from lowkey.tasks.mortality.synthetic import SyntheticHospitalData, bayes_auroc, make_synthetic_hospital_data


@pytest.fixture(scope="module")
def data() -> SyntheticHospitalData:
    return make_synthetic_hospital_data(scale=0.02)


def test_shape(data: SyntheticHospitalData) -> None:
    found = data.summary()
    assert (found["features"], found["train_admissions"], found["test_admissions"]) == (7_280, 20_348, 5_087)
    assert (found["clients"], found["smallest_client"]) == (100, 203)
    assert min(data.train_died[data.clients[c]].sum() for c in range(100)) >= 1
    for rows in (data.train, data.test):
        assert rows.shape == (len(data.train_died if rows is data.train else data.test_died), 7_280)
        assert rows.dtype == np.float32
        assert rows.indices.dtype == rows.indptr.dtype == np.int32
        assert rows.has_canonical_format
        assert 0 <= rows.data.min() <= rows.data.max() == 1


def test_deaths_and_drugs_are_as_rare_as_they_should_be(data: SyntheticHospitalData) -> None:
    """25,435 admissions at 3.14 %: 4.5 standard deviations are 0.5 %, plus 0.1 % for calibration on 50,000 others."""
    assert (data.train_died.sum() + data.test_died.sum()) / 25_435 == pytest.approx(module.MORTALITY, abs=0.006)
    used = np.sort(np.diff(data.train.tocsc().indptr)[module._FIRST_DRUG :])[::-1]
    assert 5 < used.sum() / 20_348 < 12  # drugs per patient
    assert used[:73].sum() > used.sum() / 3  # a third of all is one drug in a hundred


def test_everything_says_that_it_is_synthetic(data: SyntheticHospitalData) -> None:
    assert "Synthetic" in repr(data)
    assert "synthetic" in data.source
    assert all(name.startswith("synthetic ") for name in data.feature_names)
    assert len(set(data.feature_names)) == 7_280


def differences(one: SparseRows, other: SparseRows) -> int:
    unequal: Any = one != other
    return int(unequal.nnz)


def test_seed_decides() -> None:
    one, same, other = (make_synthetic_hospital_data(scale=0.002, seed=seed) for seed in (1, 1, 2))
    assert differences(one.train, same.train) == 0
    np.testing.assert_array_equal(one.test_died, same.test_died)
    assert differences(one.train, other.train) > 0


def test_hospitals_are_unequal_and_have_their_own_drugs() -> None:
    data = make_synthetic_hospital_data(scale=0.02, layout=Layout(kind="natural"))
    assert len(data.clients) + data.excluded_hospitals == 8
    assert data.clients.sizes.max() > 3 * data.clients.sizes.min()
    large, next_largest = (data.train[data.clients[c]] for c in np.argsort(data.clients.sizes)[:-3:-1])
    rates: list[np.ndarray] = [np.asarray(rows[:, module._FIRST_DRUG :].mean(axis=0)) for rows in (large, next_largest)]
    favourite = int(np.argmax(rates[0] - rates[1]))
    assert rates[0][favourite] > 2 * rates[1][favourite]


@pytest.mark.parametrize("risk", [[0.1, 0.4, 0.4, 0.9], [0.2, 0.3], [0.5, 0.5, 0.5], [0.03, 0.01, 0.5, 0.02, 0.03]])
def test_bayes_auroc_is_the_sum_over_all_pairs(risk: list[float]) -> None:
    pairs = [(p, q) for i, p in enumerate(risk) for j, q in enumerate(risk) if i != j]
    weight = sum(p * (1 - q) for p, q in pairs)
    ranked = sum(p * (1 - q) * ((p > q) + (p == q) / 2) for p, q in pairs)
    assert bayes_auroc(np.array(risk)) == pytest.approx(ranked / weight, rel=1e-12)


def test_the_ceiling_is_what_the_true_risk_reaches() -> None:
    """Standard error of the AUROC with 1,500 deaths is below 0.006; four of them: false alarm below 1e-4."""
    world = module._world(40, generator(0, "test"))
    (block,) = module._blocks(world, module._BLOCK, 0)
    assert roc_auc_score(block.died, block.risk) == pytest.approx(bayes_auroc(block.risk), abs=0.024)


def test_signal_can_be_learned_but_not_beyond_the_ceiling(data: SyntheticHospitalData) -> None:
    """Standard error with 160 deaths is about 0.02: three of them above the ceiling would be an error of the latter."""
    plain = LogisticRegression(C=0.1, class_weight="balanced", max_iter=200).fit(data.train, data.train_died)
    reached = roc_auc_score(data.test_died, plain.decision_function(data.test))
    assert 0.70 < reached < data.bayes_auroc + 0.06
    assert 0.8 < data.bayes_auroc < 0.9


def test_memory_is_a_few_times_the_result() -> None:
    """Blocks cost a fixed 80 MB at most; beyond them, two copies of all rows."""
    tracemalloc.start()
    data = make_synthetic_hospital_data(scale=0.1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    result = sum(part.nbytes for rows in (data.train, data.test) for part in (rows.data, rows.indices, rows.indptr))
    assert peak < 2.5 * result + 80e6


def test_bad_requests_are_refused() -> None:
    with pytest.raises(InvalidInput, match="scale is 0"):
        make_synthetic_hospital_data(scale=0)
