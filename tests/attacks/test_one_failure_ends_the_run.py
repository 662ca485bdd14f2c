"""One lost attempt, and the last round of a study is never run.

Who: one broken node, or a power cut. With what: one attempt that was paid for and gave no sum.

Before: noise was calibrated to the rounds exactly. A run that was interrupted once, between the price and the sum, had
spent its whole ε one round early: it stopped after 4 rounds of 5 (and its noise had been chosen for 5). Once all
attempts that gave vectors count, any failure would do that. Now noise is calibrated for some attempts more, and the
price of them is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from lowkey.errors import RoundFailed
from lowkey.federation import Client, Federation, Reply, Request, RunState, Schedule, Scheme, Survivors, initial_state
from lowkey.federation import scheme as make_scheme
from lowkey.privacy import ClientPrivacy, Ledger, claimed_epsilon
from lowkey.rng import OSSecrets
from lowkey.simulation import InProcess, SimulatedKeys
from tests.attacks.test_vectors_that_left_for_nothing import MEMBERS, Crowd
from tests.federation.test_round import DIMENSION

DEFENDS = (
    "Noise that is calibrated to an ε leaves room for spare attempts, a twentieth of the rounds and at least one: so "
    "many attempts may fail, and all rounds still fit."
)

ROUNDS, EPSILON, DELTA = 5, 8.0, 1e-5


class PowerCut(Exception):
    """The process ends here."""


class OnceIn:
    """In the second round one answer to the last message is awaited in vain, or the process dies meanwhile."""

    def __init__(self, ask: InProcess, dies: bool) -> None:
        self._ask, self._dies, self._happened = ask, dies, 0

    def __call__(self, requests: Mapping[int, Request]) -> Iterator[tuple[int, Reply]]:
        one = next(iter(requests.values()))
        last = type(one.message).__name__ == "Confirmations" if self._dies else isinstance(one.message, Survivors)
        if one.round == 2 and last and not self._happened:
            self._happened = 1
            if self._dies:
                raise PowerCut
            return
        yield from self._ask(requests)


def study(**changes: object) -> Scheme:
    settings = {"clip_norm": 2.0, "epsilon": EPSILON, "rounds": ROUNDS, "sampling": "all", "aggregation": "masked"}
    privacy = ClientPrivacy(**(settings | changes))  # type: ignore[arg-type]
    return make_scheme("fl-std-dp", clients=MEMBERS, cohort=MEMBERS, privacy=privacy)


def run(scheme: Scheme, *, dies: bool) -> tuple[RunState, Ledger]:
    """All rounds of a study, in which one attempt is lost; a run that died goes on from its last round."""
    secrets, ledger, saved = OSSecrets(), Ledger(None, run="test"), list[RunState]()
    keys = SimulatedKeys(MEMBERS, secrets)
    client = Client(scheme=scheme, trainer=Crowd(), secrets=secrets, keys=keys)
    federation = Federation(
        scheme=scheme, ask=OnceIn(InProcess(client), dies), ledger=ledger, secrets=secrets, verify_keys=keys.verify_keys
    )
    state = initial_state(scheme, np.zeros(DIMENSION, np.float32))
    try:
        state, _ = federation.run(state, Schedule(rounds=ROUNDS), save=lambda after, _: saved.append(after))
    except PowerCut:
        state, _ = federation.run(saved[-1], Schedule(rounds=ROUNDS))
    return state, ledger


@pytest.mark.parametrize("dies", [True, False])
def test_a_calibrated_run_survives_one_lost_attempt_within_its_epsilon(dies: bool) -> None:
    state, ledger = run(study(), dies=dies)
    assert state.round == ROUNDS
    assert len(ledger.events) == ROUNDS + 1
    assert claimed_epsilon(ledger.events, DELTA) <= EPSILON


def test_without_spare_attempts_it_ends_early_and_never_beyond_its_epsilon() -> None:
    state, ledger = run(study(spare_attempts=0), dies=False)
    assert state.round == ROUNDS - 1
    assert len(ledger.events) == ROUNDS
    assert claimed_epsilon(ledger.events, DELTA) <= EPSILON


def test_more_failures_than_are_spare_stop_the_run_before_its_epsilon_is_passed() -> None:
    scheme, ledger, secrets = study(), Ledger(None, run="test"), OSSecrets()
    keys = SimulatedKeys(MEMBERS, secrets)
    members = InProcess(Client(scheme=scheme, trainer=Crowd(), secrets=secrets, keys=keys))

    def nobody_confirms(requests: Mapping[int, Request]) -> Iterator[tuple[int, Reply]]:
        if not isinstance(next(iter(requests.values())).message, Survivors):
            yield from members(requests)

    federation = Federation(
        scheme=scheme, ask=nobody_confirms, ledger=ledger, secrets=secrets, verify_keys=keys.verify_keys
    )
    start = initial_state(scheme, np.zeros(DIMENSION, np.float32))
    with pytest.raises(RoundFailed, match=r"privacy\.epsilon = 8\.0 leaves no room for another attempt"):
        federation.run(start, Schedule(rounds=ROUNDS, attempts=20))
    event = scheme.privacy.event()
    assert event is not None
    assert ledger.events == (event,) * (ROUNDS + 1)
    assert claimed_epsilon(ledger.events, DELTA) <= EPSILON < claimed_epsilon([*ledger.events, event], DELTA)
