"""Solvers of the LASSO: all against scikit-learn and against each other, judged by one certificate."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import scipy.fft
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Lasso

from benchmarks.owlqn import by_owlqn
from lowkey.codec.solvers import Problem, Solution, by_active_set, by_admm, certify
from lowkey.codec.solvers import active_set as module
from lowkey.codec.solvers.peaks import certify_lowered, gram_table
from lowkey.codec.solvers.threads import Threads

Solver = Callable[..., Solution]
SOLVERS: list[Solver] = [by_active_set, by_admm]
OWLQN = pytest.param(by_owlqn, marks=pytest.mark.skipif(find_spec("lbfgs") is None, reason="pip install pylbfgs"))


def problem(
    blocks: int = 4, length: int = 60, kept: int = 30, factor: float = 0.1, seed: int = 0, dtype: type = np.float64
) -> Problem:
    """Sparse signals with noise; λ = factor · λ_max."""
    rng = np.random.default_rng(seed)
    x = np.where(rng.random((blocks, length)) < 0.1, rng.normal(size=(blocks, length)) * 5, 0.0)
    y = scipy.fft.dct(x, norm="ortho")[:, :kept] + rng.normal(size=(blocks, kept)) * 0.05
    largest = np.abs(scipy.fft.idct(y, n=length, norm="ortho")).max()
    return Problem(y=y.astype(dtype), lam=float(factor * largest), length=length)


def relative_gap(problem: Problem, s: np.ndarray) -> float:
    certificate = certify(problem, s)
    return float(certificate.gap.sum() / certificate.objective.sum())


@pytest.mark.parametrize("solver", [*SOLVERS, OWLQN])
@pytest.mark.parametrize("factor", [0.05, 0.3, 0.8])
def test_solvers_agree_with_scikit_learn(solver: Solver, factor: float) -> None:
    task = problem(factor=factor)
    found = solver(task, tolerance=1e-9, max_iterations=20_000).s
    theta = scipy.fft.dct(np.eye(task.length), axis=0, norm="ortho")[: task.y.shape[1]]
    for block, y in zip(found, task.y, strict=True):
        # scikit-learn minimises 1/(2 rows) ‖y − Θs‖² + alpha ‖s‖₁
        model = Lasso(alpha=task.lam / len(y), fit_intercept=False, tol=1e-12, max_iter=100_000)
        np.testing.assert_allclose(block, model.fit(theta, y).coef_, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("solver", [*SOLVERS, OWLQN])
def test_solvers_keep_the_type_and_reach_the_tolerance_in_float32(solver: Solver) -> None:
    task = problem(blocks=6, length=520, kept=52, factor=0.2, dtype=np.float32)
    solution = solver(task, tolerance=1e-3, max_iterations=5000)
    assert solution.s.dtype == np.float32
    assert solution.s.shape == (6, 520)
    assert relative_gap(task, solution.s) <= 1e-3
    assert 0 < solution.iterations < 5000


@pytest.mark.parametrize("solver", SOLVERS)
def test_certificate_bounds_the_distance_to_the_optimum(solver: Solver) -> None:
    task = problem()
    rough, fine = (certify(task, solver(task, tolerance=t, max_iterations=20_000).s) for t in (0.2, 1e-9))
    assert rough.reached(0.2)
    assert fine.reached(1e-9)
    apart, gap = rough.objective.sum() - fine.objective.sum(), rough.gap.sum()
    assert -1e-9 * fine.objective.sum() <= apart <= gap


@pytest.mark.parametrize("solver", SOLVERS)
def test_solvers_give_up_where_they_are_told_to(solver: Solver) -> None:
    task = problem(factor=0.001)
    solution = solver(task, tolerance=1e-12, max_iterations=2)
    assert solution.iterations == 2
    assert relative_gap(task, solution.s) > 1e-12
    assert np.isfinite(solution.s).all()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    length=st.sampled_from([1, 2, 7, 30, 91]),
    share=st.floats(0.01, 1.0),
    factor=st.floats(0.01, 1.5),
)
def test_active_set_and_admm_find_the_same_objective(seed: int, length: int, share: float, factor: float) -> None:
    task = problem(blocks=3, length=length, kept=max(1, round(share * length)), factor=factor, seed=seed)
    first, second = (solver(task, tolerance=1e-6, max_iterations=20_000).s for solver in SOLVERS)
    assert relative_gap(task, first) <= 1e-6
    assert certify(task, first).objective.sum() == pytest.approx(certify(task, second).objective.sum(), rel=1e-5)


def test_gram_table_gives_inner_products_of_columns() -> None:
    for length, kept in ((12, 5), (12, 12), (9, 1)):
        theta = scipy.fft.dct(np.eye(length), axis=0, norm="ortho")[:kept]
        i, j = np.indices((length, length))
        table = gram_table(length, kept)
        np.testing.assert_allclose(table[abs(i - j)] + table[i + j + 1], theta.T @ theta, atol=1e-12)


def test_neighbours_that_share_a_spike_are_solved_quickly() -> None:
    """Two adjacent columns of a low-pass matrix are nearly parallel: plain coordinate descent needs thousands of
    passes, a few rounds of at most a hundred must do."""
    x = np.zeros((1, 2000))
    x[0, [300, 301, 302, 1500, 1501]] = 1.0
    y = scipy.fft.dct(x, norm="ortho")[:, :40]
    task = Problem(y=y, lam=1e-3 * float(np.abs(scipy.fft.idct(y, n=2000, norm="ortho")).max()), length=2000)
    solution = by_active_set(task, tolerance=1e-3, max_iterations=1000)
    assert relative_gap(task, solution.s) <= 1e-3
    assert solution.iterations <= 20


def calls_of_admm(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many blocks the active set leaves to ADMM, call by call."""
    called: list[int] = []

    def counted(rest: Problem, **options: Any) -> Solution:
        called.append(len(rest.y))
        return by_admm(rest, **options)

    monkeypatch.setattr(module, "by_admm", counted)
    return called


def test_large_supports_are_left_to_admm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dense signals at a small λ: more coordinates than a working set may hold."""
    rng = np.random.default_rng(0)
    y = scipy.fft.dct(rng.normal(size=(2, 4000)), norm="ortho")[:, :3600]
    y[1] *= 1e-3  # below λ: solved at once by zero
    task = Problem(y=y, lam=0.05, length=4000)
    called = calls_of_admm(monkeypatch)
    solution = by_active_set(task, tolerance=1e-3, max_iterations=1000)
    assert called == [1]
    assert not solution.s[1].any()
    assert relative_gap(task, solution.s) <= 1e-3


def test_working_sets_that_grow_large_are_left_to_admm(monkeypatch: pytest.MonkeyPatch) -> None:
    task = problem(blocks=3, length=520, kept=104, factor=0.05)
    monkeypatch.setattr(module, "_LARGE", 10)
    called = calls_of_admm(monkeypatch)
    solution = by_active_set(task, tolerance=1e-4, max_iterations=1000)
    assert called == [3]
    assert relative_gap(task, solution.s) <= 1e-4


def test_lowering_a_peak_closes_the_gap_that_it_made() -> None:
    """One wrong coordinate near the optimum makes nearly the whole gap; lowering it needs no more iterations."""
    task = problem(blocks=2, length=520, kept=104, factor=0.2)
    s = by_active_set(task, tolerance=1e-9, max_iterations=1000).s
    s[1, np.abs(s[1]).argmax()] *= 0.995
    before, untouched = certify(task, s), s[0].copy()
    assert before.gap[1] > 1e-3 * before.objective[1]
    with Threads() as threads:
        after = certify_lowered(task, s, 1e-3, threads)
    assert after.gap[1] <= 1e-3 * after.objective[1]
    assert after.objective[1] < before.objective[1]
    np.testing.assert_array_equal(s[0], untouched)


def test_far_from_the_optimum_nothing_is_lowered() -> None:
    task, s = problem(), np.zeros((4, 60))
    with Threads() as threads:
        state = certify_lowered(task, s, 1e-3, threads)
    assert not s.any()
    np.testing.assert_array_equal(state.gap, certify(task).gap)


def test_threads_change_nothing() -> None:
    task = problem(blocks=20, length=520, kept=52, dtype=np.float32)
    alone = by_active_set(task, tolerance=1e-4, max_iterations=100)
    with scipy.fft.set_workers(2):
        together = by_active_set(task, tolerance=1e-4, max_iterations=100)
    np.testing.assert_array_equal(alone.s, together.s)
    assert alone.iterations == together.iterations


def test_certificate_by_hand() -> None:
    """One block, Θ orthogonal: at zero objective and gap are known in closed form."""
    y = np.array([[3.0, 0.5]])
    certificate = certify(Problem(y=y, lam=1.0, length=2), np.zeros((1, 2)))
    assert certificate.objective[0] == pytest.approx(0.5 * (9 + 0.25))
    spectrum = scipy.fft.idct(y, norm="ortho")
    np.testing.assert_allclose(certificate.correlation, spectrum)
    dual = y[0] / float(np.abs(spectrum).max())
    assert certificate.gap[0] == pytest.approx(0.5 * 9.25 - (0.5 * 9.25 - 0.5 * float(((y[0] - dual) ** 2).sum())))
    assert not certificate.reached(1e-3)


def test_certificate_is_tight_at_the_soft_threshold() -> None:
    """With all coefficients kept, the solution is a soft threshold of the inverse transform, and the gap is 0."""
    y = np.random.default_rng(0).normal(size=(3, 16))
    x = scipy.fft.idct(y, norm="ortho")
    certificate = certify(Problem(y=y, lam=0.3, length=16), x - np.clip(x, -0.3, 0.3))
    assert certificate.gap.sum() == pytest.approx(0.0, abs=1e-12)
    assert certificate.reached(1e-9)


@pytest.mark.parametrize("solver", [*SOLVERS, OWLQN])
def test_zero_measurements_give_zero(solver: Solver) -> None:
    task = Problem(y=np.zeros((2, 5), np.float32), lam=1.0, length=10)
    assert not solver(task, tolerance=1e-3, max_iterations=10).s.any()
