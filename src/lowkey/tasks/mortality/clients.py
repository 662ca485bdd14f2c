"""Everything that a run on hospital data learns from and is tested on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lowkey.analytics import Columns
from lowkey.errors import InvalidInput
from lowkey.tabular import Rule, SparseRows
from lowkey.tasks.mortality.admissions import UNKNOWN, Admissions
from lowkey.tasks.mortality.division import Ids, Labels, Layout, divide
from lowkey.tasks.mortality.features import Rows, fit_features
from lowkey.tasks.mortality.public import public_features
from lowkey.tasks.partition import Partition, by_ids
from lowkey.tasks.task import Table

_AGES = (18, 40, 65, 80)
_AGE_BANDS = ("0-17", "18-39", "40-64", "65-79", "80+")


@dataclass(frozen=True, kw_only=True)
class HospitalData:
    """Sparse training and held-out rows, and their division among clients.

    Nothing here is dense: for dense rows, choose few and call ``train[rows].toarray()``.
    """

    source: str
    feature_names: tuple[str, ...] = field(repr=False)
    train: SparseRows = field(repr=False)
    train_died: Labels = field(repr=False)
    clients: Partition = field(repr=False)
    test: SparseRows = field(repr=False)
    test_died: Labels = field(repr=False)
    held_out: Partition = field(repr=False)
    """Which of the test rows are whose; some clients may have none."""
    train_patients: Ids | None = field(default=None, repr=False)
    """Whose each training row is, where that is known."""
    test_patients: Ids | None = field(default=None, repr=False)
    raw: Callable[[Rows], Columns] | None = field(default=None, repr=False)
    """Columns of training rows before they were encoded, for those of these positions."""
    test_groups: Columns = field(default_factory=dict, repr=False)
    """Categories of the held-out rows, and "age band", as texts."""
    excluded_hospitals: int = 0
    excluded_admissions: int = 0

    def pooled(self) -> HospitalData:
        """The same rows, all held by one client: what training without a federation would learn from."""
        clients, held_out = (by_ids(np.zeros(len(died), np.intp)) for died in (self.train_died, self.test_died))
        return replace(self, clients=clients, held_out=held_out)

    def summary(self) -> dict[str, float]:
        """Numbers of features, clients, admissions and deaths."""
        return {
            "features": len(self.feature_names),
            "clients": len(self.clients),
            "train_admissions": len(self.train_died),
            "train_deaths": int(self.train_died.sum()),
            "test_admissions": len(self.test_died),
            "test_deaths": int(self.test_died.sum()),
            "smallest_client": int(self.clients.sizes.min()),
            "largest_client": int(self.clients.sizes.max()),
            "excluded_hospitals": self.excluded_hospitals,
            "excluded_admissions": self.excluded_admissions,
        }


@dataclass(frozen=True)
class HospitalClients:
    """Datasets of all clients, made on access: sparse features, 1.0 for each death, and patients where known."""

    data: HospitalData

    def __len__(self) -> int:
        return len(self.data.clients)

    def __getitem__(self, client: int) -> tuple[Any, ...]:
        data = self.data
        return _examples(data.train, data.train_died, data.train_patients, data.clients[client])


@dataclass(frozen=True)
class HeldOutClients:
    """The test rows of all clients, in the same form and, where known, with texts by which groups can be compared.

    A client may have none.
    """

    data: HospitalData

    def __len__(self) -> int:
        return len(self.data.held_out)

    def __getitem__(self, client: int) -> tuple[Any, ...]:
        data = self.data
        rows = data.held_out[client]
        examples = _examples(data.test, data.test_died, data.test_patients, rows)
        if not data.test_groups:
            return examples
        return (*examples, *[None] * (3 - len(examples)), _chosen(data.test_groups, rows))


@dataclass(frozen=True)
class HospitalTables:
    """The training rows of all clients before they were encoded, made on access: the columns, "died", and patients."""

    data: HospitalData

    def at_once(self) -> HospitalTables:
        """The same with all columns made now: polars must not be used in a process that was forked."""
        if self.data.raw is None:
            return self
        columns = self.data.raw(np.arange(len(self.data.train_died)))
        return HospitalTables(replace(self.data, raw=partial(_chosen, columns)))

    def __len__(self) -> int:
        return len(self.data.clients)

    def __getitem__(self, client: int) -> Table:
        rows, data = self.data.clients[client], self.data
        if data.raw is None:
            raise InvalidInput("these admissions have no columns but features; load them with load_admissions")
        columns = {**data.raw(rows), "died": data.train_died[rows].astype(np.float64)}
        return Table(columns, None if data.train_patients is None else data.train_patients[rows])


def _examples(features: SparseRows, died: Labels, patients: Ids | None, rows: Rows) -> tuple[Any, ...]:
    examples = features[rows], died[rows].astype(np.float32)
    return examples if patients is None else (*examples, patients[rows])


def make_hospital_data(
    admissions: Admissions,
    layout: Layout,
    *,
    rng: np.random.Generator,
    min_count: int = 100,
    public: Mapping[str, Rule] | None = None,
) -> HospitalData:
    """Divide admissions among clients, and encode both sides by public rules, or as fitted to their training rows.

    Parameters
    ----------
    admissions : Admissions
        From :func:`load_admissions`.
    layout : Layout
        Virtual or real hospitals, and who is held out.
    rng : np.random.Generator
        Decides the division.
    min_count : int
        How many training rows a category or code needs to get its own column, where features are fitted.
    public : mapping of str to Rule, or None
        The public rule of each feature; None fits them.

    Guarantees
    ----------
    Nothing of a held-out row reaches the training side. Fitting pools statistics of all clients outside of any ε: see
    :func:`fit_features`. Public rules look at no other row than the one they encode.
    """
    division = divide(admissions.died, layout, rng=rng, patients=admissions.patients, hospitals=admissions.hospitals)
    if public is None:
        encode = fit_features(admissions, division.train, min_count=min_count)
        (train, test), names = (encode(admissions, side) for side in (division.train, division.test)), encode.names
    else:
        (train, names), (test, _) = (
            public_features(admissions, side, public) for side in (division.train, division.test)
        )
    return HospitalData(
        source=admissions.source,
        feature_names=names,
        train=train,
        train_died=admissions.died[division.train],
        clients=division.clients,
        test=test,
        test_died=admissions.died[division.test],
        held_out=division.held_out,
        train_patients=None if admissions.patients is None else admissions.patients[division.train],
        test_patients=None if admissions.patients is None else admissions.patients[division.test],
        raw=partial(_raw_columns, admissions, division.train),
        test_groups=_groups(admissions, division.test),
        excluded_hospitals=division.excluded_hospitals,
        excluded_admissions=division.excluded_admissions,
    )


def _chosen(columns: Columns, rows: Rows) -> Columns:
    return {name: column[rows] for name, column in columns.items()}


def _groups(admissions: Admissions, rows: Rows) -> Columns:
    """Texts by which test rows can be compared: categories as they are, ages in bands."""
    found = {name: objects(texts.to_list()) for name, texts in admissions.categorical[rows].to_dict().items()}
    if "age" in admissions.numeric.columns:
        ages = admissions.numeric["age"][rows].cast(pl.Float64).fill_null(np.nan).to_numpy()
        bands = np.array(_AGE_BANDS)[np.searchsorted(_AGES, np.nan_to_num(ages), side="right")]
        found["age band"] = np.where(np.isnan(ages), UNKNOWN, bands).astype(object)
    return found


def _raw_columns(admissions: Admissions, train: Rows, rows: Rows) -> Columns:
    """Columns as questions read them, for some of the training rows."""
    numeric, categorical, codes = (
        part[train[rows]].to_dict() if part.width else {}
        for part in (admissions.numeric, admissions.categorical, admissions.codes)
    )
    return {
        **{name: values.cast(pl.Float64).fill_null(np.nan).to_numpy() for name, values in numeric.items()},
        **{name: objects(None if text == UNKNOWN else text for text in texts) for name, texts in categorical.items()},
        **{name: objects(tuple(filter(None, row or ())) for row in lists.to_list()) for name, lists in codes.items()},
    }


def objects(values: Iterable[Any]) -> NDArray[Any]:
    """A column of texts, or of tuples of texts."""
    listed = list(values)
    column = np.empty(len(listed), object)
    for place, value in enumerate(listed):  # NumPy would make a table of tuples of one length
        column[place] = value
    return column
