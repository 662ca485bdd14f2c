"""Everything that a run on hospital data learns from and is tested on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lowkey.tasks.mortality.admissions import Admissions
from lowkey.tasks.mortality.division import Ids, Labels, Layout, divide
from lowkey.tasks.mortality.features import SparseRows, fit_features
from lowkey.tasks.mortality.public import public_features
from lowkey.tasks.mortality.source import PublicRule
from lowkey.tasks.partition import Partition, by_ids


@dataclass(frozen=True, kw_only=True)
class HospitalData:
    """Sparse training rows with their division among clients, and the union of all held-out rows.

    Nothing here is dense: for dense rows, choose few and call ``train[rows].toarray()``.
    """

    source: str
    feature_names: tuple[str, ...] = field(repr=False)
    train: SparseRows = field(repr=False)
    train_died: Labels = field(repr=False)
    clients: Partition = field(repr=False)
    test: SparseRows = field(repr=False)
    test_died: Labels = field(repr=False)
    train_patients: Ids | None = field(default=None, repr=False)
    """Whose each training row is, where that is known."""
    excluded_hospitals: int = 0
    excluded_admissions: int = 0

    def pooled(self) -> HospitalData:
        """The same rows, all held by one client: what training without a federation would learn from."""
        return replace(self, clients=by_ids(np.zeros(len(self.train_died), np.intp)))

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
        rows, patients = self.data.clients[client], self.data.train_patients
        examples = self.data.train[rows], self.data.train_died[rows].astype(np.float32)
        return examples if patients is None else (*examples, patients[rows])


def make_hospital_data(
    admissions: Admissions,
    layout: Layout,
    *,
    rng: np.random.Generator,
    min_count: int = 100,
    public: Mapping[str, PublicRule] | None = None,
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
    public : mapping of str to PublicRule, or None
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
        train_patients=None if admissions.patients is None else admissions.patients[division.train],
        excluded_hospitals=division.excluded_hospitals,
        excluded_admissions=division.excluded_admissions,
    )
