"""A masked round of ten clients with room for an attacker: in a client, and between the clients and the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from lowkey.codec import ChunkedDCT
from lowkey.federation import (
    Client,
    ClientState,
    Reply,
    Request,
    RoundOutcome,
    drive,
    initial_state,
    round_flow,
    scheme,
)
from lowkey.privacy import ClientPrivacy, Ledger
from lowkey.rng import ReplaySecrets
from lowkey.simulation import SimulatedKeys
from lowkey.timing import StageClock
from lowkey.types import ClientId
from tests.federation.test_round import DIMENSION, Pull

CLIENTS = 10
"""Nine must survive, and one may collude; every secret needs six of nine shares."""


class Ten(Pull):
    num_clients = CLIENTS


def one_round(
    *,
    within: Callable[[ClientState, Request], ClientState] = lambda state, _: state,
    on_the_way: Callable[[ClientId, Reply], Reply | None] = lambda _, reply: reply,
) -> RoundOutcome:
    """One round; ``within`` changes a client's memory before it answers, ``on_the_way`` what it answered."""
    settings = ClientPrivacy(clip_norm=2.0, noise_multiplier=1.0, sampling="all", aggregation="masked")
    ours = scheme("fl-cs-dp", clients=CLIENTS, cohort=CLIENTS, codec=ChunkedDCT(ratio=0.5, chunks=3), privacy=settings)
    secrets = ReplaySecrets(3)
    keys = SimulatedKeys(CLIENTS, secrets)
    client = Client(scheme=ours, trainer=Ten(), secrets=secrets, keys=keys)
    states = {number: ClientState(number) for number in range(CLIENTS)}

    def ask(requests: Mapping[ClientId, Request]) -> Iterator[tuple[ClientId, Reply]]:
        for number, request in requests.items():
            states[number], reply = client.handle(within(states[number], request), request)
            carried = on_the_way(number, reply)
            if carried is not None:
                yield number, carried

    state = initial_state(ours, np.zeros(DIMENSION, np.float32))
    flow = round_flow(
        ours, state, secrets=secrets, ledger=Ledger(None, run="attack"), clock=StageClock(),
        verify_keys=keys.verify_keys,
    )  # fmt: skip
    return drive(flow, ask)
