"""The client: train, compress, protect. Runs wherever the data is; the same code simulated and deployed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from lowkey.errors import InvalidInput
from lowkey.federation.records import ClientState, Reply, Request
from lowkey.federation.schemes import Scheme
from lowkey.privacy import ClientLevelPrivacy, Measurement, Noised, Open
from lowkey.protocols import Operator, Trainer
from lowkey.rng import BitSource, OSSecrets, Secrets, generator
from lowkey.timing import StageClock
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class Client:
    """What a client is made of: the agreed scheme, its way to learn, its secrets."""

    scheme: Scheme
    trainer: Trainer
    secrets: Secrets = field(default_factory=OSSecrets)
    clock: StageClock = field(default_factory=StageClock)

    def handle(self, state: ClientState, request: Request) -> tuple[ClientState, Reply]:
        """Answer one request.

        Guarantees
        ----------
        In a private scheme a reply is a clipped vector plus a fresh share of noise, of the same length and weight for
        every member. A client that cannot contribute (no data, a diverging update) sends noise on zeros: staying away
        would tell something about its data. Any other exception is a defect and is raised. A state that has answered
        a round refuses to answer it again.
        """
        if request.round <= state.last_round:
            raise InvalidInput(f"round {request.round} was answered already; a second answer would spend privacy again")
        operator = self.scheme.codec.operator(self.trainer.num_coordinates, request.round)
        source = self.secrets.source("noise", request.round, state.client)
        protected, weight = self._contribution(state, request, operator, source)
        reply = Reply(round=request.round, vector=_weighted(protected.value, weight), weight=weight)
        return replace(state, last_round=request.round), reply

    def _contribution(
        self, state: ClientState, request: Request, operator: Operator, source: BitSource
    ) -> tuple[Noised | Open, float]:
        scheme, clock = self.scheme, self.clock
        privacy, shares = scheme.privacy, request.shares
        if isinstance(privacy, ClientLevelPrivacy) and request.weights is None:
            with clock.stage("protect"):
                return privacy.noise_only(operator.num_measurements, shares=shares, source=source), 1.0
        if request.weights is None:
            raise InvalidInput("the request has no model, and the scheme has no noise-only members")
        try:
            with clock.stage("train"):
                rng = generator(scheme.seed, "local training", request.round, state.client)
                local = self.trainer.train(request.weights, state.client, rng)
            with clock.stage("compress"):
                measurement = Measurement(operator.forward(local.update))
            with clock.stage("protect"):
                protected = privacy.protect(measurement, shares=shares, source=source)
        except InvalidInput:
            if not isinstance(privacy, ClientLevelPrivacy):
                raise
            return privacy.noise_only(operator.num_measurements, shares=shares, source=source), 1.0
        return protected, float(local.num_examples) if scheme.weight_by_examples else 1.0


def _weighted(vector: FloatArray, weight: float) -> FloatArray:
    return vector if weight == 1.0 else vector * np.float32(weight)
