"""Who will die in hospital: the second task of the paper, on public admissions and on a synthetic stand-in.

Sparse features, divided among virtual or real hospitals. Its data needs polars and scikit-learn (the extra
``hospital``), which no other part of Lowkey needs; they are imported where rows are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.lazy import late, lazy_names
from lowkey.tasks.mortality.notes import notes
from lowkey.tasks.task import Score, Study, Task, Words


@dataclass(frozen=True, kw_only=True)
class AdmissionSettings:
    """The table ``[data]``.

    Parameters
    ----------
    name : {"diabetes130", "sih-sus", "synthetic"}
        Which admissions.
    source : str
        The file, a directory that holds it, or "auto": see docs/hospital.md.
    division : {"iid", "natural"}
        Virtual hospitals of equal size, as in the paper, or the real ones.
    features : tuple of str, or None
        What to learn from. None takes the default of the source, and "synthetic" has no other.
    encoding : {"fitted", "public", "private"}
        "fitted" learns ranges and vocabularies from everybody's training rows, as in the paper, outside of any ε.
        "public" needs no rows: public limits, lists and hashes. "private" has the same lists and hashes, and asks for
        limits of numbers, within the same ε, before it learns; only simulations do.
    ranges : tuple of (str, float, float, float)
        Name, lower and upper limit of a number, and what stands for a missing one, in place of the public ones. A run
        with "private" finds them; with "public" they are those that another run has found.
    min_count : int
        With "fitted", how many training rows a category or code needs to get its own column.
    min_deaths : int
        Deaths that every hospital needs in its training rows.
    min_admissions : int
        Admissions below which a real hospital is left out.
    largest : int or None
        How many real hospitals take part, those with the most admissions. None takes all.
    test_share : float
        Fraction of the patients that is held out.
    pooled : bool
        Whether one client holds all data: what could be learned without a federation.
    scale : float
        For synthetic hospitals, the number of admissions as a fraction of the paper's.
    any_version : bool
        Accept a file that is not the reference file.
    """

    name: Literal["diabetes130", "sih-sus", "synthetic"] = "synthetic"
    source: str = "auto"
    division: Literal["iid", "natural"] = "iid"
    features: tuple[str, ...] | None = None
    encoding: Literal["fitted", "public", "private"] = "fitted"
    ranges: tuple[tuple[str, float, float, float], ...] = ()
    min_count: int = 100
    min_deaths: int = 1
    min_admissions: int = 10
    largest: int | None = None
    test_share: float = 0.2
    pooled: bool = False
    scale: float = 1.0
    any_version: bool = False

    def __post_init__(self) -> None:
        checks.one_of("data.name", self.name, ("diabetes130", "sih-sus", "synthetic"))
        checks.one_of("data.division", self.division, ("iid", "natural"))
        checks.one_of("data.encoding", self.encoding, ("fitted", "public", "private"))
        if self.ranges and self.encoding == "fitted":
            raise InvalidInput("data.ranges is for data.encoding = 'public' or 'private'; leave it out, or set that")
        if self.name == "synthetic" and self.features is not None:
            raise InvalidInput(
                f"data.features is {list(self.features)}, but synthetic admissions have all of theirs; leave it out"
            )
        checks.at_least("data.min_count", self.min_count, 1)
        checks.at_least("data.min_deaths", self.min_deaths, 0)
        checks.at_least("data.min_admissions", self.min_admissions, 1)
        if self.largest is not None:
            checks.at_least("data.largest", self.largest, 1)
            if self.division != "natural":
                raise InvalidInput("data.largest is for real hospitals; set data.division = 'natural'")
        checks.fraction("data.test_share", self.test_share, include_one=False)
        checks.positive("data.scale", self.scale)


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The table ``[model]``; by default the paper's network, 1,496,601 parameters for 7,280 features.

    Parameters
    ----------
    kind : {"mlp", "head"}
        The paper's network, or logistic regression, for which training by "full-gradient" is made.
    hidden : int
        Of the network: units of each of the two hidden layers.
    """

    kind: Literal["mlp", "head"] = "mlp"
    hidden: int = 200

    def __post_init__(self) -> None:
        checks.one_of("model.kind", self.kind, ("mlp", "head"))
        checks.at_least("model.hidden", self.hidden, 1)


def asks_before(study: Study) -> tuple[Question, ...]:
    """What must be asked before features can be made: quantiles of numbers, where their limits are private."""
    if study.data.encoding != "private":
        return ()
    from lowkey.tasks.mortality.ranges import questions

    return questions(study)


if TYPE_CHECKING:
    from lowkey.analytics import Question
    from lowkey.tasks.mortality.division import Layout, divide
    from lowkey.tasks.mortality.mlp import MortalityMLP
    from lowkey.tasks.mortality.sources import SOURCES, check_source, load_admissions
    from lowkey.tasks.mortality.synthetic import make_synthetic_hospital_data

_HOMES = {
    "division": ("Layout", "divide"),
    "mlp": ("MortalityMLP",),
    "sources": ("SOURCES", "check_source", "load_admissions"),
    "synthetic": ("make_synthetic_hospital_data",),
}
__getattr__ = lazy_names(__name__, _HOMES)
_PARTS = f"{__name__}.parts"

MORTALITY = Task(
    model=late(_PARTS, "model"),
    clients=late(_PARTS, "clients"),
    test=late(_PARTS, "test"),
    held_out=late(_PARTS, "held_out"),
    tables=late(_PARTS, "tables"),
    features=late(f"{__name__}.maps", "features"),
    asks_before=asks_before,
    answered=late(f"{__name__}.ranges", "answered"),
    objective=late(_PARTS, "objective"),
    scores=(Score("balanced_accuracy", "balanced accuracy"), Score("auroc", "AUROC")),
    columns=("sensitivity", "specificity"),
    figures=("calibration", "confusion"),
    words=Words(event="death", happened="died", did_not="survived"),
    notes=notes,
    data=AdmissionSettings,
    model_settings=ModelSettings,
    presets=__name__,
    describe=late(_PARTS, "describe"),
    check_file=late(f"{__name__}.sources", "check_file"),
)

__all__ = [
    "MORTALITY",
    "SOURCES",
    "AdmissionSettings",
    "Layout",
    "ModelSettings",
    "MortalityMLP",
    "check_source",
    "divide",
    "load_admissions",
    "make_synthetic_hospital_data",
]
