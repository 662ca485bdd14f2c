"""What is known about a public file of admissions: its shape, its cohort, and the columns that features may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from lowkey.errors import InvalidInput
from lowkey.tabular import Limits, Rule


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


def rule_of(name: str, rules: Mapping[str, Rule]) -> Rule:
    """The public rule of a feature; one without a rule is refused."""
    if name not in rules:
        raise InvalidInput(
            f"the feature {name} has no public rule; leave it out of data.features, or set data.encoding = 'fitted'"
        )
    return rules[name]


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
    public : mapping of str to Rule
        For features that can do without fitting, the public rule of each.
    wide : mapping of str to (float, float)
        For numeric ones of these, limits that nobody doubts; narrower ones are asked for within them.
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
    public: Mapping[str, Rule] = field(default_factory=dict, repr=False)
    wide: Mapping[str, tuple[float, float]] = field(default_factory=dict, repr=False)
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
        if numbers := {name for name, rule in self.public.items() if isinstance(rule, Limits)} ^ self.wide.keys():
            raise InvalidInput(f"{min(numbers)} of {self.name} needs a public rule and wide limits; give both")

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
