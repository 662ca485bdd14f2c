"""Division of admissions: held-out patients, and virtual hospitals as in the paper, or the real ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.tasks.mortality.features import Rows
from lowkey.tasks.partition import Partition, by_ids

Labels: TypeAlias = NDArray[np.bool_]
Ids: TypeAlias = NDArray[np.generic]
Kind: TypeAlias = Literal["virtual", "natural"]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How admissions are divided.

    Parameters
    ----------
    kind : {"virtual", "natural"}
        "virtual" deals training patients at random to hospitals of equal size, as in the paper; "natural" makes each
        real hospital a client.
    clients : int or None
        How many virtual hospitals to make; None makes as many as ``admissions_per_client`` allows.
    admissions_per_client : int
        Training admissions of a virtual hospital; the last takes what is left over.
    min_deaths : int
        Patients that died, in the training rows of every client. Virtual hospitals are dealt at least that many; a real
        hospital with fewer is left out. With 0, clients may be unable to balance their classes.
    min_admissions : int
        Admissions, of training and test together, below which a real hospital is left out.
    largest : int or None
        How many real hospitals take part, those with the most admissions; None takes all.
    test_share : float
        Fraction of patients that is held out.
    """

    kind: Kind = "virtual"
    clients: int | None = None
    admissions_per_client: int = 203
    min_deaths: int = 1
    min_admissions: int = 10
    largest: int | None = None
    test_share: float = 0.2

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InvalidInput(f"layout kind is {self.kind!r}; it must be one of {', '.join(get_args(Kind))}")
        if self.clients is not None:
            checks.at_least("clients", self.clients, 1)
        checks.at_least("admissions_per_client", self.admissions_per_client, 1)
        checks.at_least("min_deaths", self.min_deaths, 0)
        checks.at_least("min_admissions", self.min_admissions, 1)
        if self.largest is not None:
            checks.at_least("largest", self.largest, 1)
        checks.fraction("test_share", self.test_share, include_one=False)


@dataclass(frozen=True, kw_only=True)
class Division:
    """Rows of the training and of the test side, and whose they are.

    ``clients`` counts positions in ``train``, ``held_out`` positions in ``test``: the same clients in the same order.
    Some may have no test rows. A hospital that was left out has rows on neither side.
    """

    train: Rows = field(repr=False)
    test: Rows = field(repr=False)
    clients: Partition
    held_out: Partition
    excluded_hospitals: int = 0
    excluded_admissions: int = 0


def divide(
    died: Labels,
    layout: Layout,
    *,
    rng: np.random.Generator,
    patients: Ids | None = None,
    hospitals: Ids | None = None,
) -> Division:
    """Hold out patients, then make clients of the others.

    The held-out fraction is the same, to within one patient, among those who died and those who survived, and in every
    real hospital; only a death that training needs for ``min_deaths``, and the only survivor, are never held out. Where
    rows have no patient ids, which real hospitals are left out does not depend on ``rng``.

    Parameters
    ----------
    died : Labels
        Label of each row.
    layout : Layout
        How to divide.
    rng : np.random.Generator
        Decides who is held out and who goes where.
    patients : Ids or None
        Id of each row's patient; with None every row counts as a different patient.
    hospitals : Ids or None
        Id of each row's hospital, which "natural" needs.

    Guarantees
    ----------
    No patient is on both sides. No patient is in two virtual hospitals, which are dealt equally many held-out patients,
    to within one. Every client has at least ``min_deaths``
    patients that died in its training rows; every real hospital has a survivor there, too.
    """
    if layout.kind == "natural" and hospitals is None:
        raise InvalidInput("the admissions have no hospital ids, which a natural layout needs; use kind='virtual'")
    ids = np.arange(len(died)) if patients is None else patients
    _, first, person = np.unique(ids, return_index=True, return_inverse=True)
    person_died = np.bincount(person, weights=died) > 0
    if layout.kind == "natural":
        _, hospital = np.unique(np.asarray(hospitals), return_inverse=True)
        tested = _held_out(person_died, hospital[first], layout, rng)[person]
        kept = _large_enough(died, hospital, tested, layout)
        owner, excluded = hospital, int(len(kept) - kept.sum())
        used = kept[hospital]
    else:
        held_out = _held_out(person_died, np.zeros(len(first), np.intp), layout, rng)
        tested, excluded, used = held_out[person], 0, np.ones(len(died), bool)
        owner = _deal(np.bincount(person), person_died, ~held_out, layout, rng)
        dealt = rng.permutation(np.flatnonzero(held_out))  # drawn last: all else is as it would be without
        made = np.unique(owner[~held_out])
        owner[dealt] = made[np.arange(len(dealt)) % len(made)]
        owner = owner[person]
    train, test = np.flatnonzero(used & ~tested), np.flatnonzero(used & tested)
    if len(np.unique(died[test])) < 2:
        raise InvalidInput(
            f"{int(died[test].sum())} of {len(test)} held-out admissions died; a test needs deaths and survivors: "
            "raise test_share or use more admissions"
        )
    return Division(
        train=train,
        test=test,
        clients=by_ids(owner[train]),
        held_out=_like(np.unique(owner[train]), owner[test]),
        excluded_hospitals=excluded,
        excluded_admissions=int(len(used) - used.sum()),
    )


def _like(clients: Rows, owner: Rows) -> Partition:
    """Positions by client, for these clients in this order."""
    order = np.argsort(owner, kind="stable")
    starts = np.searchsorted(owner[order], np.append(clients, clients[-1] + 1))
    return Partition(order.astype(np.intp), starts.astype(np.intp))


def _held_out(died: Labels, group: Rows, layout: Layout, rng: np.random.Generator) -> Labels:
    """A systematic sample: every k-th patient along an order sorted by group and outcome, and random otherwise."""
    shuffled = rng.permutation(int(group.max()) + 1)[group]
    order = np.lexsort((rng.random(len(group)), died, shuffled))
    test = np.empty(len(group), bool)
    test[order] = np.diff(np.floor(np.arange(len(group) + 1) * layout.test_share + 0.5)) > 0
    for needed, those in ((layout.min_deaths, died), (1, ~died)):
        lacking = np.bincount(group, weights=those & ~test) < needed
        test &= ~(those & lacking[group])
    return test


def _large_enough(died: Labels, hospital: Rows, tested: Labels, layout: Layout) -> Labels:
    """Which hospitals are large enough, or the largest, and have deaths and survivors in their training rows."""
    count = int(hospital.max()) + 1
    rows = np.bincount(hospital, minlength=count)
    deaths, survivors = (np.bincount(hospital[those & ~tested], minlength=count) for those in (died, ~died))
    kept: Labels = (rows >= layout.min_admissions) & (deaths >= layout.min_deaths) & (survivors > 0)
    if not kept.any():
        raise InvalidInput(
            f"none of {count} hospitals has min_admissions = {layout.min_admissions} admissions, "
            f"min_deaths = {layout.min_deaths} training deaths and a survivor; lower them or use kind='virtual'"
        )
    if layout.largest is not None:
        smaller = np.argsort(np.where(kept, -rows, 1), kind="stable")[layout.largest :]
        kept[smaller] = False
    return kept


def _deal(sizes: Rows, died: Labels, trains: Labels, layout: Layout, rng: np.random.Generator) -> Rows:
    """Virtual hospital of each training patient (others: −1): first the deaths that each needs, then all others."""
    total = int(sizes[trains].sum())
    count = layout.clients or max(1, total // layout.admissions_per_client)
    per_client = total // count if layout.clients else layout.admissions_per_client
    order = rng.permutation(np.flatnonzero(trains))
    dead = order[died[order]]
    needed = dead[: count * layout.min_deaths]
    if len(needed) < count * layout.min_deaths:
        raise InvalidInput(
            f"{len(dead)} training patients died, too few for min_deaths = {layout.min_deaths} in each of {count} "
            "virtual hospitals; make fewer hospitals or lower min_deaths"
        )
    owner = np.full(len(sizes), -1, np.intp)
    owner[needed] = np.arange(len(needed)) % count
    room = per_client - np.bincount(owner[needed], weights=sizes[needed], minlength=count)
    others = order[owner[order] < 0]
    starts = np.cumsum(sizes[others]) - sizes[others]
    places = np.searchsorted(np.cumsum(np.maximum(room, 0)), starts, side="right")
    owner[others] = np.minimum(places, count - 1)  # the last takes what is left over
    return owner
