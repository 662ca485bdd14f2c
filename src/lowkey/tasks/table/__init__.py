"""A yes or no from tables of one's own: CSV or Parquet files, turned into features by an encoder that all agree on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lowkey import checks
from lowkey.errors import InvalidInput
from lowkey.lazy import late
from lowkey.tasks.task import Score, Task


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """The table ``[data]``.

    Parameters
    ----------
    label : str
        Column with the outcome: 0 or 1, true or false, yes or no.
    person : str or None
        Column that says whose each row is; None takes every row as a person of its own.
    encoder : str or None
        The encoder's file. A relative path is looked for in the directory of the app or beside the TOML file, wherever
        Python looks for modules, and then in the working directory. It is needed to learn, not to ask questions.
    encoder_digest : str or None
        Its digest; another encoder is refused.
    schema : str or None
        The schema's file, found in the same way, which says how columns are read when questions about them are asked;
        None takes the columns of the encoder.
    test_share : float
        Fraction of the persons that every client keeps for tests; a public hash chooses them.
    tables : tuple of str
        For simulations, the table of each client; relative to the working directory.
    test : str or None
        A table by which the server judges the model, if it has one.
    """

    label: str
    person: str | None = None
    encoder: str | None = None
    encoder_digest: str | None = None
    schema: str | None = None
    test_share: float = 0.2
    tables: tuple[str, ...] = ()
    test: str | None = None

    def __post_init__(self) -> None:
        checks.fraction("data.test_share", self.test_share, include_zero=True, include_one=False)
        if self.encoder is None and self.schema is None:
            raise InvalidInput("data.encoder is missing; name the file of an encoder, or data.schema to ask questions")
        if self.person == self.label:
            raise InvalidInput(f"data.label and data.person are both {self.label!r}; they must be two columns")


@dataclass(frozen=True, kw_only=True)
class HeadSettings:
    """The table ``[model]``.

    Parameters
    ----------
    kind : {"head"}
        Logistic regression, for which training by "full-gradient" is made.
    frequency : float
        About how often the outcome happens, as the literature says: calibration starts from there.
    """

    kind: Literal["head"] = "head"
    frequency: float = 0.05

    def __post_init__(self) -> None:
        checks.one_of("model.kind", self.kind, ("head",))
        checks.fraction("model.frequency", self.frequency, include_one=False)


_PARTS = f"{__name__}.parts"

TABLE = Task(
    model=late(_PARTS, "model"),
    clients=late(_PARTS, "clients"),
    local_data=late(_PARTS, "local_data"),
    test=late(_PARTS, "test"),
    features=late(_PARTS, "features"),
    held_out=late(_PARTS, "held_out"),
    local_held_out=late(_PARTS, "local_held_out"),
    tables=late(_PARTS, "tables"),
    local_table=late(_PARTS, "local_table"),
    objective=late(_PARTS, "objective"),
    scores=(Score("balanced_accuracy", "balanced accuracy"), Score("auroc", "AUROC")),
    columns=("sensitivity", "specificity"),
    figures=("calibration", "confusion"),
    data=TableSettings,
    model_settings=HeadSettings,
    files=late(_PARTS, "files"),
    describe=late(_PARTS, "describe"),
)

__all__ = ["TABLE", "HeadSettings", "TableSettings"]
