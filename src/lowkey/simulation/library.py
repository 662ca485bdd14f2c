"""The library's front door: your model, your clients' data, one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lowkey.errors import InvalidInput
from lowkey.federation import Federation, RoundRecord, Schedule, Scheme, StoppedBy, initial_state
from lowkey.learning import (
    CLASSIFICATION,
    ClientDatasets,
    Examples,
    LocalSGD,
    Objective,
    TorchEvaluator,
    TorchTrainer,
    layer_sizes,
    load_vector,
    model_vector,
)
from lowkey.privacy import Epsilon
from lowkey.protocols import Evaluator, Observer
from lowkey.rng import OSSecrets, Secrets
from lowkey.simulation.keys import SimulatedKeys
from lowkey.simulation.runtime import open_runtime
from lowkey.timing import StageClock
from lowkey.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """Result of :func:`simulate`."""

    weights: FloatArray = field(repr=False)
    records: tuple[RoundRecord, ...] = field(repr=False)
    stopped: StoppedBy

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One table per round, as in metrics.jsonl."""
        return [record.to_json() for record in self.records]

    @property
    def accuracy(self) -> float:
        """Accuracy after the last round."""
        return self.records[-1].scores["accuracy"]

    @property
    def epsilon(self) -> Epsilon | None:
        """What was spent; None where no finite ε is true."""
        return self.records[-1].epsilon


def simulate(
    *,
    scheme: Scheme,
    model: Any,
    clients: ClientDatasets,
    test: Examples,
    rounds: int,
    sgd: LocalSGD | None = None,
    objective: Objective | None = None,
    evaluate: Evaluator | None = None,
    target_epsilon: float | None = None,
    workers: int | Literal["auto"] = "auto",
    device: str = "cpu",
    observers: Sequence[Observer] = (),
    secrets: Secrets | None = None,
) -> Simulation:
    """Train ``model`` over ``clients`` by a scheme; on return the model holds the learned weights.

    Parameters
    ----------
    scheme : from :func:`lowkey.make_scheme`.
    model : any ``torch.nn.Module``; its trainable float32 parameters are learned.
    clients : one dataset per client: pairs (inputs, targets) or map-style datasets; may be made on access.
    test : held-out data, in the same form.
    rounds : how many rounds to play.
    sgd : local steps, batch size and rate.
    objective : loss, metrics and choice of examples; by default cross-entropy and accuracy, of all examples.
    evaluate : your own evaluation, instead of the objective's on ``test``.
    target_epsilon : stop before a round that would pass it.
    workers : processes ("auto": one per core; 0: none).
    device : such as "cpu" or "cuda".
    observers : called with the record of every round.
    secrets : for tests only, see :class:`lowkey.rng.ReplaySecrets`.
    """
    if scheme.privacy.sampling.population != len(clients):
        raise InvalidInput(
            f"the scheme was made for {scheme.privacy.sampling.population} clients, but there are {len(clients)} "
            "datasets; pass num_clients=len(clients) to make_scheme"
        )
    scheme = scheme.for_layers(layer_sizes(model))
    objective = objective or CLASSIFICATION
    clock, secrets = StageClock(), secrets or OSSecrets()
    trainer = TorchTrainer(model, clients, sgd or LocalSGD(), objective=objective, device=device)
    records: list[RoundRecord] = []
    keys = SimulatedKeys(len(clients), secrets)
    with open_runtime(
        scheme=scheme, trainer=trainer, secrets=secrets, clock=clock, workers=workers, device=device, keys=keys
    ) as ask:
        federation = Federation(
            scheme=scheme,
            ask=ask,
            evaluate=evaluate or TorchEvaluator(model, test, objective=objective, device=device),
            secrets=secrets,
            clock=clock,
            directory=keys.directory,
        )
        state, stopped = federation.run(
            initial_state(scheme, model_vector(model)),
            Schedule(rounds=rounds, target_epsilon=target_epsilon),
            observers=[records.append, *observers],
        )
    load_vector(model, state.weights)
    return Simulation(weights=state.weights, records=tuple(records), stopped=stopped)
