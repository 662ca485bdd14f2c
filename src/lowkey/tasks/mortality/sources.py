"""The public sources by name: load their cohort as :class:`Admissions`, or check a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from lowkey.errors import DataError, InvalidInput
from lowkey.tasks.mortality.admissions import UNKNOWN, Admissions
from lowkey.tasks.mortality.diabetes130 import DIABETES130
from lowkey.tasks.mortality.files import OTHER_VERSION, read_table
from lowkey.tasks.mortality.sih_sus import SIH_SUS
from lowkey.tasks.mortality.source import Counts, Feature, Source

SOURCES: Mapping[str, Source] = {source.name: source for source in (DIABETES130, SIH_SUS)}


@dataclass(frozen=True, kw_only=True)
class SourceCheck:
    """What was found in a copy of a source."""

    source: str
    path: str
    sha256: str
    counts: Counts
    reference: bool
    """Whether checksum and counts are those of the reference file."""

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "counts"} | asdict(self.counts)

    def lines(self) -> dict[str, str]:
        """What was found, by name, as text for people."""
        counts = self.counts
        hospitals = "" if counts.hospitals is None else f", {counts.hospitals:,} hospitals"
        return {
            "file": self.path,
            "sha256": self.sha256,
            "all": _deaths_of(counts.rows, counts.deaths),
            "cohort": _deaths_of(counts.cohort_rows, counts.cohort_deaths) + hospitals,
            "verdict": "the reference file" if self.reference else "another version: results will not be comparable",
        }


def _deaths_of(rows: int, deaths: int) -> str:
    return f"{rows:,} admissions, {deaths:,} deaths ({deaths / max(rows, 1):.2%})"


def find_source(name: str) -> Source:
    """A source by its name."""
    if name not in SOURCES:
        raise InvalidInput(f"data source is {name!r}; it must be one of {', '.join(SOURCES)}")
    return SOURCES[name]


def check_source(name: str, path: str | Path, *, any_version: bool = False) -> SourceCheck:
    """Compare checksum, row and death counts with those of the reference file.

    Raises
    ------
    DataError
        When they differ, unless ``any_version`` is set.
    """
    source = find_source(name)
    table, digest = read_table(source, Path(path), any_version=any_version)
    counts = _counts(source, _labelled(source, table))
    if counts != source.counts and not any_version:
        differing = [
            f"{key.replace('_', ' ')} {found} instead of {expected}"
            for (key, found), expected in zip(asdict(counts).items(), asdict(source.counts).values(), strict=True)
            if found != expected
        ]
        raise DataError(f"{path} holds other counts than {name}: {'; '.join(differing)}; {OTHER_VERSION}")
    reference = digest == source.sha256 and counts == source.counts
    return SourceCheck(source=name, path=str(path), sha256=digest, counts=counts, reference=reference)


def check_file(name: str, path: str | Path, *, any_version: bool = False) -> SourceCheck | None:
    """As :func:`check_source`; None for a name that is not a public source of this task."""
    return check_source(name, path, any_version=any_version) if name in SOURCES else None


def load_admissions(
    name: str, path: str | Path, *, features: Sequence[str] | None = None, any_version: bool = False
) -> Admissions:
    """The cohort of a source, with its checksum verified.

    Parameters
    ----------
    name : str
        "diabetes130" or "sih-sus".
    path : str or Path
        The CSV file, plain, gzipped or zipped, or a directory that holds one of these, or "auto": see
        :func:`lowkey.tasks.mortality.files.read_table`.
    features : sequence of str or None
        Names of the features to learn from, from ``SOURCES[name].features``; None takes the default of the source.
    any_version : bool
        Accept a file whose checksum is not that of the reference file, such as a newer release or a part.
    """
    source = find_source(name)
    chosen = source.chosen(None if features is None else tuple(features))
    table, _ = read_table(source, Path(path), any_version=any_version)
    cohort = _labelled(source, table).filter(source.cohort)
    if cohort.is_empty():
        raise DataError(f"{path} has {len(table)} rows, but none is in the cohort of {name}; check the file")
    return Admissions(
        source=name,
        numeric=cohort.select(_numeric(cohort, chosen)),
        categorical=cohort.select(
            feature.value.fill_null(UNKNOWN).alias(key) for key, feature in _of_kind(chosen, "categorical")
        ),
        codes=cohort.select(feature.value.alias(key) for key, feature in _of_kind(chosen, "codes")),
        died=cohort["died"].to_numpy(),
        patients=cohort[source.patient].to_numpy().astype(str) if source.patient else None,
        hospitals=cohort[source.hospital].to_numpy().astype(str) if source.hospital else None,
    )


def _labelled(source: Source, table: pl.DataFrame) -> pl.DataFrame:
    """Add the label; every row must have a label and ids."""
    table = table.with_columns(died=source.died)
    for column in ("died", source.patient, source.hospital):
        if column and (missing := table[column].null_count()):
            what = source.died.meta.root_names()[0] if column == "died" else column
            raise DataError(
                f"{missing} of {len(table)} rows have no usable {what}; each row of {source.name} needs one"
            )
    return table


def _counts(source: Source, table: pl.DataFrame) -> Counts:
    cohort = table.filter(source.cohort)
    return Counts(
        rows=len(table),
        deaths=int(table["died"].sum()),
        cohort_rows=len(cohort),
        cohort_deaths=int(cohort["died"].sum()),
        hospitals=cohort[source.hospital].n_unique() if source.hospital else None,
    )


def _of_kind(features: Mapping[str, Feature], kind: str) -> list[tuple[str, Feature]]:
    return [(name, feature) for name, feature in features.items() if feature.kind == kind]


def _numeric(cohort: pl.DataFrame, features: Mapping[str, Feature]) -> list[pl.Series]:
    """Numbers, null where missing; text that is not a number is an error."""
    columns = []
    for name, feature in _of_kind(features, "numeric"):
        (column,) = feature.columns
        values = cohort.select(feature.value.alias(name)).to_series()
        strange = cohort[column].filter(values.is_null() & cohort[column].is_not_null())
        if len(strange):
            raise DataError(f"column {column} holds {strange[0]!r} in {len(strange)} rows; it must hold numbers")
        columns.append(values)
    return columns
