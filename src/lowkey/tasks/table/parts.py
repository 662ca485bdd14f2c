"""Model, data and objective of the task; imports PyTorch, and polars where a table is read."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lowkey.errors import ConfigError
from lowkey.learning import ClientDatasets, Examples, Objective, RiskHead, logistic_loss, rare_event_metrics
from lowkey.tabular import (
    Encoder,
    Schema,
    apply,
    labels_of,
    load_encoder,
    persons_of,
    raw_columns,
    read_schema,
    read_table,
    readable,
)
from lowkey.tasks.table import TableSettings
from lowkey.tasks.task import ClientTables, NodeSettings, Study, Table, client_of

OBJECTIVE = Objective(loss=logistic_loss, metrics=rare_event_metrics)


def model(study: Study) -> Any:
    """A head with a weight for each feature, of which the last is a constant."""
    return RiskHead(_encoder(study.data).width, bias=False, frequency=study.model.frequency)


def objective(study: Study) -> Objective:
    """Metrics for rare events, of all rows."""
    del study
    return OBJECTIVE


def clients(study: Study) -> ClientDatasets:
    """Training rows of all clients."""
    return [_side(study, table, tested=False) for table in study.data.tables]


def local_data(study: Study, node: NodeSettings) -> Examples:
    """Training rows of the client at a node."""
    return _side(study, _table_at(study, node), tested=False)


def held_out(study: Study) -> ClientDatasets:
    """Test rows of all clients, with the texts of their categories, by which groups can be compared."""
    return [_test_side(study, table) for table in study.data.tables]


def local_held_out(study: Study, node: NodeSettings) -> Examples:
    """Test rows of the client at a node."""
    return _test_side(study, _table_at(study, node))


def test(study: Study) -> Examples | None:
    """The server's own table, if it has one."""
    if study.data.test is None:
        return None
    found = apply(_encoder(study.data), study.data.test, label=study.data.label, person=study.data.person)
    return found.rows, found.labels


def tables(study: Study) -> ClientTables:
    """Columns of all clients' training rows."""
    return [_raw(study, table) for table in study.data.tables]


def local_table(study: Study, node: NodeSettings) -> Table:
    """Columns of the training rows of the client at a node."""
    return _raw(study, _table_at(study, node))


def files(study: Study) -> dict[str, Path]:
    """What must come with an app: encoder and schema, under the relative paths by which the settings name them."""
    names = [name for name in (study.data.encoder, study.data.schema) if name is not None]
    return {name: _find(name) for name in names if not Path(name).is_absolute() and ".." not in Path(name).parts}


def features(study: Study) -> str:
    """The encoder, by its digest: everybody must have the same."""
    return "" if study.data.encoder is None else f"encoder {_encoder(study.data).digest}"


def describe(study: Study) -> Mapping[str, float]:
    """Numbers of clients, features, rows and events."""
    train, tested = clients(study), held_out(study)
    sizes, test_sizes = ([len(side[client][1]) for client in range(len(side))] for side in (train, tested))
    return {
        "features": _encoder(study.data).width,
        "clients": len(sizes),
        "train_rows": sum(sizes),
        "train_events": sum(int(train[client][1].sum()) for client in range(len(sizes))),
        "test_rows": sum(test_sizes),
        "test_events": sum(int(tested[client][1].sum()) for client in range(len(sizes))),
        "smallest_client": min(sizes, default=0),
        "largest_client": max(sizes, default=0),
    }


def is_held_out(persons: Iterable[str], share: float, seed: int) -> NDArray[np.bool_]:
    """Who is kept for tests: a public hash of seed and person decides, at every client alike."""
    key, most = seed.to_bytes(16, "big"), share * 2.0**64
    places = (
        hashlib.blake2b(person.encode(), digest_size=8, key=key, person=b"lowkey held out").digest()
        for person in persons
    )
    return np.array([int.from_bytes(place, "big") < most for place in places], bool)


def _table_at(study: Study, node: NodeSettings) -> str:
    table = node.get("table")
    if table is None and study.data.tables:  # all nodes are on one machine
        number = client_of(node)
        if number >= len(study.data.tables):
            raise ConfigError(f"client is {number}, but data.tables has {len(study.data.tables)} tables; add its table")
        return str(study.data.tables[number])
    if not isinstance(table, str):
        raise ConfigError(
            "the node does not say where its table is; start it with --node-config 'table=\"/srv/table.csv\" client=0'"
        )
    return table


def _side(study: Study, table: str, *, tested: bool) -> Examples:
    data, encoder = study.data, _encoder(study.data)
    own = _read(study, table, encoder)
    found = apply(encoder, own.frame, label=data.label, person=data.person)
    chosen = np.flatnonzero(_tested(study, own.numbers, found.persons) == tested)
    assert found.labels is not None
    examples = found.rows[chosen], found.labels[chosen]
    return examples if found.persons is None else (*examples, found.persons[chosen])


def _test_side(study: Study, table: str) -> Examples:
    rows, labels, *persons = _side(study, table, tested=True)
    encoder = _encoder(study.data)
    frame, numbers = _read(study, table, encoder)
    ids = None if study.data.person is None else persons_of(frame, study.data.person, encoder.missing)
    chosen = np.flatnonzero(_tested(study, numbers, ids))
    categories = [column for column in encoder.columns if column.kind == "category"]
    groups = {name: texts[chosen] for name, texts in raw_columns(frame, categories, encoder.missing).items()}
    return rows, labels, persons[0] if persons else None, groups


def _tested(study: Study, numbers: NDArray[np.intp], persons: NDArray[np.str_] | None) -> NDArray[np.bool_]:
    names = map(str, numbers if persons is None else persons)
    return is_held_out(names, study.data.test_share, study.seed)


def _raw(study: Study, table: str) -> Table:
    data = study.data
    plan = _encoder(data) if data.schema is None else read_schema(_find(data.schema))
    frame, numbers = _read(study, table, plan)
    persons = None if data.person is None else persons_of(frame, data.person, plan.missing)
    kept = np.flatnonzero(~_tested(study, numbers, persons))
    columns = {
        **raw_columns(frame, plan.columns, plan.missing),
        data.label: labels_of(frame, data.label, plan.missing).astype(np.float64),
    }
    return Table({name: values[kept] for name, values in columns.items()}, None if persons is None else persons[kept])


class _Own(NamedTuple):
    """A client's table and the number of each row in its file; without those who cannot be read."""

    frame: pl.DataFrame
    numbers: NDArray[np.intp]


def _read(study: Study, table: str, plan: Encoder | Schema) -> _Own:
    """Leaves nobody out where clients are protected. Rows keep their numbers, by which they may be held out."""
    frame, data = read_table(table), study.data
    kept = np.ones(len(frame), bool)
    if study.by_person:
        kept = readable(frame, plan.columns, plan.missing, label=data.label, person=data.person)
    return _Own(frame.filter(pl.Series(kept)), np.flatnonzero(kept))


def _encoder(data: TableSettings) -> Encoder:
    if data.encoder is None:
        raise ConfigError("data.encoder is missing; make one with 'lowkey encoder fit', and name its file")
    return load_encoder(_find(data.encoder), data.encoder_digest)


def _find(name: str) -> Path:
    """A file by its path: where Python looks for modules, then in the working directory."""
    places = (Path(place) / name for place in [*sys.path, ""])
    return next((place for place in places if place.is_file()), Path(name))
