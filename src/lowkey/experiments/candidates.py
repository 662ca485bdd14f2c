"""What a plan found: configurations that could be run, what each promises and costs, and which to run, in words."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import tomli_w

from lowkey.experiments.asking import Askable
from lowkey.experiments.config import Config
from lowkey.federation import Traffic
from lowkey.figures import human_epsilon
from lowkey.privacy import ENOUGH_SIGNAL, LITTLE_SIGNAL

USUAL_FEATURES = 1500
"""What a head is projected to, as in the preset fashion-mnist/private, where no limit asks for less."""


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
        Numbers in the model, numbers that a client sends in a round, features that a head is projected to.
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
    def who(self) -> str:
        federation = self.config.federation
        return "everybody" if self.everybody else f"{federation.cohort} of {federation.clients}"

    @property
    def name(self) -> str:
        if self.model == "head":
            return f"head, {self.numbers} numbers" if self.features is None else f"head, {self.features} features"
        return f"network, {self.size} parameters, ratio {self.config.codec.ratio:g}"

    def to_toml(self) -> str:
        """Settings that 'lowkey run' takes; the run is called as their file is."""
        return tomli_w.dumps({key: value for key, value in self.config.to_table().items() if key != "name"})

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
    """Candidates side by side, those that cannot be made with the reason, and the one to run, if there is one.

    ``examples`` is about how many a client has, where that was said; ``askable`` is what clients can be asked besides.
    """

    candidates: tuple[Candidate, ...]
    refused: tuple[str, ...]
    examples: int | None = None
    askable: Askable

    @property
    def recommended(self) -> Candidate | None:
        """The widest head worth running, up to 1500 features; first with everybody, for a small ε of the server."""
        heads = [one for one in self.candidates if one.feasible and one.model == "head"]
        usual = [one for one in heads if (one.features or 0) <= USUAL_FEATURES] or heads
        return max(usual, key=lambda one: (one.everybody, one.numbers), default=None)

    @property
    def verdict(self) -> list[str]:
        """What to run, what not, and why, in sentences."""
        best, lines = self.recommended, []
        clients = self.candidates[0].config.federation.clients
        for network in (one for one in self.candidates if one.model == "network" and not one.feasible):
            fault = (
                "does not keep to the limit"
                if network.signal >= ENOUGH_SIGNAL
                else f"cannot be learned by {clients} clients under this promise"
            )
            lines.append(
                f"A network of {network.size} parameters {fault}: {'; '.join(network.reasons)}, even at ratio "
                f"{network.config.codec.ratio:g}." + (f" What can be run: {best.name}." if best else "")
            )
        if any(one.signal < ENOUGH_SIGNAL for one in self.candidates):
            lines.append(f"Below {ENOUGH_SIGNAL:g}, {LITTLE_SIGNAL}.")
        return [*lines, self._advice if best is None else _praise(best)]

    @property
    def _advice(self) -> str:
        """What would help where nothing is worth running."""
        best = max((one for one in self.candidates if one.model == "head"), key=lambda one: one.signal)
        if best.signal >= ENOUGH_SIGNAL:
            return "Nothing here keeps to the limit: raise it, or the number of clients."
        clients = best.config.federation.clients
        enough = math.ceil(clients * ENOUGH_SIGNAL / best.signal)
        advice = f"Nothing here is worth running: {best.name}, would need about {enough} clients, or a larger ε."
        if self.examples is not None and clients * self.examples >= enough:
            advice += (
                f" There are {clients * self.examples} examples: where each of them must be hidden, and not a client "
                "as a whole, privacy.unit = 'person' makes them count."
            )
        return advice

    def to_json(self) -> dict[str, Any]:
        best = self.recommended
        return {
            "candidates": [one.to_json() for one in self.candidates],
            "recommended": None if best is None else self.candidates.index(best),
            "refused": list(self.refused),
            "examples": self.examples,
            "verdict": self.verdict,
            "questions": {**self.askable.to_json(), "verdict": self.askable.sentences},
        }


def _praise(best: Candidate) -> str:
    spent, server, traffic = human_epsilon(best.released, 2), human_epsilon(best.server, 2), best.traffic
    whom = (
        "everybody, the server included" if best.everybody else f"people who see released models, {server} the server"
    )
    line = (
        f"Recommended: {best.name}, {best.who}, {best.resolved.schedule.last_round} rounds; ε = {spent} against {whom}."
    )
    if traffic.protocol_up > traffic.vectors_up:
        line += (
            " Most of its upload is the protocol's, shares for many neighbours: sampled cohorts, fewer tolerated "
            "dropouts and colluders, or privacy.graph = 'auto' (--graph auto) need fewer."
        )
    return line
