"""What is learned from what, and how it is judged: one record for presets, simulations, apps and your modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from lowkey import checks
from lowkey.errors import ConfigError
from lowkey.types import ClientId

if TYPE_CHECKING:  # PyTorch is imported where a model is made, and not to read a configuration
    from lowkey.learning import ClientDatasets, Examples, Objective

NodeSettings: TypeAlias = Mapping[str, Any]
"""What a node was started with: ``flower-supernode --node-config``."""


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """The table of a task that has nothing to choose."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """A task with everything that was chosen about it: what all functions of a task are given.

    Attributes
    ----------
    data, model : Any
        The tables ``[data]`` and ``[model]`` of the configuration, as records of the task's own.
    clients : int
        How many clients there are.
    seed : int
        Names reproducible choices, such as first weights and who holds which example.
    """

    data: Any = field(default_factory=NoSettings)
    model: Any = field(default_factory=NoSettings)
    clients: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Score:
    """A metric that runs are judged by: its name in the metrics, and in words."""

    name: str
    label: str


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


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is learned from what. Each function is called where its result is needed, and nowhere else.

    Parameters
    ----------
    model : function of a Study
        Makes the ``torch.nn.Module`` with its first weights.
    clients : function of a Study, or None
        The datasets of all clients, for simulations; they may be made on access.
    local_data : function of a Study and the node's settings, or None
        The examples at one node. None: those of ``clients`` under the number of the node's client.
    test : function of a Study
        What the server judges the model by; it may give None.
    objective : function of a Study
        Loss, metrics and choice of examples; by default cross-entropy and accuracy.
    scores : tuple of Score
        Metrics that count; the best round is the one that is best by the first.
    columns : tuple of str
        More metrics that the report's table shows.
    figures : tuple of str
        More pictures for the report, by their names in ``lowkey.report.FIGURES``.
    words : Words
        For these pictures.
    notes : function of the runs in a report
        Sentences about reading their figures; only of tasks that come with Lowkey.
    data, model_settings : type
        Records of the tables ``[data]`` and ``[model]``: frozen dataclasses whose fields are the settings.
    presets : str or None
        Package whose ``presets/*.toml`` have named settings.
    describe : function of a Study, or None
        Figures about the data, for ``lowkey data describe``.
    check_file : function, or None
        Of the name of a public file, its path, and whether any version will do: what the file holds, for ``lowkey data
        check``. None where it does not know the name.
    """

    model: Callable[[Study], Any]
    clients: Callable[[Study], ClientDatasets] | None = None
    local_data: Callable[[Study, NodeSettings], Examples] | None = None
    test: Callable[[Study], Examples | None] = _no_test
    objective: Callable[[Study], Objective] = _cross_entropy
    scores: tuple[Score, ...] = (Score("accuracy", "accuracy"),)
    columns: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    words: Words = Words()
    notes: Callable[[Sequence[Any]], list[str]] = lambda runs: []  # noqa: ARG005
    data: type = NoSettings
    model_settings: type = NoSettings
    presets: str | None = None
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

    def all_clients(self, study: Study) -> ClientDatasets:
        """The datasets of all clients, one for each of ``study.clients``."""
        if self.clients is None:
            raise ConfigError(
                "this task says what one node holds (local_data), not what all clients hold; to simulate it, give it "
                "clients, too, or run it on Flower"
            )
        found = self.clients(study)
        if len(found) != study.clients:
            raise ConfigError(
                f"federation.clients is {study.clients}, but the task has data of {len(found)} clients; set "
                f"federation.clients={len(found)}"
            )
        return found

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
