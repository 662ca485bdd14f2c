"""Before the first round: which models can be learned under a promise, at what price, and which of them to run.

Every figure is of a configuration that would run: its rounds, noise and rates are those of :meth:`Config.resolve`, its
bytes those of its scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias

from lowkey import checks
from lowkey import privacy as accounting
from lowkey.errors import ConfigError, InvalidInput
from lowkey.experiments.asking import askable
from lowkey.experiments.candidates import USUAL_FEATURES, Candidate, Plan
from lowkey.experiments.config import Config, parse
from lowkey.experiments.feasibility import signal_of
from lowkey.experiments.library import find, presets
from lowkey.experiments.nested import merge, override
from lowkey.federation import (
    CALIBRATION_ROUNDS,
    CENTRING,
    SAMPLED_ROUNDS,
    Scheme,
    events_at_limit,
    noise_in_a_score,
    planned_events,
    projection_by_rule,
    rounds_that_learn,
    traffic,
    vectors_up,
    widths_by_rule,
)
from lowkey.figures import human_megabits
from lowkey.learning import CentredHead, FullGradient, LinearHead, RiskHead, model_shape
from lowkey.privacy import ENOUGH_SIGNAL, ClientMechanism, spare_attempts
from lowkey.protocols import ModelShape
from lowkey.server import Plain
from lowkey.tasks import TASKS

PAPER_PARAMETERS = 1_663_370
"""Of the paper's network for images."""
FEW_FEATURES = 400
"""A projection that costs little to send, shown beside."""

_SAMPLED = 100
_EVERYBODY_UP_TO = 500
_RATIOS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
_BITS: tuple[Literal[16, 20, 24, 28], ...] = (16, 20, 24, 28)
_PROMISE = ("epsilon", "delta", "dropouts", "colluders", "graph")
_SETTLED = ("noise_multiplier", "centring_noise", "max_contributions", "sampling", "rounds", "roster")
_Module: TypeAlias = Callable[[Config], Any]


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What is given before a plan; None is left to the settings that it starts from, or to the usual.

    Parameters
    ----------
    clients : int or None
        N.
    examples : int or None
        Examples that a client has, about. Where clients are too few, the plan says whether their examples are enough.
    features : int or None
        Public features of an example, d.
    classes : int or None
        Of softmax regression; 2 means a risk, by logistic regression.
    parameters : int or None
        Numbers of the network that is shown beside.
    epsilon, delta : float or None
        The promise to people who see released models.
    dropouts, colluders : float or None
        Fractions of a roster.
    graph : str or None
        Who masks with whom: "worst-case", "random", or "auto" for whichever takes far fewer neighbours.
    cohort : int or None
        Contributors of a round where clients are sampled.
    limit : float or None
        Megabits of vectors that a client may send in the whole run, on average.
    auroc_error : float
        Mean absolute error of the AUROC that an evaluation by clients should have.
    """

    clients: int | None = None
    examples: int | None = None
    features: int | None = None
    classes: int | None = None
    parameters: int | None = None
    epsilon: float | None = None
    delta: float | None = None
    dropouts: float | None = None
    colluders: float | None = None
    graph: str | None = None
    cohort: int | None = None
    limit: float | None = None
    auroc_error: float = 0.02

    def __post_init__(self) -> None:
        for name, least in (("clients", 3), ("examples", 1), ("features", 1), ("classes", 2), ("parameters", 1)):
            if (value := getattr(self, name)) is not None:
                checks.at_least(f"--{name}", value, least)
        for name in ("epsilon", "limit"):
            if (number := getattr(self, name)) is not None:
                checks.positive(f"--{name}", number)
        if self.cohort is not None:
            checks.at_least("--cohort", self.cohort, 1)
        checks.fraction("--auroc-error", self.auroc_error, include_one=False)


def plan(wishes: Wishes, source: str | None = None, changes: Sequence[str] = ()) -> Plan:
    """Candidates for a promise.

    Parameters
    ----------
    wishes : Wishes
        What is given.
    source : str or None
        A preset or TOML file with settings of a private head; its task, data and model are what is learned. None plans
        for a head on ``wishes.features`` public features.
    changes : sequence of str
        Assignments to the settings of ``source``.
    """
    maker = _generic(wishes) if source is None else _of_source(source, changes, wishes)
    made, errors = list[Candidate](), list[tuple[str, InvalidInput]]()
    for label, attempt in maker.attempts():
        try:
            candidate = attempt()
            if all(candidate.config != other.config for other in made):
                made.append(candidate)
        except InvalidInput as error:
            errors.append((label, error))
    if not any(one.model == "head" for one in made):
        raise errors[0][1]
    refused = tuple(f"{label}: {error}" for label, error in errors)
    asked = askable(made[0].config, examples=wishes.examples, wanted=wishes.auroc_error)
    return Plan(candidates=tuple(made), refused=refused, examples=wishes.examples, askable=asked)


def _generic(wishes: Wishes) -> _Maker:
    """Heads for a task that is not known."""
    if missing := [f"--{name}" for name in ("clients", "features", "epsilon") if getattr(wishes, name) is None]:
        raise InvalidInput(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; give {' and '.join(missing)}, or "
            "name a preset or TOML file with settings of a private head, such as fashion-mnist/private"
        )
    classes = wishes.classes or 2
    risk = classes == 2
    table = {
        "name": "plan",
        "task": "your_task",
        "model": {"features": wishes.features},
        "federation": {"scheme": "fl-std-dp"},
        "training": {"kind": "full-gradient", "balanced": risk},
        "privacy": {"clip": "normalise", "centring": 0.0 if risk else CENTRING},
        "schedule": {"calibration": CALIBRATION_ROUNDS if risk else 0},
        "averaging": {"kind": "tail"},
    }

    def module(config: Config) -> Any:
        width = config.model["features"]
        return RiskHead(width, bias=False) if risk else CentredHead(width, classes)

    return _Maker(table, module, wishes)


def _of_source(source: str, changes: Sequence[str], wishes: Wishes) -> _Maker:
    """Heads for the task of a preset or file, whose settings must be those of a private head."""
    if wishes.classes is not None:
        raise InvalidInput(f"--classes is {wishes.classes}, but {source} has its own task; leave it out")
    table = override(find(source), changes)
    config = parse(table)
    if not isinstance(config.training, FullGradient) or config.privacy is None or config.privacy.clip != "normalise":
        heads = [name for name in presets() if name.endswith("/private") and presets()[name]["task"] == config.task]
        raise ConfigError(
            f"{source} has no private head: a plan starts from training.kind = 'full-gradient' and privacy.clip = "
            f"'normalise'; {'name ' + ' or '.join(heads) if heads else 'set those'}"
        )
    if wishes.features is not None and not _projects(config):
        raise InvalidInput(
            f"--features is {wishes.features}, but the task of {source} has no setting model.features; leave it out"
        )
    return _Maker(table, lambda config: config.find_task().model(config.study), wishes)


def _projects(config: Config) -> bool:
    """Whether the task can project its features to fewer."""
    model = config.model
    return "features" in ({field.name for field in fields(model)} if is_dataclass(model) else model)


class _Maker:
    """Makes the candidates of a plan from one table of settings."""

    def __init__(self, table: dict[str, Any], module: _Module, wishes: Wishes) -> None:
        given = {name: value for name in _PROMISE if (value := getattr(wishes, name)) is not None}
        privacy = {key: value for key, value in table["privacy"].items() if key not in _SETTLED} | given
        self.clients: int = wishes.clients or table["federation"]["clients"]
        if "epsilon" not in privacy:
            raise InvalidInput("the settings have no privacy.epsilon; give --epsilon")
        checks.at_least("--clients", self.clients, 3)
        self.cohort = wishes.cohort or min(_SAMPLED, self.clients // 2)
        if self.cohort >= self.clients:
            raise InvalidInput(f"--cohort is {self.cohort}; it must be below the number of clients, {self.clients}")
        self.table = {key: value for key, value in table.items() if key != "paper"}
        self.table |= {"privacy": privacy, "server": {"rate": "auto"}}
        if table.get("averaging", {}).get("kind") == "tail":
            self.table["averaging"] = {"kind": "tail", "start": "auto"}
        self.module, self.wishes = module, wishes
        self.limit = None if wishes.limit is None else wishes.limit * 1e6 / 8
        first = self._config(self.clients, "auto")
        self.projects = _projects(first)
        self.widest = wishes.features or (first.to_table()["model"]["features"] if self.projects else None)
        self._config(self.clients, "auto", self.widest)  # refuses more features than there are

    def attempts(self) -> Iterator[tuple[str, Callable[[], Candidate]]]:
        """Each candidate, by what it is called where it cannot be made."""
        narrower = [USUAL_FEATURES, *([FEW_FEATURES] if self.limit is None else [])]
        widths = [self.widest, *(width for width in narrower if self.widest and width < self.widest)]
        for width in widths:
            yield "head" if width is None else f"head, {width} features", partial(self._everybody, width)
        if self.limit is not None and self.widest is not None:
            yield "head within the limit, everybody", self._everybody_within
        sampling = accounting.make_sampling("poisson_padded", population=self.clients, cohort=self.cohort)
        if sampling.roster_size < self.clients:  # otherwise padded rosters hold everybody, and nothing is saved
            yield f"head, {self.cohort} of {self.clients}", self._sampled
        yield "network", self._network

    def _config(self, cohort: int, rounds: Any, width: int | None = None) -> Config:
        table = merge(self.table, {"federation": {"clients": self.clients, "cohort": cohort}})
        table["schedule"] = {**table.get("schedule", {}), "rounds": rounds}
        if width is not None:
            table["model"] = {**table.get("model", {}), "features": width}
        return parse(table)

    def _everybody(self, width: int | None) -> Candidate:
        return self._head(self._config(self.clients, "auto", width))

    def _everybody_within(self) -> Candidate:
        assert self.limit is not None
        assert self.widest is not None
        resolved = self._config(self.clients, "auto", self.widest).resolve()
        width, _ = projection_by_rule(
            self.limit, widths_by_rule(self.widest), partial(self._upload, resolved), rounds=_learning(resolved)
        )
        return self._everybody(width)

    def _sampled(self) -> Candidate:
        beside = SAMPLED_ROUNDS - _learning(self._config(self.cohort, SAMPLED_ROUNDS))
        width, rounds = self.widest and min(self.widest, USUAL_FEATURES), SAMPLED_ROUNDS
        if self.limit is not None:
            resolved = self._config(self.cohort, rounds + beside, width).resolve()
            sizes = [_learned(self.module(resolved))] if self.widest is None else widths_by_rule(self.widest)
            found, rounds = projection_by_rule(self.limit, sizes, partial(self._upload, resolved))
            width = width and found
        return self._head(self._config(self.cohort, rounds + beside, width))

    def _upload(self, resolved: Config, width: int, learning: int) -> float:
        """Bytes of vectors that a client sends; no noise changes them, so the settings need not be calibrated anew."""
        rounds = resolved.schedule.last_round - _learning(resolved) + learning
        config = replace(resolved, schedule=replace(resolved.schedule, rounds=rounds))
        if self.widest is not None:
            model = config.model
            narrow = {**model, "features": width} if isinstance(model, dict) else replace(model, features=width)
            config = replace(config, model=narrow)
        shape = model_shape(self.module(config))
        return vectors_up(_with_room(config, shape)[1], shape.size, rounds)

    def _head(self, config: Config) -> Candidate:
        module, resolved = self.module(config), config.resolve()
        if not isinstance(module, LinearHead):
            raise InvalidInput(
                f"the model is a {type(module).__name__}; training.kind = 'full-gradient' needs a lowkey.LinearHead"
            )
        resolved, scheme = _with_room(resolved, model_shape(module))
        assert isinstance(scheme.privacy, ClientMechanism)
        assert isinstance(resolved.server, Plain)
        assert resolved.server.rate != "auto"
        noise = noise_in_a_score(
            scheme.privacy, _learning(resolved), rate=resolved.server.rate * scheme.privacy.clip_norm
        )
        outputs = module.weight.shape[0]
        square = 1 + module.constant**2 if isinstance(module, CentredHead) else 1.0  # of the longest row
        curvature = 0.25 if outputs == 1 else 1 - 1 / outputs
        features = config.to_table()["model"]["features"] if self.projects else None
        harm = curvature * square * noise**2 / 2
        return self._candidate("head", config, resolved, scheme, model_shape(module).size, features, harm)

    def _network(self) -> Candidate:
        everybody = self.clients <= _EVERYBODY_UP_TO
        table = {key: value for key, value in self.table.items() if key in ("name", "task", "seed", "data")}
        promise = {key: value for key, value in self.table["privacy"].items() if key in _PROMISE}
        config = parse(
            table
            | {
                "federation": {
                    "scheme": "fl-cs-dp",
                    "clients": self.clients,
                    "cohort": self.clients if everybody else self.cohort,
                },
                "schedule": {"rounds": 100 if everybody else 200},
                "privacy": {"clip_norm": 1.0} | promise,
            }
        )
        size = self.wishes.parameters
        if size is None:
            known = config.task in TASKS
            size = model_shape(config.find_task().model(config.study)).size if known else PAPER_PARAMETERS
        resolved, shape = config.resolve(), ModelShape((size,))
        assert resolved.privacy is not None
        population = {"clients": self.clients, "cohort": config.federation.cohort}
        made = []
        for ratio in _RATIOS:
            codec = replace(resolved.codec, ratio=ratio)  # type: ignore[type-var]
            privacy = replace(resolved.privacy, bits=None).resolve(**population, ratio=ratio)
            settled, scheme = _with_room(replace(resolved, codec=codec, privacy=privacy), shape)
            made.append(self._candidate("network", replace(config, codec=codec), settled, scheme, size, None, None))
            if made[-1].feasible:
                break
        return made[-1]

    def _candidate(
        self,
        model: str,
        config: Config,
        resolved: Config,
        scheme: Scheme,
        size: int,
        features: int | None,
        harm: float | None,
    ) -> Candidate:
        privacy, rounds = resolved.privacy, resolved.schedule.last_round
        assert config.privacy is not None
        assert privacy is not None
        needs, signal = traffic(scheme, size, rounds), signal_of(scheme, size)
        before = resolved.events_before(reserved=True)
        events = [*before, *planned_events(scheme, rounds + spare_attempts(rounds, privacy.spare_attempts))]
        reasons = [] if signal >= ENOUGH_SIGNAL else [f"signal to noise {signal:.3f}, below {ENOUGH_SIGNAL:g}"]
        if self.limit is not None and needs.vectors_up > self.limit:
            reasons.append(
                f"{human_megabits(needs.vectors_up)} of vectors, above the limit of {self.wishes.limit:g} Mbit"
            )
        return Candidate(
            model=model,
            config=replace(config, privacy=replace(config.privacy, bits=privacy.bits)),
            resolved=resolved,
            size=size,
            numbers=scheme.operator(size, rounds).num_measurements,
            features=features,
            traffic=needs,
            released=accounting.released_epsilon(events, privacy.delta).pld,
            server=accounting.server_view([*before, *events_at_limit(scheme)], privacy.delta),
            harm=harm,
            signal=signal,
            reasons=tuple(reasons),
        )


def _learning(config: Config) -> int:
    assert config.privacy is not None
    return rounds_that_learn(config.schedule.last_round, config.privacy, config.schedule.calibration)


def _learned(module: Any) -> int:
    return sum(model_shape(module).learned)


def _with_room(resolved: Config, shape: ModelShape) -> tuple[Config, Scheme]:
    """The settings and their scheme with as many bits as the members of its rosters need.

    Heads of sampled cohorts begin with 20 bits: 24, the usual where nothing is compressed, is for many members.
    """
    privacy, federation = resolved.privacy, resolved.federation
    assert privacy is not None
    sampled = federation.cohort < federation.clients
    least = min(privacy.bits or 20, 20 if sampled else 28)
    for bits in (bits for bits in _BITS if bits >= least):
        config = replace(resolved, privacy=replace(privacy, bits=bits))
        scheme = config.scheme(shape)
        try:
            for number, part in scheme.phases.items():
                part.wire(shape.size, number)
        except InvalidInput:
            if bits == _BITS[-1]:
                raise
        else:
            return config, scheme
    raise AssertionError("unreachable: the last bits return or raise")
