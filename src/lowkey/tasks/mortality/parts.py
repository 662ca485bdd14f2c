"""Model, data and objective of the task; imports PyTorch, polars and scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from lowkey.errors import ConfigError
from lowkey.learning import (
    ClientDatasets,
    Examples,
    Objective,
    RiskHead,
    balanced_rows,
    keras_initialise,
    logistic_loss,
    rare_event_metrics,
)
from lowkey.rng import generator
from lowkey.tasks.mortality import AdmissionSettings
from lowkey.tasks.mortality.clients import (
    HeldOutClients,
    HospitalClients,
    HospitalData,
    HospitalTables,
    make_hospital_data,
)
from lowkey.tasks.mortality.division import Layout
from lowkey.tasks.mortality.mlp import MortalityMLP
from lowkey.tasks.mortality.ranges import limits_of, require_ranges
from lowkey.tasks.mortality.sources import SOURCES, load_admissions
from lowkey.tasks.mortality.synthetic import make_synthetic_hospital_data
from lowkey.tasks.task import ClientTables, Study

OBJECTIVE = Objective(loss=logistic_loss, metrics=rare_event_metrics, choice=balanced_rows)
WHOLE = Objective(loss=logistic_loss, metrics=rare_event_metrics)


def model(study: Study) -> Any:
    """The network or the head, with its first weights."""
    features = len(_hospitals(study).feature_names)
    if study.model.kind == "head":  # public features have a constant among them
        return RiskHead(features, bias=study.data.encoding == "fitted")
    return keras_initialise(MortalityMLP(features, study.model.hidden), generator(study.seed, "initial weights"))


def objective(study: Study) -> Objective:
    """Metrics for rare events.

    A network trains on deaths and survivals in equal number, a head on all rows, to which training.balanced gives
    weights.
    """
    return WHOLE if study.model.kind == "head" else OBJECTIVE


def clients(study: Study) -> ClientDatasets:
    """The admissions of all hospitals."""
    return HospitalClients(_hospitals(study))


def test(study: Study) -> Examples:
    """Held-out patients of all hospitals."""
    data = _hospitals(study)
    return data.test, data.test_died.astype("float32")


def held_out(study: Study) -> ClientDatasets:
    """Each hospital's own held-out patients; virtual hospitals are dealt theirs."""
    return HeldOutClients(_hospitals(study))


def tables(study: Study) -> ClientTables:
    """The training admissions of all hospitals before they were encoded."""
    settings = study.data  # what is asked before ranges are known needs none
    if settings.encoding == "private" and not settings.ranges:
        settings = replace(settings, encoding="public")
    found = HospitalTables(_divided(settings, study.clients, study.seed))
    return found if study.data.name == "synthetic" else found.at_once()


def describe(study: Study) -> Mapping[str, float]:
    """Numbers of clients, features and rows."""
    return _hospitals(study).summary()


def _hospitals(study: Study) -> HospitalData:
    require_ranges(study.data)
    return _divided(study.data, study.clients, study.seed)


@lru_cache(maxsize=1)
def _divided(settings: AdmissionSettings, num_clients: int, seed: int) -> HospitalData:
    virtual = settings.division == "iid"
    layout = Layout(
        kind="virtual" if virtual else "natural",
        clients=num_clients if virtual and not settings.pooled else None,
        min_deaths=settings.min_deaths,
        min_admissions=settings.min_admissions,
        largest=settings.largest,
        test_share=settings.test_share,
    )
    public, limits = settings.encoding != "fitted", limits_of(settings)
    made: HospitalData
    if settings.name == "synthetic":
        made = make_synthetic_hospital_data(
            seed=seed, scale=settings.scale, layout=layout, public=public, limits=limits
        )
    else:
        admissions = load_admissions(
            settings.name, settings.source, features=settings.features, any_version=settings.any_version
        )
        made = make_hospital_data(
            admissions,
            layout,
            rng=generator(seed, "partition"),
            min_count=settings.min_count,
            public={**SOURCES[settings.name].public, **limits} if public else None,
        )
    if settings.pooled:
        made = made.pooled()
    if len(made.clients) != num_clients:
        raise ConfigError(
            f"federation.clients is {num_clients}, but {settings.name} has {len(made.clients)} with these settings; "
            f"set federation.clients={len(made.clients)}, or data.division=iid for any number of virtual hospitals"
        )
    return made
