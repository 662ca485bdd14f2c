"""Typed configuration of a run: TOML in, checked, frozen, TOML out."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lowkey import privacy as accounting
from lowkey.errors import ConfigError
from lowkey.federation import SCHEMES
from lowkey.privacy import Sampling, SamplingMode, make_sampling

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Ratio = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
AtLeastOne = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A table of the configuration: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HospitalConfig(Section):
    """What is learned from hospital admissions, and which hospitals take part."""

    features: tuple[str, ...] | None = Field(
        default=None, description="what to learn from; unset: the source's default"
    )
    min_count: AtLeastOne = Field(default=100, description="training rows that a category or code needs")
    min_deaths: Annotated[int, Field(ge=0)] = Field(default=1, description="in the training rows of every hospital")
    min_admissions: AtLeastOne = Field(default=10, description="below which a real hospital is left out")
    test_share: Annotated[float, Field(gt=0, lt=1)] = Field(default=0.2, description="share of patients held out")
    pooled: bool = Field(default=False, description="one client holds all data: the ceiling without a federation")
    scale: Positive = Field(default=1.0, description="of synthetic hospitals: share of the paper's admissions")
    any_version: bool = Field(default=False, description="accept a file that is not the reference file")


class DataConfig(Section):
    """Which data, and how it is divided among clients."""

    name: Literal["fashion-mnist", "diabetes130", "sih-sus", "synthetic-hospitals", "app"] = Field(
        default="fashion-mnist", description='"app": model and data are brought by an app of your own (Flower)'
    )
    source: str = Field(
        default="auto", description='"auto", a file or a directory; of images also "bundled" and "download"'
    )
    clients: AtLeastOne = Field(default=6000, description="number of clients, N")
    partition: Literal["iid", "dirichlet", "natural"] = Field(
        default="iid",
        description='"iid": at random, as virtual hospitals are; "dirichlet": images, skewed; "natural": by hospital',
    )
    alpha: Positive = Field(default=0.5, description='concentration of the "dirichlet" partition; small means skewed')
    hospital: HospitalConfig | None = Field(default=None, description="of hospital data; unset: all defaults")

    @property
    def of_hospitals(self) -> bool:
        """Whether the task is in-hospital mortality."""
        return self.name in ("diabetes130", "sih-sus", "synthetic-hospitals")


class ModelConfig(Section):
    """Which network; the defaults are the paper's, 1,663,370 parameters for images and 1,496,601 for 7,280 features."""

    name: Literal["fashion-cnn", "mortality-mlp"] = "fashion-cnn"
    filters: tuple[AtLeastOne, AtLeastOne] = Field(default=(32, 64), description="of fashion-cnn")
    hidden: AtLeastOne | None = Field(
        default=None, description="units of a hidden layer; unset: 512 of fashion-cnn, 200 of mortality-mlp"
    )

    @property
    def width(self) -> int:
        """Units of a hidden layer."""
        return self.hidden or (200 if self.name == "mortality-mlp" else 512)


class TrainingConfig(Section):
    """What a client does in a round."""

    local_steps: AtLeastOne = Field(default=5, description="SGD steps, T_gd")
    batch_size: AtLeastOne = 10
    learning_rate: Positive = Field(default=0.215, description="local rate, η")
    batches: Literal["epochs", "independent"] = Field(
        default="epochs", description='"epochs" in random order, or "independent" batches drawn with replacement'
    )


class FederationConfig(Section):
    """Who learns together, how, and for how long."""

    scheme: str = Field(description="one of the eight schemes, such as fl-cs-dp")
    rounds: AtLeastOne | Literal["auto"] = Field(
        default=200, description='T_cl; "auto": as many as privacy.target_epsilon allows'
    )
    cohort: AtLeastOne = Field(default=100, description="expected contributors to a round, |K|")
    attempts: AtLeastOne = Field(default=3, description="how often a round with too few survivors is tried")
    min_clients: AtLeastOne = Field(
        default=1, description="least number of answers that make a round; private schemes: see privacy.dropouts"
    )


class CodecConfig(Section):
    """How updates are compressed."""

    ratio: Ratio = Field(default=1.0, description="measurements over parameters, r")
    chunks: AtLeastOne = Field(default=200, description="P of fl-cs")
    signs: bool | None = Field(
        default=None, description="of fl-cs: public random signs before the DCT; unset: only with 16 bits"
    )


class DecoderConfig(Section):
    """How fl-cs recovers updates; docs/decoding.md tells what to choose."""

    kind: Literal["layered", "lasso", "adjoint"] | None = Field(
        default=None, description="unset: layered for fl-cs, adjoint for the others"
    )
    lambda_rule: Literal["relative-to-rms", "relative-to-max", "relative-to-noise", "fixed"] = "relative-to-rms"
    lambda_factor: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=1.0, description="multiplies what the rule is relative to; λ itself for the rule fixed"
    )
    solver: Literal["active-set", "admm", "owlqn"] = Field(default="active-set", description="of the LASSO")
    tolerance: Positive = Field(default=1e-3, description="relative duality gap at which the solver stops")
    max_iterations: AtLeastOne = 1000


class ServerConfig(Section):
    """Server rate and momentum; unset means 0.35 and 0.9 for fl-cs, 1 and 0 for the others."""

    rate: Positive | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None


class PrivacyConfig(Section):
    """The guarantee. Changing anything here changes what is promised to clients."""

    clip_norm: Positive = Field(description="S, largest norm of one client's compressed update")
    clip: Literal["fixed", "adaptive"] = Field(
        default="fixed", description="adaptive: clip_norm is a first guess and follows the median norm, privately"
    )
    noise_multiplier: Positive | Literal["auto"] = Field(
        default="auto", description='z, noise of the sum relative to S; "auto" calibrates it to target_epsilon'
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    sampling: SamplingMode | None = Field(
        default=None, description="unset: all when the cohort is everyone, else poisson_padded"
    )
    roster: AtLeastOne | None = Field(
        default=None, description="of secret_poisson: expected clients that flip a secret coin; unset: everyone"
    )
    dropouts: Share = Field(default=0.1, description="share of a roster that may drop out of a round")
    colluders: Share = Field(default=0.1, description="share of a roster that may pool what they know")
    bits: Literal[16, 20, 24] | None = Field(
        default=None, description="of each number on the wire; unset: 20, or 24 when nothing is compressed"
    )
    secagg: Literal["plain", "masked"] = Field(
        default="plain", description="masked: whole secure aggregation; plain: same integers added openly (simulation)"
    )
    max_contributions: AtLeastOne | Literal["auto"] | None = Field(
        default="auto",
        description='rounds in which one client\'s data is used; "auto": what 99.9 % of clients stay below; unset: all',
    )
    target_epsilon: Positive | None = Field(default=None, description="stop before a round that would pass it")
    ledger: str | None = Field(
        default=None, description="file shared by all runs on the same clients; unset: one of the run's own"
    )


class EvaluationConfig(Section):
    """When the model is tested."""

    every: AtLeastOne = Field(default=1, description="rounds between evaluations")


class RuntimeConfig(Section):
    """Speed and safety of the simulation; changes no result beyond rounding."""

    workers: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        default="auto", description='processes; 0 runs clients in the main process, "auto" takes one per core'
    )
    device: str = Field(default="cpu", description='"cpu", "cuda", ...')
    checkpoint_every: AtLeastOne = Field(default=1, description="rounds between checkpoints")


class DeploymentConfig(Section):
    """How long a deployed run waits for its clients; a client that is later has dropped out."""

    agree_seconds: Positive = Field(default=120.0, description="for each step that exchanges keys and shares")
    train_seconds: Positive = Field(default=900.0, description="for the step that trains")
    gather_seconds: Positive = Field(default=120.0, description="before an attempt, until enough clients are online")


class PaperConfig(Section):
    """Published values of the same setting, for comparison."""

    accuracy: float | None = None
    balanced_accuracy: float | None = None
    auroc: float | None = None
    round: int
    epsilon: float | None = None
    data: str | None = Field(default=None, description="what the values were measured on, where it is other data")


class Config(Section):
    """Everything that defines a run."""

    name: str = "custom"
    seed: Annotated[int, Field(ge=0)] = 0
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    federation: FederationConfig
    codec: CodecConfig = CodecConfig()
    decoder: DecoderConfig = DecoderConfig()
    server: ServerConfig = ServerConfig()
    privacy: PrivacyConfig | None = None
    evaluation: EvaluationConfig = EvaluationConfig()
    runtime: RuntimeConfig = RuntimeConfig()
    deployment: DeploymentConfig = DeploymentConfig()
    paper: PaperConfig | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        scheme = self.federation.scheme
        if scheme not in SCHEMES:
            raise ValueError(f"federation.scheme is {scheme!r}; it must be one of {', '.join(SCHEMES)}")
        self._require_task()
        private = scheme.endswith("-dp")
        if private and self.privacy is None:
            raise ValueError(f"{scheme} needs a [privacy] table with at least clip_norm")
        if private and self.federation.min_clients != 1:
            raise ValueError(f"federation.min_clients is for schemes without privacy; of {scheme} set privacy.dropouts")
        if not private and self.privacy is not None:
            raise ValueError(f"{scheme} gives no privacy; remove the [privacy] table or use {scheme}-dp")
        if self.federation.cohort > self.data.clients:
            raise ValueError(f"federation.cohort is {self.federation.cohort}, above data.clients = {self.data.clients}")
        target = self.privacy.target_epsilon if self.privacy else None
        if target is None and self.federation.rounds == "auto":
            raise ValueError('federation.rounds is "auto", which needs privacy.target_epsilon')
        if self.privacy is not None and self.privacy.noise_multiplier == "auto":
            if target is None:
                raise ValueError('privacy.noise_multiplier is "auto", which needs privacy.target_epsilon')
            if self.federation.rounds == "auto":
                raise ValueError("federation.rounds and privacy.noise_multiplier cannot both be 'auto'; set one")
        return self

    def _require_task(self) -> None:
        """Data, division and model that belong together."""
        data, model = self.data, self.model.name
        if data.name == "app":
            return
        if data.of_hospitals != (model == "mortality-mlp"):
            fitting = "mortality-mlp" if data.of_hospitals else "fashion-cnn"
            raise ValueError(f"model.name is {model!r}, which cannot learn from {data.name}; set it to {fitting!r}")
        if data.partition == ("dirichlet" if data.of_hospitals else "natural"):
            others = "iid or natural" if data.of_hospitals else "iid or dirichlet"
            raise ValueError(f"data.partition is {data.partition!r}; of {data.name} it must be {others}")
        if data.hospital is not None and not data.of_hospitals:
            raise ValueError(f"[data.hospital] is for hospital data; remove it, since data.name is {data.name!r}")

    def resolve(self) -> Config:
        """Replace every "auto" of the guarantee by its number: noise or rounds for the target, limit for the rounds."""
        if self.privacy is None or self._is_resolved(self.privacy):
            return self
        privacy, sampling = self.privacy, self.sampling()
        target, delta, rounds = privacy.target_epsilon, privacy.delta, self.federation.rounds
        noise = privacy.noise_multiplier
        if noise == "auto":
            noise = accounting.calibrate_noise(
                sampling, target_epsilon=float(target or 0), delta=delta, rounds=int(rounds)
            )
        elif target is not None:
            event = sampling.event(noise)
            if accounting.claimed_epsilon([event], delta) > target:
                raise ConfigError(
                    f"not one round fits into privacy.target_epsilon = {target}; raise it, or the noise "
                    '(privacy.noise_multiplier = "auto" finds it)'
                )
            if rounds == "auto":
                rounds = accounting.affordable_rounds(event, target_epsilon=target, delta=delta)
        limit = privacy.max_contributions
        if limit == "auto":
            limit = max(1, accounting.likely_participations(int(rounds), sampling.probability))
            if sampling.probability == 1:  # everybody is asked in every round, and attempts that fail count as well
                limit += max(3, limit // 10)
        changed = {"noise_multiplier": noise, "sampling": sampling.mode, "max_contributions": limit}
        return self.model_copy(
            update={
                "privacy": privacy.model_copy(update=changed),
                "federation": self.federation.model_copy(update={"rounds": rounds}),
            }
        )

    def _is_resolved(self, privacy: PrivacyConfig) -> bool:
        """Nodes read resolved settings with every message: then nothing need be computed, or imported for it."""
        settled = (privacy.noise_multiplier, privacy.max_contributions, self.federation.rounds)
        return privacy.sampling is not None and "auto" not in settled

    def sampling(self) -> Sampling:
        """How the clients of a private run are drawn."""
        mode, roster = (self.privacy.sampling, self.privacy.roster) if self.privacy else ("fixed", None)
        return make_sampling(mode, population=self.data.clients, cohort=self.federation.cohort, roster=roster)

    def to_toml(self) -> str:
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


def parse(table: Mapping[str, Any]) -> Config:
    """Check a nested table; errors name the dotted key and, for unknown ones, the nearest valid key."""
    try:
        return Config.model_validate(table)
    except ValidationError as error:
        raise ConfigError("; ".join(_explain(detail) for detail in error.errors())) from None


def valid_keys(model: type[BaseModel] = Config, prefix: str = "") -> list[str]:
    """All dotted keys that a configuration may have."""
    keys = []
    for name, spec in model.model_fields.items():
        options = [spec.annotation, *getattr(spec.annotation, "__args__", ())]
        section = next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)
        keys += valid_keys(section, f"{prefix}{name}.") if section else [f"{prefix}{name}"]
    return keys


def _explain(detail: Mapping[str, Any]) -> str:
    path = ".".join(str(part) for part in detail["loc"] if part not in ("constrained-int", "literal['auto']"))
    if detail["type"] == "extra_forbidden":
        near = difflib.get_close_matches(path, valid_keys(), n=1, cutoff=0.0)
        return f"unknown key {path}; did you mean {near[0]}?"
    if detail["type"] == "missing":
        return f"{path} is missing"
    message = str(detail["msg"]).removeprefix("Value error, ")
    value = detail["input"]
    shown = "" if isinstance(value, (dict, BaseModel)) else f" (it is {_show(value)})"
    return f"{path}: {message}{shown}" if path else message


def _show(value: object) -> str:
    return "infinite" if isinstance(value, float) and math.isinf(value) else repr(value)
