"""What is learned from what, and how it is judged: one record for presets, simulations, apps and your own modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from lowkey import checks
from lowkey.errors import ConfigError
from lowkey.types import ClientId

if TYPE_CHECKING:  # PyTorch is imported when a model is made, not when a configuration is read
    from lowkey.analytics import Answer, Columns, Question
    from lowkey.learning import ClientDatasets, Examples, Objective

NodeSettings: TypeAlias = Mapping[str, Any]
"""The settings that a node was started with: ``flower-supernode --node-config``."""


class Table(NamedTuple):
    """A client's own rows before they become features, and whose each is, where that is known."""

    columns: Columns
    persons: Any = None


class ClientTables(Protocol):
    """One table per client, such as a list; tables may be made on access."""

    def __len__(self) -> int: ...

    def __getitem__(self, client: int, /) -> Table: ...


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """The table of a task that has no settings."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """A task with everything that was chosen for it: the argument of all functions of a task.

    Attributes
    ----------
    data, model : Any
        The tables ``[data]`` and ``[model]`` of the configuration, as the task's own records.
    clients : int
        Number of clients.
    seed : int
        Names reproducible choices, such as first weights and who holds which example.
    by_person : bool
        Whether persons at the clients are protected, and not clients: then a person's rows must not keep those of
        others out.
    """

    data: Any = field(default_factory=NoSettings)
    model: Any = field(default_factory=NoSettings)
    clients: int = 1
    seed: int = 0
    by_person: bool = False


@dataclass(frozen=True)
class Score:
    """A metric by which runs are judged: its name in the metrics, a label for people, and which way is better."""

    name: str
    label: str
    lower_is_better: bool = False

    def best(self, values: Iterable[float]) -> float:
        """The best of some values of this metric."""
        return min(values) if self.lower_is_better else max(values)


@dataclass(frozen=True, kw_only=True)
class Words:
    """What the two outcomes of a binary task are called in pictures."""

    event: str = "event"
    happened: str = "positive"
    did_not: str = "negative"


@dataclass(frozen=True, kw_only=True)
class Presentation:
    """How the runs of a task are shown: plain data, kept with every run, so that nobody who reads one runs its code.

    Attributes
    ----------
    scores, columns, figures, words :
        As in :class:`Task`.
    """

    scores: tuple[Score, ...]
    columns: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    words: Words = Words()


def _cross_entropy(study: Study) -> Objective:
    del study
    from lowkey.learning import CLASSIFICATION

    return CLASSIFICATION


def _no_test(study: Study) -> None:
    del study


def _no_questions(study: Study) -> tuple[Question, ...]:
    del study
    return ()


def _no_files(study: Study) -> dict[str, Path]:
    del study
    return {}


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is learned from what. Each function is called only where its result is needed.

    Parameters
    ----------
    model : function of a Study
        Makes the ``torch.nn.Module`` with its first weights.
    clients : function of a Study, or None
        The datasets of all clients, for simulations; they may be made on access.
    local_data : function of a Study and the node's settings, or None
        The examples at one node. None takes those of ``clients`` for the node's client.
    test : function of a Study
        Test examples, by which the server evaluates the model; it may return None.
    held_out, local_held_out : as ``clients`` and ``local_data``, or None
        Each client's own test examples, for evaluation.where = "clients".
    tables, local_table : as ``clients`` and ``local_data``, or None
        Each client's rows as a :class:`Table`, for questions about its columns.
    features : function of a Study, or None
        The public feature map that makes the model's inputs, as one line of text: its digest, with words before it if
        you like. Server and clients with different texts do not start.
    asks_before, answered : function of a Study; function of a Study and answers, or None
        Questions about the columns that must be answered before features can be made, by default none; and the settings
        ``data`` that the answers give, or without answers those before them. A simulation asks in a run of its own,
        within the same ε; used for tasks that come with Lowkey only.
    objective : function of a Study
        Loss, metrics and choice of examples; by default cross-entropy and accuracy.
    scores : tuple of Score
        Metrics by which runs are judged; the best round is the best by the first of them.
    columns : tuple of str
        More metrics for the table of the report.
    figures : tuple of str
        More pictures for the report, by their names in ``lowkey.report.FIGURES``.
    words : Words
        What the outcomes are called in these pictures.
    notes : function of the runs in a report
        Returns sentences that explain their figures; used for tasks that come with Lowkey only.
    data, model_settings : type
        Records of the tables ``[data]`` and ``[model]``: frozen dataclasses whose fields are the settings.
    presets : str or None
        Package whose ``presets/*.toml`` have named settings.
    files : function of a Study
        Files that an app of this task needs, by their paths in the app; by default none.
    describe : function of a Study, or None
        Figures about the data, for ``lowkey data describe``.
    check_file : function, or None
        Takes the name of a public file, its path, and whether any version will do; returns what the file holds, for
        ``lowkey data check``, or None if it does not know the name.
    """

    model: Callable[[Study], Any]
    clients: Callable[[Study], ClientDatasets] | None = None
    local_data: Callable[[Study, NodeSettings], Examples] | None = None
    test: Callable[[Study], Examples | None] = _no_test
    held_out: Callable[[Study], ClientDatasets] | None = None
    local_held_out: Callable[[Study, NodeSettings], Examples] | None = None
    tables: Callable[[Study], ClientTables] | None = None
    local_table: Callable[[Study, NodeSettings], Table] | None = None
    features: Callable[[Study], str] | None = None
    asks_before: Callable[[Study], tuple[Question, ...]] = _no_questions
    answered: Callable[[Study, Iterable[Answer]], Any] | None = None
    objective: Callable[[Study], Objective] = _cross_entropy
    scores: tuple[Score, ...] = (Score("accuracy", "accuracy"),)
    columns: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    words: Words = Words()
    notes: Callable[[Sequence[Any]], list[str]] = lambda runs: []  # noqa: ARG005
    data: type = NoSettings
    model_settings: type = NoSettings
    presets: str | None = None
    files: Callable[[Study], Mapping[str, Path]] = _no_files
    describe: Callable[[Study], Mapping[str, float]] | None = None
    check_file: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if self.clients is None and self.local_data is None:
            raise ConfigError("a task needs clients (for simulations), local_data (for nodes) or both; give one")
        checks.at_least("number of scores", len(self.scores), 1)

    @property
    def presentation(self) -> Presentation:
        """How runs of this task are shown."""
        return Presentation(scores=self.scores, columns=self.columns, figures=self.figures, words=self.words)

    def features_of(self, study: Study) -> str:
        """The public feature map in words, with its digest; empty for a task without one."""
        text = "" if self.features is None else self.features(study)
        if not isinstance(text, str) or not text.isprintable():
            raise ConfigError(
                f"the task's features returned {text!r}; it must be one line of text, such as the digest of a map"
            )
        return text

    def all_clients(self, study: Study) -> ClientDatasets:
        """The datasets of all clients, one for each of ``study.clients``."""
        if self.clients is None:
            raise ConfigError(
                "this task knows the data of one node (local_data), not of all clients; to simulate it, give it "
                "clients, too, or run it on Flower"
            )
        found = self.clients(study)
        if len(found) != study.clients:
            raise ConfigError(
                f"federation.clients is {study.clients}, but the task has data of {len(found)} clients; set "
                f"federation.clients={len(found)}"
            )
        return found

    def held_out_at(self, study: Study, node: NodeSettings) -> Examples:
        """The test examples of the client at a node."""
        if self.local_held_out is not None:
            return self.local_held_out(study, node)
        if self.held_out is None:
            raise ConfigError("this task has no test examples of clients; give it held_out or local_held_out")
        return self.held_out(study)[client_of(node)]

    def table_at(self, study: Study, node: NodeSettings) -> Table:
        """The rows of the client at a node, before they become features."""
        if self.local_table is not None:
            return self.local_table(study, node)
        if self.tables is None:
            raise ConfigError("this task has no tables of clients, which questions need; give it tables or local_table")
        return self.tables(study)[client_of(node)]

    def data_at(self, study: Study, node: NodeSettings) -> Examples:
        """The examples of the client at a node."""
        if self.local_data is not None:
            return self.local_data(study, node)
        return self.all_clients(study)[client_of(node)]


def client_of(node: NodeSettings) -> ClientId:
    """Which client a node is."""
    number = node.get("client", node.get("partition-id"))
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ConfigError("the node does not say which client it is; start it with --node-config 'client=0 ...'")
    return number
