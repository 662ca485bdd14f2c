"""What is known about a public file of admissions: its shape, its cohort, and the columns that features may use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import polars as pl

from lowkey import checks
from lowkey.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One feature, as an expression over the columns of the file.

    A numeric expression gives numbers, a categorical one text, and one of codes a list of text.
    """

    kind: Literal["numeric", "categorical", "codes"]
    value: pl.Expr = field(repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the file that the feature is made of."""
        return tuple(dict.fromkeys(self.value.meta.root_names()))


@dataclass(frozen=True)
class Limits:
    """Public limits of a number: it is scaled to −1 … 1 between them."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise InvalidInput(f"limits are {self.low} and {self.high}; they must be numbers, the lower one first")


@dataclass(frozen=True)
class Listed:
    """A public list of texts; any other text has no column."""

    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.values or len(set(self.values)) < len(self.values):
            raise InvalidInput(f"listed texts are {', '.join(self.values) or 'none'}; list each text once")


@dataclass(frozen=True)
class Hashed:
    """Texts without a list: a public hash gives each a column.

    ``columns`` has a number of columns for the first so many letters of the text, and under None for the whole of it.
    """

    columns: Mapping[int | None, int]

    def __post_init__(self) -> None:
        checks.at_least("number of hashes", len(self.columns), 1)
        for length, count in self.columns.items():
            checks.at_least("number of letters to hash", 1 if length is None else length, 1)
            checks.at_least("number of hashed columns", count, 1)


PublicRule: TypeAlias = Limits | Listed | Hashed
"""How a feature becomes numbers without a look at anybody's rows."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What a file holds: all rows, and the rows of the cohort, from which models learn."""

    rows: int
    deaths: int
    cohort_rows: int
    cohort_deaths: int
    hospitals: int | None = None
    """Hospitals of the cohort, where they are known."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A public data set.

    Parameters
    ----------
    name : str
        Name in settings and commands.
    title : str
        Title for people to read.
    obtain : str
        Where to get it and how to cite it.
    files : tuple of str
        Names under which the file is looked for in a directory, best first; the first is the CSV file itself.
    sha256 : str
        Checksum of the CSV file, decompressed: archives of different makers differ.
    counts : Counts
        What the reference file holds.
    died : pl.Expr
        The label; null where it is unknown.
    cohort : pl.Expr
        Which rows models learn from; a row for which it is unknown is left out.
    leaking : frozenset of str
        Columns that tell, or follow from, how the stay ended; no feature may be made of them.
    features : mapping of str to Feature
        All features by name.
    default : tuple of str
        Names of the features that are used when none are named.
    public : mapping of str to PublicRule
        For features that can do without fitting, the public rule of each.
    patient, hospital : str or None
        Columns with ids, where there are any.

    Guarantees
    ----------
    A source with a feature made of a leaking column, of the label or of an id cannot be constructed, nor one with a
    public rule that does not fit its feature.
    """

    name: str
    title: str
    obtain: str
    files: tuple[str, ...]
    sha256: str
    counts: Counts
    died: pl.Expr = field(repr=False)
    cohort: pl.Expr = field(repr=False)
    leaking: frozenset[str]
    features: Mapping[str, Feature] = field(repr=False)
    default: tuple[str, ...]
    public: Mapping[str, PublicRule] = field(default_factory=dict, repr=False)
    patient: str | None = None
    hospital: str | None = None

    def __post_init__(self) -> None:
        ids = {column for column in (self.patient, self.hospital) if column}
        barred = self.leaking | ids | set(self.died.meta.root_names())
        for name, feature in self.features.items():
            if leak := barred & set(feature.columns):
                raise InvalidInput(
                    f"feature {name} of {self.name} is made of {min(leak)}, which tells the outcome or who"
                )
        for name, rule in self.public.items():
            if name not in self.features:
                raise InvalidInput(f"{self.name} has a public rule for {name}, which is none of its features")
            if isinstance(rule, Limits) != (self.features[name].kind == "numeric"):
                raise InvalidInput(
                    f"the public rule of {name} is {type(rule).__name__}, but {name} is {self.features[name].kind}; "
                    "numbers need Limits, and texts Listed or Hashed"
                )

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the file must have."""
        features = [column for feature in self.features.values() for column in feature.columns]
        ids = [column for column in (self.patient, self.hospital) if column]
        roots = [*self.died.meta.root_names(), *self.cohort.meta.root_names(), *ids, *features]
        return tuple(dict.fromkeys(roots))

    def chosen(self, names: tuple[str, ...] | None) -> dict[str, Feature]:
        """Features by name; the default ones when none are named."""
        names = self.default if names is None else names
        unknown = [name for name in names if name not in self.features]
        if unknown or not names:
            raise InvalidInput(
                f"features of {self.name} are {list(names)}; choose at least one of {', '.join(self.features)}"
            )
        return {name: self.features[name] for name in names}
