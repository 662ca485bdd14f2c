"""Attempts that fail after the vectors have left.

Who: a server that lets attempts fail, on purpose or not, and keeps what it got. With what: masked vectors that it was
sent, and members that confirm, or do not, when it pleases.

Before: the price of an attempt was noted when its sum was about to be unmasked. An attempt that failed after the
masked vectors, and before that, cost nothing, though each client counted it. One round at z = 1 that succeeded in its
third attempt was printed with ε = 4.38 for the server; a client that was asked three times had given 8.39 (δ = 1e-5).
Now an attempt is paid for before its vectors are asked for, and stays paid, however it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from lowkey.federation import Adverts, Client, Federation, Reply, Request, Schedule, Survivors, initial_state
from lowkey.federation import scheme as make_scheme
from lowkey.privacy import ClientPrivacy, Ledger, claimed_epsilon, server_epsilon
from lowkey.rng import OSSecrets
from lowkey.simulation import InProcess, SimulatedKeys
from tests.federation.test_round import DIMENSION, Pull

DEFENDS = (
    "An attempt is paid for before the requests for its vectors leave, and stays paid however it ends: one number of "
    "attempts counts for the released models, for the server, and for the budget."
)

MEMBERS, DELTA = 20, 1e-5


class Crowd(Pull):
    num_clients = MEMBERS


class Failing:
    """Carries everything, but in the first attempts most answers to one kind of message are lost."""

    def __init__(self, ask: InProcess, attempts: int, at: type) -> None:
        self._ask, self._attempts, self._at = ask, attempts, at
        self.vectors = 0  # attempts in which vectors were asked for

    def __call__(self, requests: Mapping[int, Request]) -> Iterator[tuple[int, Reply]]:
        one = next(iter(requests.values()))
        self.vectors += any(request.weights is not None for request in requests.values())
        lost = one.attempt < self._attempts and isinstance(one.message, self._at)
        yield from list(self._ask(requests))[: 3 if lost else None]


def one_round_after(failures: int, *, at: type, aggregation: str = "masked") -> tuple[dict[str, Any], Ledger, int]:
    """The metrics of a round that succeeded after some failures, its ledger, and how often vectors were asked for."""
    privacy = ClientPrivacy(clip_norm=2.0, noise_multiplier=1.0, sampling="all", aggregation=aggregation)  # type: ignore[arg-type]
    scheme = make_scheme("fl-std-dp", clients=MEMBERS, cohort=MEMBERS, privacy=privacy)
    secrets, ledger, lines = OSSecrets(), Ledger(None, run="test"), list[Any]()
    keys = SimulatedKeys(MEMBERS, secrets)
    client = Client(scheme=scheme, trainer=Crowd(), secrets=secrets, keys=keys)
    ask = Failing(InProcess(client), failures, at)
    federation = Federation(scheme=scheme, ask=ask, ledger=ledger, secrets=secrets, verify_keys=keys.verify_keys)
    federation.run(initial_state(scheme, np.zeros(DIMENSION, np.float32)), Schedule(rounds=1), observers=[lines.append])
    return lines[0], ledger, ask.vectors


@pytest.mark.parametrize("at", ["Survivors", "vectors of a plain sum"])
def test_the_server_is_charged_for_every_vector_it_got(at: str) -> None:
    if at == "Survivors":
        line, ledger, vectors = one_round_after(2, at=Survivors)
    else:
        line, ledger, vectors = one_round_after(2, at=type(None), aggregation="plain")
    assert vectors == 3
    true = server_epsilon(1.0, vectors, DELTA)
    assert true == pytest.approx(8.386, abs=1e-3)
    assert line["epsilon_server"] == pytest.approx(true)
    assert line["epsilon_pld"] == pytest.approx(claimed_epsilon(ledger.events, DELTA)) == pytest.approx(true, abs=1e-6)


def test_what_failed_before_any_vector_left_is_free() -> None:
    line, ledger, vectors = one_round_after(2, at=Adverts)
    assert (vectors, len(ledger.events)) == (1, 1)
    assert line["epsilon_server"] == pytest.approx(server_epsilon(1.0, 1, DELTA))
