"""Persons at hospitals through whole runs: the same bits masked or plain, in one process or several, and the audit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lowkey
from lowkey.errors import InvalidInput
from lowkey.federation import Client, Federation, Schedule, Scheme, initial_state
from lowkey.learning import FullGradient, HeadTrainer, LinearHead, Objective, logistic_loss, model_vector
from lowkey.privacy import Ledger, claimed_epsilon
from lowkey.protocols import LocalUpdate
from lowkey.rng import ReplaySecrets
from lowkey.simulation import InProcess, SimulatedKeys, WorkerPool, run_audit
from lowkey.simulation.canaries import CanaryRounds, Defect
from lowkey.timing import StageClock

HOSPITALS, FEATURES, PERSONS = 5, 8, 300
PRIVACY = lowkey.ClientPrivacy(unit="person", persons=PERSONS, clip_norm=0.5, epsilon=8.0, rounds=3, delta=1e-5)
QUIET = lowkey.ClientPrivacy(
    unit="person", persons=400, clip_norm=0.47, noise_multiplier=0.4, bits=28, max_contributions="unlimited"
)
SECRETS = ReplaySecrets(31)


def hospitals(*, ids: bool = True) -> list[Any]:
    """Sixty rows of twenty patients at each, whose outcome the first feature tells."""
    rng, made = np.random.default_rng(0), []
    for _ in range(HOSPITALS):
        inputs = rng.standard_normal((60, FEATURES)).astype(np.float32) / 3
        died = (inputs[:, 0] + 0.1 * rng.standard_normal(60) > 0.3).astype(np.float32)
        made.append((inputs, died, rng.integers(20, size=60)) if ids else (inputs, died))
    return made


def scheme(**changes: Any) -> Scheme:
    return lowkey.scheme("fl-std-dp", clients=HOSPITALS, cohort=HOSPITALS, privacy=replace(PRIVACY, **changes))


def trained(scheme: Scheme, *, workers: int = 0, ledger: Ledger | None = None, data: Any = None) -> Any:
    head, objective = LinearHead(FEATURES, 1), Objective(loss=logistic_loss)
    trainer = HeadTrainer(head, data or hospitals(), FullGradient(), objective=objective)
    clock, keys = StageClock(), SimulatedKeys(HOSPITALS, SECRETS)

    def run(ask: Any) -> Any:
        federation = Federation(
            scheme=scheme, ask=ask, secrets=SECRETS, clock=clock, verify_keys=keys.verify_keys,
            ledger=ledger or Ledger(None, run="r"),
        )  # fmt: skip
        return federation.run(initial_state(scheme, model_vector(head)), Schedule(rounds=3))[0].weights

    if workers == 0:
        return run(InProcess(Client(scheme=scheme, trainer=trainer, secrets=SECRETS, keys=keys, clock=clock)))
    with WorkerPool(scheme=scheme, trainer=trainer, secrets=SECRETS, workers=workers, clock=clock, keys=keys) as pool:
        return run(pool)


def test_masked_plain_and_worker_processes_give_the_same_bits() -> None:
    plain = trained(scheme())
    assert np.any(plain != 0)
    np.testing.assert_array_equal(trained(scheme(aggregation="masked")), plain)
    np.testing.assert_array_equal(trained(scheme(), workers=2), plain)
    np.testing.assert_array_equal(trained(scheme(aggregation="masked"), workers=2), plain)


def test_updates_are_compressed_before_they_are_bounded() -> None:
    codec = lowkey.ChunkedDCT(ratio=0.5, chunks=2)
    made = lowkey.scheme("fl-cs-dp", clients=HOSPITALS, cohort=HOSPITALS, codec=codec, privacy=PRIVACY)
    assert made.wire(FEATURES + 1).length < FEATURES + 1
    assert np.any(trained(made) != 0)


def test_the_ledger_speaks_of_persons_and_adds_up_to_the_target() -> None:
    ledger = Ledger(None, run="r")
    trained(scheme(), ledger=ledger)
    (kind,) = {replace(event, count=1) for event in ledger.events}
    assert (kind.unit, kind.mode, kind.honest) == ("person", "all", 3)
    assert sum(event.count for event in ledger.events) == 3
    assert 6.0 < claimed_epsilon(ledger.events, 1e-5) <= 8.0  # one spare attempt was not needed


def test_the_whole_library_call() -> None:
    """With little noise the sign of the telling feature is learned; without ids a row must be called what it is."""
    quiet = replace(PRIVACY, epsilon=None, noise_multiplier=0.5, clip_norm=2.0)

    def simulated(data: Any, **changes: Any) -> Any:
        made = lowkey.scheme(
            "fl-std-dp",
            clients=HOSPITALS,
            cohort=HOSPITALS,
            privacy=replace(quiet, **changes),
            server=lowkey.Plain(rate=9),
        )
        return lowkey.simulate(scheme=made, model=LinearHead(FEATURES, 1), clients=data, rounds=3, workers=0)

    assert np.argmax(np.abs(simulated(hospitals()).weights[:FEATURES])) == 0
    assert np.argmax(np.abs(simulated(hospitals(ids=False), row="admission").weights[:FEATURES])) == 0
    with pytest.raises(lowkey.errors.ClientFailed, match="which rows are about one person"):
        simulated(hospitals(ids=False))
    with pytest.raises(InvalidInput, match=r"training\.steps is 2"):
        lowkey.simulate(
            scheme=scheme(),
            model=LinearHead(FEATURES, 1),
            clients=hospitals(),
            rounds=3,
            training=FullGradient(steps=2),
        )


class Alone:
    """A trainer that knows clients only."""

    num_clients, num_coordinates = HOSPITALS, FEATURES

    def limit_threads(self, threads: int) -> None: ...

    def train(self, weights: Any, client: int, rng: Any) -> LocalUpdate:
        return LocalUpdate(np.ones(FEATURES, np.float32), 1)


def test_a_trainer_that_does_not_tell_persons_apart_is_refused() -> None:
    made = scheme()
    ask = InProcess(Client(scheme=made, trainer=Alone(), secrets=SECRETS))
    with pytest.raises(lowkey.errors.ClientFailed, match="a Alone does not tell persons apart"):
        Federation(scheme=made, ask=ask, secrets=SECRETS, clock=StageClock()).run(
            initial_state(made, np.zeros(FEATURES, np.float32)), Schedule(rounds=1)
        )


@pytest.mark.parametrize(
    ("defect", "passes"),
    [
        (None, True),  # refuted by chance: 0.1 %
        ("low-noise", False),
        ("no-clipping", False),
    ],
)
def test_the_audit_with_planted_persons(defect: Defect | None, passes: bool) -> None:
    found = run_audit(
        QUIET, members=10, trials=8000, canaries=800, guesses=40, masked_rounds=0, defect=defect, secrets=SECRETS
    )
    assert (found.unit, found.canaries, found.members) == ("person", 400, 10)
    assert found.passed == passes
    assert found.two_world.epsilon > 0.9 * found.epsilon_claimed


@pytest.mark.parametrize(("defect", "size"), [(None, 1.0), ("no-clipping", 10.0)])
def test_planted_persons_are_clipped_one_by_one_also_under_masks(defect: Defect | None, size: float) -> None:
    rounds = CanaryRounds.of(replace(QUIET, persons=40, noise_multiplier=0.1), 10, defect, SECRETS)
    present = np.arange(40) % 2 == 0
    plain, masked = (rounds.run(0, present, masked=masked) for masked in (False, True))
    np.testing.assert_array_equal(plain, masked)
    np.testing.assert_allclose(plain[:40], size * present, atol=0.6)
