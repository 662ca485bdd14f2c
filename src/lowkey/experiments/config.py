"""The configuration of a run: the parts' own records, read from TOML, checked, frozen, and written as TOML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import tomli_w

from lowkey import checks
from lowkey import privacy as accounting
from lowkey.analytics import QUESTIONS, Question, ScoreQuestion, well_binned
from lowkey.errors import ConfigError, InvalidInput
from lowkey.experiments.settings import (
    DeploymentSettings,
    EvaluationSettings,
    FederationSettings,
    Published,
    RuntimeSettings,
)
from lowkey.experiments.tables import to_record, to_table, unknown_key
from lowkey.federation import (
    PARTS,
    Schedule,
    Scheme,
    average_by_rule,
    require_fit,
    require_promise,
    rounds_by_rule,
    scheme,
    total_noise,
    usual_parts,
    with_rate,
)
from lowkey.learning import TRAININGS, FullGradient, LocalSGD
from lowkey.privacy import ClientMechanism, ClientPrivacy, Event, make_sampling
from lowkey.protocols import Codec, Decoder, ModelShape
from lowkey.registry import Registry
from lowkey.server import Averaging, Gather, Optimiser, Plain, TailAverage
from lowkey.tasks import TASKS, Study, Task, find_task

NO_MODEL = ModelShape((1,))
"""Stands for a model where there is none."""
MOST_BINS = 40
"""Bins of scores where no noise has to be seen."""
TEST_SHARE = 0.2
"""About how many test rows there are for a person whose rows are learned from."""
_CHOOSES = {"server": "optimiser"}  # the key of a table that names its part; "kind" in the others
_CHOSEN: dict[str, Registry[Any]] = {**PARTS, "training": TRAININGS}
_FIXED = {
    "schedule": Schedule,
    "evaluation": EvaluationSettings,
    "runtime": RuntimeSettings,
    "deployment": DeploymentSettings,
}
_OPTIONAL = {"privacy": ClientPrivacy, "paper": Published}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that defines a run.

    Attributes
    ----------
    name, task, seed : str, str, int
        What the run is called, what it learns (a task of Lowkey or a module of yours), and the seed of all
        reproducible choices.
    data, model : records of the task
        The tables ``[data]`` and ``[model]``. For a task in a module of your own they stay plain tables until ``study``
        is read: a node reads the configuration for every message, and most messages do not need the module.
    federation, schedule : FederationSettings, Schedule
        Who learns together, and how many rounds there are.
    training : LocalSGD or FullGradient
        What a client does in a round; ``kind`` chooses, "sgd" unless it is said.
    codec, decoder, gather, server, averaging : parts of a scheme
        Each table names its part (by ``kind``; in ``[server]`` by ``optimiser``) unless it is the usual one of the
        scheme.
    questions : tuple of Question
        What clients are asked before the first round that learns: tables ``[[questions]]``, each with its ``kind``.
    evaluation : EvaluationSettings
        Who evaluates the model.
    privacy : ClientPrivacy or None
        What is promised, in schemes with "-dp".
    runtime, deployment : RuntimeSettings, DeploymentSettings
        How clients are run and how often to save; how long to wait for real nodes.
    paper : Published or None
        Published values, for comparison.
    """

    name: str = "custom"
    task: str
    seed: int = 0
    data: Any
    model: Any
    federation: FederationSettings
    training: LocalSGD | FullGradient = field(default_factory=LocalSGD)
    schedule: Schedule = field(default_factory=Schedule)
    codec: Codec
    decoder: Decoder
    gather: Gather
    server: Optimiser
    averaging: Averaging
    questions: tuple[Question, ...] = ()
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    privacy: ClientPrivacy | None = None
    runtime: RuntimeSettings = field(default_factory=RuntimeSettings)
    deployment: DeploymentSettings = field(default_factory=DeploymentSettings)
    paper: Published | None = None

    def __post_init__(self) -> None:
        name, federation, privacy = self.federation.scheme, self.federation, self.privacy
        if not self.name.strip() or not self.name.isprintable():
            raise InvalidInput(
                f"name is {self.name!r}; it must be one line of text: clients count by it what they gave"
            )
        checks.at_least("seed", self.seed, 0)
        require_promise(name, privacy, federation.min_clients)
        if federation.cohort > federation.clients:
            raise InvalidInput(
                f"federation.cohort is {federation.cohort}; it must be at most federation.clients, {federation.clients}"
            )
        require_fit(self._parts)
        names = [question.name for question in self.questions]
        if len(set(names)) < len(names):
            raise InvalidInput(f"questions are called {', '.join(names)}; give each a name of its own")
        if self.schedule.rounds == 0 and not self.asks:
            raise InvalidInput(
                "schedule.rounds is 0, and nothing is asked; set rounds, or ask something: [[questions]]"
            )
        if self.schedule.patience and not self.evaluation.every:
            raise InvalidInput("schedule.patience needs evaluations by clients on the way; set evaluation.every")
        if privacy is not None and privacy.unit == "person":
            self.training.require_persons()
        if privacy is not None and privacy.spent and federation.ledger is None:
            raise InvalidInput(
                f"privacy.spent is {privacy.spent:g}, which earlier runs have paid; name their ledger, an absolute "
                "path, as federation.ledger, so that all of it adds up"
            )
        target = privacy.epsilon if privacy else None
        if self.schedule.rounds == "auto" and target is None:
            raise InvalidInput("schedule.rounds is 'auto', which needs privacy.epsilon; set one of them")
        if privacy is not None and privacy.noise_multiplier == "auto":
            if target is None:
                raise InvalidInput("privacy.noise_multiplier is 'auto', which needs privacy.epsilon; set one of them")
            everybody = federation.cohort == federation.clients
            if self.schedule.rounds == "auto" and not (privacy.clip == "normalise" and everybody):
                raise InvalidInput(
                    "schedule.rounds and privacy.noise_multiplier are both 'auto', for which there is a rule only "
                    "where everybody takes part (federation.cohort) and privacy.clip is 'normalise'; set one of them"
                )
        elif self.schedule.rounds == "auto" and privacy is not None and privacy.centring:
            raise InvalidInput("schedule.rounds is 'auto', and privacy.centring needs their number; set one of them")

    @property
    def _parts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in PARTS}

    @property
    def asks(self) -> bool:
        """Whether clients are asked anything besides being trained."""
        return bool(self.questions) or self.evaluation.where == "clients"

    @property
    def asked(self) -> list[str]:
        """What clients are asked besides being trained, each in one line."""
        columns = [(question, ", ".join(question.columns)) for question in self.questions]
        lines = [f"{QUESTIONS.name_of(type(question))} '{question.name}' of {names}" for question, names in columns]
        if self.evaluation.where == "clients":
            when = f"every {self.evaluation.every} rounds and at the end" if self.evaluation.every else "at the end"
            lines.append(f"how the model scores this node's own test rows, {when}")
        return lines

    @property
    def asked_before(self) -> tuple[Question, ...]:
        """What must be asked, in a run of its own, before this one can learn: see :class:`lowkey.tasks.Task`."""
        if self.schedule.rounds == 0 or self.task not in TASKS:
            return ()
        return TASKS[self.task].asks_before(self.study)

    @property
    def only_asks(self) -> bool:
        """Whether there is no model: nothing is learned, and none is evaluated."""
        return self.schedule.rounds == 0 and self.evaluation.where == "server"

    @property
    def total_rounds(self) -> int:
        """Rounds that learn, and those in which something is asked."""
        learns = self.schedule.last_round
        return learns + len(self.questions) + self.evaluation.times(learns)

    @property
    def score_question(self) -> Question | None:
        """What clients are asked about the model's scores; None where they do not evaluate it."""
        if self.evaluation.where == "server":
            return None
        return _question("evaluation.question", {"kind": "scores", "name": "evaluation", **self.evaluation.question})

    @property
    def study(self) -> Study:
        """The argument of the task's functions."""
        task = self.find_task()
        return Study(
            data=to_record("data", task.data, self.data),
            model=to_record("model", task.model_settings, self.model),
            clients=self.federation.clients,
            seed=self.seed,
            by_person=self.privacy is not None and self.privacy.unit == "person",
        )

    def complete(self) -> Config:
        """The same with all settings of the task, also those that have their defaults."""
        study = self.study
        return replace(self, data=study.data, model=study.model)

    def find_task(self) -> Task:
        """The task of this configuration."""
        return find_task(self.task)

    def features(self) -> str:
        """The public feature map of the task, in words with its digest; empty without one, or without a model."""
        return "" if self.only_asks else self.find_task().features_of(self.study)

    def scheme(self, shape: ModelShape | None = None, *, features: str = "") -> Scheme:
        """The scheme that this describes, for a model of some shape; the configuration must be resolved.

        Parameters
        ----------
        shape : ModelShape or None
            Sizes of the model's parts; without, every round learns everything.
        features : str
            What :meth:`features` returned, or what a node remembers of it; it becomes part of the terms.
        """
        federation, schedule = self.federation, self.schedule
        made = scheme(
            federation.scheme,
            clients=federation.clients,
            cohort=federation.cohort,
            min_clients=federation.min_clients,
            privacy=self.privacy,
            seed=self.seed,
            **self._parts,
        )
        made = replace(made, features=features)
        if shape is None:
            return made
        return made.for_model(
            shape,
            rounds=schedule.last_round,
            calibration=schedule.calibration,
            questions=self.questions,
            evaluation=self.score_question,
            every=self.evaluation.every,
        )

    def priced_scheme(self, num_coordinates: int = 3) -> Scheme:
        """The scheme for a model of which only the size is known, if that: enough to know what rounds cost."""
        centre = 1 if self.privacy is not None and self.privacy.centring else 0
        calibration = 1 if self.schedule.calibration else 0
        layers = (centre, num_coordinates - centre - calibration, calibration)
        shape = ModelShape(tuple(size for size in layers if size), centre=centre, calibration=calibration)
        return self.scheme(NO_MODEL if self.only_asks else shape)

    def events_before(self, *, reserved: bool) -> list[Event]:
        """What the answers before this run cost, in a resolved configuration; also with their spare attempts."""
        if self.privacy is None or not (before := len(self.asked_before)):
            return []
        everybody = make_sampling("all", population=self.federation.clients, cohort=self.federation.clients)
        attempts = replace(self.privacy, questions=before).asking_attempts if reserved else before
        return [replace(everybody.event(float(self.privacy.asking_noise)), count=attempts)]

    def asking(self, ledger: Path) -> Config:
        """The run that asks what must be asked before this one, which must be resolved.

        Parameters
        ----------
        ledger : Path
            The ledger of this run, where it names no other.
        """
        privacy, task = self.privacy, self.find_task()
        assert task.answered is not None
        if privacy is not None:
            privacy = replace(
                privacy,
                noise_multiplier=privacy.asking_noise,
                max_contributions="auto",
                spare_attempts="auto",
                rounds=None,
                sampling=None,
                roster=None,
            )
        return replace(
            self,
            federation=replace(self.federation, ledger=self.federation.ledger or str(ledger.resolve())),
            data=task.answered(self.study, ()),
            questions=self.asked_before,
            schedule=replace(self.schedule, rounds=0, calibration=0, patience=0),
            evaluation=EvaluationSettings(),
            privacy=privacy,
        ).resolve()

    def for_nodes(self, nodes: int) -> Config:
        """The same settings with one client for each node; the cohort is at most the number of nodes.

        Resolve the result: noise and rounds that reach an ε depend on the number of clients.
        """
        if nodes < 1:
            raise ConfigError(f"the number of nodes is {nodes}; at least 1 is needed")
        if self.asked_before:
            raise ConfigError(
                "data.encoding is 'private', for which nodes need two apps: one that asks for quantiles of the numbers "
                "('lowkey stats'), then one with data.encoding = 'public', and data.ranges as they were found"
            )
        cohort, privacy = min(self.federation.cohort, nodes), self.privacy
        if privacy is not None:
            if nodes < 3:
                raise ConfigError(
                    f"the number of nodes is {nodes}; secure aggregation needs at least 3 clients to hide anything"
                )
            privacy = replace(privacy, aggregation="masked")
        return replace(self, federation=replace(self.federation, clients=nodes, cohort=cohort), privacy=privacy)

    def resolve(self) -> Config:
        """Replace every "auto" of the guarantee by its number: noise or rounds, spare attempts, the clients' limit."""
        privacy, schedule, federation = self.privacy, self.schedule, self.federation
        if federation.ledger is not None:  # the file itself, wherever links lead later
            federation = replace(federation, ledger=str(Path(federation.ledger).resolve()))
        if privacy is None:
            return replace(
                self, federation=federation, averaging=self._averaging(schedule, None), evaluation=self._binned(None)
            )
        population = {"clients": federation.clients, "cohort": federation.cohort}
        if schedule.rounds == "auto":
            by_rule = privacy.noise_multiplier == "auto"
            rounds = (
                rounds_by_rule(privacy, clients=federation.clients, calibration=schedule.calibration)
                if by_rule
                else _affordable(privacy, **population)
            )
            schedule = replace(schedule, rounds=rounds)
        if schedule.last_round == 0:
            privacy = replace(privacy, centring=0.0, centring_noise="auto")
        own, before = len(self.questions) + self.evaluation.times(schedule.last_round), len(self.asked_before)
        resolved = replace(privacy, questions=own + before).resolve(
            **population, rounds=schedule.last_round, ratio=self.codec.ratio
        )
        if before and privacy.max_contributions == "auto" and isinstance(resolved.max_contributions, int):
            elsewhere = resolved.asking_attempts - replace(resolved, questions=own).asking_attempts
            resolved = replace(resolved, max_contributions=resolved.max_contributions - elsewhere)
        server = self.server
        if isinstance(server, Plain) and schedule.last_round:
            server = with_rate(
                server, resolved, **population, rounds=schedule.last_round, calibration=schedule.calibration
            )
        averaging = self._averaging(schedule, resolved)
        return replace(
            self,
            federation=federation,
            privacy=resolved,
            schedule=schedule,
            server=server,
            averaging=averaging,
            evaluation=self._binned(resolved),
        )

    def _binned(self, privacy: ClientPrivacy | None) -> EvaluationSettings:
        """The same with as many bins of scores as suit the noise, unless it is said."""
        settings, question = self.evaluation, self.score_question
        if not isinstance(question, ScoreQuestion) or "bins" in settings.question:
            return settings
        bins = MOST_BINS
        if privacy is not None:
            clients = self.federation.clients
            everybody = make_sampling("all", population=clients, cohort=clients)
            noise = total_noise(ClientMechanism(settings=privacy.of_question(), sampling=everybody))
            units = clients if privacy.persons is None else max(1, round(TEST_SHARE * privacy.persons))
            positives = units * question.rows * question.prevalence
            bins = well_binned(question, units=units, positives=positives, noise=noise).bins
            if privacy.persons is not None:
                return replace(settings, question={"share": TEST_SHARE, **settings.question, "bins": bins})
        return replace(settings, question={**settings.question, "bins": bins})

    def _averaging(self, schedule: Schedule, privacy: ClientPrivacy | None) -> Averaging:
        if not isinstance(self.averaging, TailAverage) or self.averaging.start != "auto":
            return self.averaging
        return TailAverage(start=average_by_rule(schedule.last_round, privacy, schedule.calibration))

    def to_table(self) -> dict[str, Any]:
        """The configuration as nested tables, which :func:`parse` reads again."""
        table: dict[str, Any] = {"name": self.name, "task": self.task, "seed": self.seed}
        for name in ("data", "model", "federation", *_FIXED):
            table[name] = to_table(getattr(self, name))
        for name, registry in _CHOSEN.items():
            part = getattr(self, name)
            table[name] = {_CHOOSES.get(name, "kind"): registry.name_of(type(part)), **to_table(part)}
        if self.questions:
            table["questions"] = [
                {"kind": QUESTIONS.name_of(type(question)), **to_table(question)} for question in self.questions
            ]
        for name in _OPTIONAL:
            if getattr(self, name) is not None:
                table[name] = to_table(getattr(self, name))
        return table

    def to_toml(self) -> str:
        return tomli_w.dumps(self.to_table())


def parse(table: Mapping[str, Any]) -> Config:
    """Check nested tables; errors name the dotted key and, for unknown ones, the nearest valid key."""
    rest = {"name": "custom", "task": "fashion-mnist", "seed": 0, **table}
    for key, kind in (("name", str), ("task", str), ("seed", int)):
        if type(rest[key]) is not kind:
            raise ConfigError(f"{key} is {rest[key]!r}; it must be {'text' if kind is str else 'a whole number'}")
    known = ("name", "task", "seed", "data", "model", "federation", "questions", *_FIXED, *_CHOSEN, *_OPTIONAL)
    if unknown := [key for key in rest if key not in known]:
        raise ConfigError("; ".join(unknown_key(key, known) for key in unknown))
    data, model = rest.get("data", {}), rest.get("model", {})
    if rest["task"] in TASKS:
        task = TASKS[rest["task"]]
        data, model = to_record("data", task.data, data), to_record("model", task.model_settings, model)
    try:
        federation = to_record("federation", FederationSettings, rest.get("federation", {}))
        usual = {**usual_parts(federation.scheme), "training": "sgd"}
        return Config(
            name=rest["name"],
            task=rest["task"],
            seed=rest["seed"],
            data=data,
            model=model,
            federation=federation,
            questions=_questions(rest.get("questions", [])),
            **{name: to_record(name, kind, rest.get(name, {})) for name, kind in _FIXED.items()},
            **{name: _part(name, usual[name], rest.get(name, {})) for name in _CHOSEN},
            **{name: to_record(name, kind, rest[name]) for name, kind in _OPTIONAL.items() if name in rest},
        )
    except ConfigError:
        raise
    except InvalidInput as error:
        raise ConfigError(str(error)) from None


def _questions(tables: Any) -> tuple[Question, ...]:
    if not isinstance(tables, list | tuple):
        raise ConfigError(f"questions is {tables!r}; it must be a list of tables, each under [[questions]]")
    return tuple(_question(f"questions[{number}]", table) for number, table in enumerate(tables))


def _question(section: str, table: Any) -> Question:
    """The question that a table describes."""
    if not isinstance(table, Mapping) or "kind" not in table:
        raise ConfigError(f"{section} has no kind; set one of {', '.join(QUESTIONS)}")
    settings = {name: value for name, value in table.items() if name != "kind"}
    asked: Question = to_record(section, QUESTIONS[table["kind"]], settings)
    return asked


def _part(section: str, usual: str, table: Mapping[str, Any]) -> Any:
    """The part that a table names, with its settings."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{section} is {table!r}; it must be a table")
    key, kinds = _CHOOSES.get(section, "kind"), _CHOSEN[section]
    chosen = table.get(key, usual)
    kind, settings = kinds[chosen], {name: value for name, value in table.items() if name != key}
    for name in settings.keys() - _settings_of(kind):
        if others := [repr(other) for other in kinds if name in _settings_of(kinds[other])]:
            raise ConfigError(
                f"{section}.{name} is a setting of {' and '.join(others)}, but {section}.{key} is {chosen!r}; leave it "
                f"out (--set '{section}={{{key}=\"{chosen}\"}}' replaces the whole table), or choose another"
            )
    return to_record(section, kind, settings)


def _settings_of(kind: Any) -> set[str]:
    return {field.name for field in fields(kind)}


def _affordable(privacy: ClientPrivacy, *, clients: int, cohort: int) -> int:
    assert privacy.epsilon is not None
    event = privacy.sampling_of(clients=clients, cohort=cohort).event(float(privacy.noise_multiplier))
    attempts = accounting.affordable_rounds(event, epsilon=privacy.epsilon, delta=privacy.delta)
    rounds = accounting.rounds_within(attempts, privacy.spare_attempts)
    if rounds == 0:
        raise ConfigError(
            f"not one round, with its spare attempts, fits into privacy.epsilon = {privacy.epsilon}; raise "
            'privacy.epsilon, or the noise (privacy.noise_multiplier = "auto" finds it)'
        )
    return rounds
