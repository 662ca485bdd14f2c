"""Simulation with your own model and your clients' data, in one call."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Literal

from lowkey.errors import InvalidInput
from lowkey.federation import (
    Federation,
    RoundRecord,
    Schedule,
    Scheme,
    StoppedBy,
    initial_state,
    no_evaluation,
    released_model,
)
from lowkey.learning import (
    ClientDatasets,
    Examples,
    FullGradient,
    LocalSGD,
    Objective,
    TorchEvaluator,
    load_vector,
    make_trainer,
    model_shape,
    model_vector,
    usual_objective,
    usual_training,
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
        """The ε that was spent; None where no finite ε is true."""
        return self.records[-1].epsilon


def simulate(
    *,
    scheme: Scheme,
    model: Any,
    clients: ClientDatasets,
    test: Examples | None = None,
    rounds: int,
    calibration: int = 0,
    training: LocalSGD | FullGradient | None = None,
    objective: Objective | None = None,
    evaluate: Evaluator | None = None,
    workers: int | Literal["auto"] = "auto",
    device: str = "cpu",
    observers: Sequence[Observer] = (),
    secrets: Secrets | None = None,
) -> Simulation:
    """Train ``model`` on the data of ``clients`` with a scheme; on return the model holds the learned weights.

    Parameters
    ----------
    scheme : Scheme
        From :func:`lowkey.scheme`. Where its privacy has a target ε, the run stops before a round that would exceed it.
    model : torch.nn.Module
        Its trainable float32 parameters are learned. Layers that keep running statistics are refused. Many small
        clients are quickest with a :class:`lowkey.LinearHead`.
    clients : sequence of datasets
        One for each client: pairs (inputs, targets) or map-style datasets; they may be made on access. A third part may
        say which person each row is about.
    test : dataset or None
        Held-out data, in the same form. With None the model is evaluated by ``evaluate``, or not at all.
    rounds : int
        How many rounds to run.
    calibration : int
        How many of them, the last ones, fit slope and intercept of a :class:`lowkey.RiskHead`.
    training : LocalSGD or FullGradient
        What a client does in a round: local steps and their rate. By default SGD, and full gradients for a head.
    objective : Objective
        Loss, metrics and choice of examples; by default cross-entropy and accuracy on all examples (for a head with one
        output, its logistic loss).
    evaluate : function
        Your own evaluation of a model vector, instead of the objective's on ``test``.
    workers : int or "auto"
        Number of worker processes; "auto" takes one for each core, 0 trains in this process.
    device : str
        Where to train, such as "cpu" or "cuda".
    observers : sequence of Observer
        Called with the metrics of every round.
    secrets : Secrets
        For tests only, see :class:`lowkey.rng.ReplaySecrets`.

    Raises
    ------
    CannotContribute
        When half of a cohort has nothing to send, because of empty data or updates that diverge.
    """
    if not isinstance(clients, Sized):
        raise InvalidInput(f"clients is a {type(clients).__name__}, which has no length; pass a list of datasets")
    if scheme.privacy.sampling.population != len(clients):
        raise InvalidInput(
            f"the scheme was made for {scheme.privacy.sampling.population} clients, but there are {len(clients)} "
            "datasets; pass clients=len(clients) to lowkey.scheme"
        )
    scheme = scheme.for_model(model_shape(model), rounds=rounds, calibration=calibration)
    objective, schedule = objective or usual_objective(model), Schedule(rounds=rounds, calibration=calibration)
    if evaluate is None:
        evaluate = no_evaluation if test is None else TorchEvaluator(model, test, objective=objective, device=device)
    clock, secrets = StageClock(), secrets or OSSecrets()
    settings = getattr(scheme.privacy, "settings", None)
    trainer = make_trainer(
        model,
        clients,
        training or usual_training(model),
        objective=objective,
        device=device,
        persons_by=settings.persons_by if settings else None,
    )
    records: list[RoundRecord] = []
    keys = SimulatedKeys(len(clients), secrets)
    with open_runtime(
        scheme=scheme, trainer=trainer, secrets=secrets, clock=clock, workers=workers, device=device, keys=keys
    ) as ask:
        federation = Federation(
            scheme=scheme,
            ask=ask,
            evaluate=evaluate,
            secrets=secrets,
            clock=clock,
            verify_keys=keys.verify_keys,
            take_figures=ask.take_figures,
        )
        state, stopped = federation.run(
            initial_state(scheme, model_vector(model)),
            schedule,
            save=lambda _state, record: records.append(record),
            observers=observers,
        )
    weights = released_model(scheme, state)
    load_vector(model, weights)
    return Simulation(weights=weights, records=tuple(records), stopped=stopped)
