"""Division among clients: nobody on both sides, a death for everyone, the paper's sizes, small hospitals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkey.errors import InvalidInput
from lowkey.tasks.mortality.division import Division, Layout, divide


def deaths_of_clients(division: Division, died: np.ndarray) -> list[int]:
    return [int(died[division.train[division.clients[c]]].sum()) for c in range(len(division.clients))]


def test_the_papers_sizes() -> None:
    """1,017,386 training admissions make 5,010 hospitals of 203 and one of 356."""
    died = np.zeros(1_271_733, bool)
    died[:39_988] = True
    division = divide(died, Layout(), rng=np.random.default_rng(0))
    assert (len(division.train), len(division.test)) == (1_017_386, 254_347)
    sizes, clients = np.unique(division.clients.sizes, return_counts=True)
    assert (sizes.tolist(), clients.tolist()) == ([203, 356], [5010, 1])
    assert died[division.test].sum() == pytest.approx(0.2 * 39_988, abs=1)
    assert min(deaths_of_clients(division, died)) >= 1


@pytest.mark.parametrize("clients", [1, 7, 30])
def test_any_number_of_virtual_hospitals(clients: int) -> None:
    died = np.arange(1000) % 20 == 0
    division = divide(died, Layout(clients=clients), rng=np.random.default_rng(0))
    assert len(division.clients) == clients
    assert division.clients.sizes.max() - division.clients.sizes.min() < clients
    assert min(deaths_of_clients(division, died)) >= 1


def test_the_real_hospitals_that_take_part_do_not_depend_on_the_draw() -> None:
    """Sizes around the limit, single deaths, single survivors: whoever is held out, the same ones stay."""
    rng = np.random.default_rng(0)
    hospitals = rng.integers(0, 60, 600)
    died = rng.random(600) < np.repeat([0.05, 0.5, 0.95], 200)[hospitals * 10]
    kept = [
        set(hospitals[divide(died, Layout(kind="natural"), rng=np.random.default_rng(seed), hospitals=hospitals).train])
        for seed in range(20)
    ]
    assert 10 < len(kept[0]) < 60
    assert all(found == kept[0] for found in kept)


@given(st.integers(0, 10**6), st.integers(1, 3), st.booleans())
def test_no_patient_is_on_both_sides_or_in_two_virtual_hospitals(seed: int, min_deaths: int, natural: bool) -> None:
    rng = np.random.default_rng(seed)
    patients = rng.integers(0, 150, 400)
    died = np.isin(patients, np.arange(60)) & (rng.random(400) < 0.7)
    hospitals = rng.integers(0, 5, 400)
    layout = Layout(
        kind="natural" if natural else "virtual", admissions_per_client=40, min_deaths=min_deaths, min_admissions=5
    )
    division = divide(died, layout, rng=rng, patients=patients, hospitals=hospitals)
    assert not set(patients[division.train]) & set(patients[division.test])
    assert len(division.train) + len(division.test) + division.excluded_admissions == 400
    assert sorted(division.clients.rows.tolist()) == list(range(len(division.train)))
    members = [division.train[division.clients[c]] for c in range(len(division.clients))]
    if natural:
        assert all(len(set(hospitals[rows])) == 1 for rows in members)
    else:
        assert sum(len(set(patients[rows])) for rows in members) == len(set(patients[division.train]))
    for rows in members:
        assert len(set(patients[rows][died[rows]])) >= min_deaths


def test_held_out_share_is_the_same_in_every_hospital_and_outcome() -> None:
    hospitals = np.repeat(np.arange(40), 100)
    died = np.tile(np.arange(100) < 30, 40)
    division = divide(died, Layout(kind="natural"), rng=np.random.default_rng(1), hospitals=hospitals)
    assert len(division.test) == 800
    for hospital in range(40):
        held = division.test[hospitals[division.test] == hospital]
        assert abs(len(held) - 20) <= 1
        assert abs(died[held].sum() - 6) <= 1


def test_who_is_held_out_is_random() -> None:
    """A row that is never, or always, held out in 200 draws of 1 in 5: chance below 1e-15 for 40 rows."""
    died = np.arange(40) < 20
    held = np.zeros(40)
    for seed in range(200):
        layout = Layout(admissions_per_client=16)
        held[divide(died, layout, rng=np.random.default_rng(seed)).test] += 1
    assert 0 < held.min() <= held.max() < 200


def test_what_happens_to_small_hospitals() -> None:
    """a: large; b: nobody died; c: one patient; d: nobody survived; e: too small; f: one death, kept for training."""
    sizes = {"a": 50, "b": 50, "c": 1, "d": 50, "e": 8, "f": 50}
    deaths = {"a": 20, "b": 0, "c": 1, "d": 50, "e": 4, "f": 1}
    hospitals = np.repeat(list(sizes), list(sizes.values()))
    died = np.concatenate([np.arange(sizes[h]) < deaths[h] for h in sizes])
    for seed in range(20):
        division = divide(died, Layout(kind="natural"), rng=np.random.default_rng(seed), hospitals=hospitals)
        assert set(hospitals[division.train]) == set(hospitals[division.test]) == {"a", "f"}
        assert deaths_of_clients(division, died)[1] == 1
        assert (division.excluded_hospitals, division.excluded_admissions) == (4, 109)
    lenient = Layout(kind="natural", min_deaths=0, min_admissions=5)
    division = divide(died, lenient, rng=np.random.default_rng(0), hospitals=hospitals)
    assert set(hospitals[division.train]) == {"a", "b", "e", "f"}


def test_the_largest_hospitals() -> None:
    """By their admissions, of those that can take part at all: b is larger than any, but nobody died there."""
    sizes = {"a": 40, "b": 90, "c": 60, "d": 50}
    hospitals = np.repeat(list(sizes), list(sizes.values()))
    died = (np.arange(240) % 5 == 0) & (hospitals != "b")
    for largest, expected in ((1, {"c"}), (2, {"c", "d"}), (9, {"a", "c", "d"})):
        layout = Layout(kind="natural", largest=largest)
        division = divide(died, layout, rng=np.random.default_rng(0), hospitals=hospitals)
        assert set(hospitals[division.train]) == set(hospitals[division.test]) == expected
        assert division.excluded_hospitals == 4 - len(expected)
    with pytest.raises(InvalidInput, match="largest is 0"):
        Layout(largest=0)


def test_seed_decides() -> None:
    died = np.arange(2000) % 7 == 0
    one, same, other = (divide(died, Layout(), rng=np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.clients.rows, same.clients.rows)
    assert set(one.test) != set(other.test)


def test_bad_requests_are_refused() -> None:
    died = np.arange(100) % 10 == 0
    rng = np.random.default_rng(0)
    wrong: Any = "real"
    with pytest.raises(InvalidInput, match="one of virtual, natural"):
        Layout(kind=wrong)
    with pytest.raises(InvalidInput, match="test_share is 1"):
        Layout(test_share=1)
    with pytest.raises(InvalidInput, match="no hospital ids"):
        divide(died, Layout(kind="natural"), rng=rng)
    with pytest.raises(InvalidInput, match="8 training patients died, too few for min_deaths = 1 in each of 16"):
        divide(died, Layout(admissions_per_client=5), rng=rng)
    with pytest.raises(InvalidInput, match="none of 50 hospitals"):
        divide(died, Layout(kind="natural"), rng=rng, hospitals=np.arange(100) // 2)
    with pytest.raises(InvalidInput, match="0 of 20 held-out admissions died"):
        divide(np.zeros(100, bool), Layout(min_deaths=0), rng=rng)
