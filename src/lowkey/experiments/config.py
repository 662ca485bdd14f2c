"""The configuration of a run: the parts' own records, read from TOML, checked, frozen, and written as TOML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import tomli_w

from lowkey import checks
from lowkey import privacy as accounting
from lowkey.errors import ConfigError, InvalidInput
from lowkey.experiments.settings import DeploymentSettings, FederationSettings, Published, RuntimeSettings
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
    usual_parts,
    with_rate,
)
from lowkey.learning import TRAININGS, FullGradient, LocalSGD
from lowkey.privacy import ClientPrivacy
from lowkey.protocols import Codec, Decoder, ModelShape
from lowkey.registry import Registry
from lowkey.server import Averaging, Gather, Optimiser, Plain, TailAverage
from lowkey.tasks import TASKS, Study, Task, find_task

_CHOOSES = {"server": "optimiser"}  # the key of a table that names its part; "kind" in the others
_CHOSEN: dict[str, Registry[Any]] = {**PARTS, "training": TRAININGS}
_FIXED = {"schedule": Schedule, "runtime": RuntimeSettings, "deployment": DeploymentSettings}
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
        if privacy is not None and privacy.unit == "person":
            self.training.require_persons()
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
    def study(self) -> Study:
        """The argument of the task's functions."""
        task = self.find_task()
        return Study(
            data=to_record("data", task.data, self.data),
            model=to_record("model", task.model_settings, self.model),
            clients=self.federation.clients,
            seed=self.seed,
        )

    def complete(self) -> Config:
        """The same with all settings of the task, also those that have their defaults."""
        study = self.study
        return replace(self, data=study.data, model=study.model)

    def find_task(self) -> Task:
        """The task of this configuration."""
        return find_task(self.task)

    def scheme(self, shape: ModelShape | None = None) -> Scheme:
        """The scheme that this describes, for a model of some shape; the configuration must be resolved."""
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
        if shape is None:
            return made
        return made.for_model(shape, rounds=schedule.last_round, calibration=schedule.calibration)

    def for_nodes(self, nodes: int) -> Config:
        """The same settings with one client for each node; the cohort is at most the number of nodes.

        Resolve the result: noise and rounds that reach an ε depend on the number of clients.
        """
        if nodes < 1:
            raise ConfigError(f"the number of nodes is {nodes}; at least 1 is needed")
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
            return replace(self, federation=federation, averaging=self._averaging(schedule, None))
        population = {"clients": federation.clients, "cohort": federation.cohort}
        if schedule.rounds == "auto":
            by_rule = privacy.noise_multiplier == "auto"
            rounds = (
                rounds_by_rule(privacy, clients=federation.clients, calibration=schedule.calibration)
                if by_rule
                else _affordable(privacy, **population)
            )
            schedule = replace(schedule, rounds=rounds)
        resolved = privacy.resolve(**population, rounds=schedule.last_round, ratio=self.codec.ratio)
        server = self.server
        if isinstance(server, Plain):
            server = with_rate(
                server, resolved, **population, rounds=schedule.last_round, calibration=schedule.calibration
            )
        averaging = self._averaging(schedule, resolved)
        return replace(
            self, federation=federation, privacy=resolved, schedule=schedule, server=server, averaging=averaging
        )

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
    known = ("name", "task", "seed", "data", "model", "federation", *_FIXED, *_CHOSEN, *_OPTIONAL)
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
            **{name: to_record(name, kind, rest.get(name, {})) for name, kind in _FIXED.items()},
            **{name: _part(name, usual[name], rest.get(name, {})) for name in _CHOSEN},
            **{name: to_record(name, kind, rest[name]) for name, kind in _OPTIONAL.items() if name in rest},
        )
    except ConfigError:
        raise
    except InvalidInput as error:
        raise ConfigError(str(error)) from None


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
