"""Before the first round: which models can be learned under a promise, at what price, and which of them to run.

Every figure is of a configuration that would run: its rounds, noise and rates are those of :meth:`Config.resolve`, its
bytes those of its scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any, TypeAlias

from lowkey import checks
from lowkey import privacy as accounting
from lowkey.errors import ConfigError, InvalidInput
from lowkey.experiments.config import Config, parse
from lowkey.experiments.feasibility import signal_of
from lowkey.experiments.library import find, presets
from lowkey.experiments.nested import merge, override
from lowkey.federation import (
    CALIBRATION_ROUNDS,
    CENTRING,
    SAMPLED_ROUNDS,
    Scheme,
    Traffic,
    events_at_limit,
    noise_in_a_score,
    planned_events,
    projection_by_rule,
    rounds_that_learn,
    traffic,
    vectors_up,
)
from lowkey.figures import human_epsilon
from lowkey.learning import CentredHead, FullGradient, RiskHead, model_shape
from lowkey.privacy import ENOUGH_SIGNAL, ClientMechanism, spare_attempts
from lowkey.protocols import ModelShape
from lowkey.server import Plain
from lowkey.tasks import TASKS

PAPER_PARAMETERS = 1_663_370
"""The paper's network for images."""
USUAL_FEATURES = 1500
"""What a head is projected to, as in the preset fashion-mnist/private, where no limit asks for less."""
FEW_FEATURES = 400
"""A projection that costs little to send, shown beside."""

_SAMPLED = 100
_EVERYBODY_UP_TO = 500
_NETWORK_ROUNDS = {True: 100, False: 200}  # everybody, sampled
_RATIOS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
_BITS = (16, 20, 24, 28)
_OPEN: dict[str, Any] = {  # of settings that were resolved before
    "noise_multiplier": "auto", "centring_noise": "auto", "max_contributions": "auto", "sampling": None, "rounds": None,
    "roster": None,
}  # fmt: skip
_Shape: TypeAlias = Callable[[Config], ModelShape]


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What is given before a plan; None is left to the settings that it starts from, or to the usual.

    Parameters
    ----------
    clients : int or None
        N.
    examples : int or None
        Examples that a client has, about.
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
    cohort : int or None
        Contributors of a round where clients are sampled.
    limit : float or None
        Megabits of vectors that a client may send in the whole run, on average.
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
    cohort: int | None = None
    limit: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("clients", 3), ("examples", 1), ("features", 1), ("classes", 2), ("parameters", 1)):
            if (value := getattr(self, name)) is not None:
                checks.at_least(f"--{name}", value, least)
        for name in ("epsilon", "limit"):
            if (number := getattr(self, name)) is not None:
                checks.positive(f"--{name}", number)
        if self.cohort is not None:
            checks.at_least("--cohort", self.cohort, 1)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A configuration that could be run, what it promises, what it costs, and whether it is worth running.

    Attributes
    ----------
    model : {"head", "network"}
        A convex head on public features, or a network that learns its own.
    config : Config
        As it would be written, with rules where there are rules.
    resolved : Config
        The same with their numbers.
    size, numbers, features : int, int, int or None
        Numbers in the model, numbers that a client sends in a round, features of the head.
    traffic : Traffic
        Expected bytes of one client in the whole run.
    released, server : float
        ε for people who see released models, spare attempts included, and for the server about a client at its limit.
    harm : float or None
        At most what the noise adds to the loss of the head, in nats; not known for networks.
    signal : float
        Signal to noise of one number in the sum of a round.
    reasons : tuple of str
        Why it is not worth running; nothing where it is.
    """

    model: str
    config: Config
    resolved: Config
    size: int
    numbers: int
    features: int | None
    traffic: Traffic
    released: float
    server: float
    harm: float | None
    signal: float
    reasons: tuple[str, ...]

    @property
    def feasible(self) -> bool:
        return not self.reasons

    @property
    def everybody(self) -> bool:
        return self.config.federation.cohort == self.config.federation.clients

    @property
    def name(self) -> str:
        if self.features is not None:
            return f"head, {self.features} features"
        return f"network, {self.size} parameters, ratio {self.config.codec.ratio:g}"

    def to_json(self) -> dict[str, Any]:
        resolved = self.resolved
        assert resolved.privacy is not None
        return {
            "model": self.model,
            "features": self.features,
            "parameters": self.size,
            "numbers_sent": self.numbers,
            "ratio": resolved.codec.ratio,
            "sampling": resolved.privacy.sampling,
            "cohort": resolved.federation.cohort,
            "rounds": resolved.schedule.last_round,
            "spare_attempts": resolved.privacy.spare_attempts,
            "noise_multiplier": resolved.privacy.noise_multiplier,
            "bits": resolved.privacy.bits,
            **{f"bytes_{name}": round(value) for name, value in asdict(self.traffic).items()},
            "epsilon_released": self.released,
            "epsilon_server": self.server,
            "harm_nats": self.harm,
            "signal_to_noise": self.signal,
            "feasible": self.feasible,
            "reasons": list(self.reasons),
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Candidates side by side, those that cannot be made with the reason, and the one to run, if there is one."""

    candidates: tuple[Candidate, ...]
    refused: tuple[str, ...]

    @property
    def recommended(self) -> Candidate | None:
        """The widest head that is worth running; if it may be, with everybody, so that ε holds for the server, too."""
        heads = [one for one in self.candidates if one.feasible and one.features is not None]
        usual = [one for one in heads if one.features is not None and one.features <= USUAL_FEATURES] or heads
        return max(usual, key=lambda one: (one.everybody, one.features), default=None)

    @property
    def verdict(self) -> list[str]:
        """What to run and why, in sentences."""
        best, lines = self.recommended, []
        clients = self.candidates[0].config.federation.clients
        for network in (one for one in self.candidates if one.model == "network" and not one.feasible):
            can = f"; what can: {best.name}" if best else ""
            lines.append(f"A network of {network.size} parameters cannot work with {clients} clients{can}.")
        if best is None:
            reasons = "; ".join(dict.fromkeys(reason for one in self.candidates for reason in one.reasons))
            return [*lines, f"Nothing here is worth running: {reasons}. Find more clients, or accept a larger ε."]
        whom = "everybody, the server included" if best.everybody else "people who see released models"
        others = "" if best.everybody else f", and {human_epsilon(best.server, 2)} for the server"
        told = f"ε = {human_epsilon(best.released, 2)} holds against {whom}{others}"
        return [*lines, f"Recommended: {best.name}, {_who(best)}, {best.resolved.schedule.last_round} rounds; {told}."]

    def to_json(self) -> dict[str, Any]:
        best = self.recommended
        return {
            "candidates": [one.to_json() for one in self.candidates],
            "recommended": None if best is None else self.candidates.index(best),
            "refused": list(self.refused),
            "verdict": self.verdict,
        }


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
    base, shape = _generic(wishes) if source is None else _of_source(source, changes, wishes)
    maker = _Maker(base, shape, wishes)
    made: list[Candidate] = []
    refused: list[str] = []
    errors: list[InvalidInput] = []
    for label, attempt in maker.attempts():
        try:
            made.append(attempt())
        except InvalidInput as error:
            errors.append(error)
            refused.append(f"{label}: {error}")
    if not made:
        raise errors[0]
    return Plan(candidates=tuple(made), refused=tuple(refused))


def _generic(wishes: Wishes) -> tuple[dict[str, Any], _Shape]:
    """Settings of a head for a task that is not known, and its shape."""
    if missing := [f"--{name}" for name in ("clients", "features", "epsilon") if getattr(wishes, name) is None]:
        raise InvalidInput(
            f"{' and '.join(missing)} missing; give {'it' if len(missing) == 1 else 'them'}, or name a preset or TOML "
            "file with settings of a private head, such as fashion-mnist/private"
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

    def shape(config: Config) -> ModelShape:
        width = config.model["features"]
        return model_shape(RiskHead(width, bias=False) if risk else CentredHead(width, classes))

    return table, shape


def _of_source(source: str, changes: Sequence[str], wishes: Wishes) -> tuple[dict[str, Any], _Shape]:
    """Settings of a preset or file, which must be those of a private head, and the shape of its model."""
    if wishes.classes is not None:
        raise InvalidInput(f"--classes is {wishes.classes}, but {source} has its own task; leave it out")
    table = override(find(source), changes)
    config = parse(table)
    privacy = config.privacy
    if not isinstance(config.training, FullGradient) or privacy is None or privacy.clip != "normalise":
        heads = [name for name in presets() if name.endswith("/private") and presets()[name]["task"] == config.task]
        raise ConfigError(
            f"{source} has no private head: a plan starts from training.kind = 'full-gradient' and privacy.clip = "
            f"'normalise'; {'name ' + ' or '.join(heads) if heads else 'set those'}"
        )
    if wishes.features is not None and not _can_project(config):
        raise InvalidInput(
            f"--features is {wishes.features}, but the task of {source} has no setting model.features; leave it out"
        )
    return {name: value for name, value in table.items() if name != "paper"}, _built


def _built(config: Config) -> ModelShape:
    return model_shape(config.find_task().model(config.study))


def _can_project(config: Config) -> bool:
    model = config.model
    return "features" in ({field.name for field in fields(model)} if is_dataclass(model) else model)


def _who(one: Candidate) -> str:
    federation = one.config.federation
    return "everybody" if one.everybody else f"{federation.cohort} of {federation.clients}"


class _Maker:
    """Makes the candidates of a plan from one table of settings."""

    def __init__(self, table: dict[str, Any], shape: _Shape, wishes: Wishes) -> None:
        given = {
            name: value
            for name in ("epsilon", "delta", "dropouts", "colluders")
            if (value := getattr(wishes, name)) is not None
        }
        privacy = {key: value for key, value in table["privacy"].items() if key not in _OPEN} | given
        federation = table["federation"]
        self.clients = wishes.clients or federation.get("clients")
        if self.clients is None or "epsilon" not in privacy:
            raise InvalidInput("the settings do not say for how many clients or which ε; give --clients and --epsilon")
        checks.at_least("--clients", self.clients, 3)
        self.table = {**table, "privacy": privacy, "server": {"rate": "auto"}}
        if table.get("averaging", {}).get("kind") == "tail":
            self.table["averaging"] = {"kind": "tail", "start": "auto"}
        self.wishes, self.shape, self.bits = wishes, shape, privacy.get("bits")
        self.limit = None if wishes.limit is None else wishes.limit * 1e6 / 8
        asked = wishes.cohort or min(_SAMPLED, self.clients // 2)
        if asked >= self.clients:
            raise InvalidInput(f"--cohort is {asked}; it must be below the number of clients, {self.clients}")
        self.cohort = asked
        first = self._config(self.clients, "auto")
        self.projects = _can_project(first)
        self.widest = wishes.features or (self._setting(first) if self.projects else None)

    def attempts(self) -> Iterator[tuple[str, Callable[[], Candidate]]]:
        """Each candidate by what it is called if it cannot be made."""
        for width in self._widths():
            yield self._label(width, "everybody"), lambda width=width: self._everybody(width)
        if self.limit is not None and self.projects:
            yield "head within the limit, everybody", self._everybody_within
        if self._sampling_saves:
            yield f"head, {self.cohort} of {self.clients}", self._sampled
        yield "network", self._network

    def _label(self, width: int | None, who: str) -> str:
        return f"head, {who}" if width is None else f"head, {width} features, {who}"

    def _widths(self) -> list[int | None]:
        if self.widest is None:
            return [None]
        narrower = (USUAL_FEATURES, FEW_FEATURES) if self.limit is None else (USUAL_FEATURES,)
        return [self.widest, *(width for width in narrower if width < self.widest)]

    @property
    def _sampling_saves(self) -> bool:
        sampling = accounting.make_sampling("poisson_padded", population=self.clients, cohort=self.cohort)
        return sampling.roster_size < self.clients

    def _setting(self, config: Config) -> int:
        model = config.model
        return int(model["features"] if isinstance(model, dict) else model.features)

    def _config(self, cohort: int, rounds: Any, width: int | None = None) -> Config:
        table = merge(self.table, {"federation": {"clients": self.clients, "cohort": cohort}})
        table["schedule"] = {**table.get("schedule", {}), "rounds": rounds}
        if width is not None:
            table["model"] = {**table.get("model", {}), "features": width}
        return parse(table)

    def _everybody(self, width: int | None) -> Candidate:
        return self._candidate("head", self._config(self.clients, "auto", width), 24)

    def _everybody_within(self) -> Candidate:
        assert self.limit is not None
        assert self.widest is not None
        config = self._config(self.clients, "auto")
        resolved = config.resolve()
        learning = self._learning(resolved)
        size, _ = projection_by_rule(self.limit, self.widest, self._upload(resolved, 24), rounds=learning)
        return self._everybody(size)

    def _sampled(self) -> Candidate:
        config = self._config(self.cohort, SAMPLED_ROUNDS)
        beside = SAMPLED_ROUNDS - self._learning(config)
        width = None if self.widest is None else min(self.widest, USUAL_FEATURES)
        rounds = SAMPLED_ROUNDS
        if self.limit is not None:
            upload = self._upload(self._config(self.cohort, SAMPLED_ROUNDS + beside).resolve(), 20)
            if self.widest is not None:
                width, rounds = projection_by_rule(self.limit, self.widest, upload)
            else:
                _, rounds = projection_by_rule(self.limit, 1, upload)
        return self._candidate("head", self._config(self.cohort, rounds + beside, width), 20)

    def _learning(self, config: Config) -> int:
        assert config.privacy is not None
        return rounds_that_learn(config.schedule.last_round, config.privacy, config.schedule.calibration)

    def _upload(self, resolved: Config, bits: int) -> Callable[[int, int], float]:
        """Bytes of vectors of a client, by features and rounds that learn; noise changes none of them."""
        beside = resolved.schedule.last_round - self._learning(resolved)
        first, calibration = self._with_bits(resolved, bits), resolved.schedule.calibration

        def upload(width: int, learning: int) -> float:
            shape, rounds = self._shape(resolved, width), learning + beside
            scheme = first.for_model(shape, rounds=rounds, calibration=calibration)
            return vectors_up(scheme, shape.size, rounds)

        return upload

    def _shape(self, config: Config, width: int | None = None) -> ModelShape:
        if self.projects and width is not None:
            model = config.model
            made = {**model, "features": width} if isinstance(model, dict) else replace(model, features=width)
            config = replace(config, model=made)
        return self.shape(config)

    def _with_bits(self, resolved: Config, usual: int) -> Scheme:
        """The scheme with the fewest bits from the usual on that leave room for its members."""
        raise NotImplementedError
