"""Seconds of a masked round beside local training: 100 members, 83,200 numbers, one process, one thread.

    OMP_NUM_THREADS=1 python -m benchmarks.masked_round

Members compress, clip, add noise, mask, sign and confirm; the server sums, unmasks and decodes by the adjoint. To
compare two revisions, let this script alternate with itself under ``PYTHONPATH=/other/checkout/src``.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from lowkey.codec import AdjointDecoder, ChunkedDCT
from lowkey.federation import Client, drive, initial_state, round_flow, scheme
from lowkey.privacy import ClientPrivacy, Ledger
from lowkey.protocols import LocalUpdate
from lowkey.rng import OSSecrets
from lowkey.simulation import InProcess, SimulatedKeys
from lowkey.timing import StageClock
from lowkey.types import ClientId, FloatArray

MEMBERS, PARAMETERS, ROUNDS = 100, 1_663_370, 4


class Still:
    """Satisfies :class:`lowkey.protocols.Trainer`: every client has the same update, which costs nothing."""

    num_clients, num_coordinates = MEMBERS, PARAMETERS

    def __init__(self) -> None:
        self._update = np.random.default_rng(0).standard_normal(PARAMETERS).astype(np.float32) * np.float32(1e-4)

    def limit_threads(self, threads: int) -> None: ...

    def train(self, weights: FloatArray, client: ClientId, rng: np.random.Generator) -> LocalUpdate:
        return LocalUpdate(self._update, 1)


def main() -> None:
    privacy = ClientPrivacy(clip_norm=0.5, noise_multiplier=2.0, sampling="all", aggregation="masked")
    codec = ChunkedDCT(ratio=0.05, chunks=200)
    own = scheme("fl-cs-dp", clients=MEMBERS, cohort=MEMBERS, codec=codec, seed=0, privacy=privacy)
    own, secrets, clock = replace(own, decoder=AdjointDecoder()), OSSecrets(), StageClock()
    keys, ledger = SimulatedKeys(MEMBERS, secrets), Ledger(None, run="benchmark")
    ask = InProcess(Client(scheme=own, trainer=Still(), secrets=secrets, keys=keys, clock=clock))
    state, taken = initial_state(own, np.zeros(PARAMETERS, np.float32)), []
    for number in range(ROUNDS):
        if number == 1:
            clock.take()  # the first round compiles
        began = time.process_time()
        flow = round_flow(own, state, secrets=secrets, ledger=ledger, clock=clock, verify_keys=keys.verify_keys)
        state = drive(flow, ask).state
        taken.append(time.process_time() - began)
    print(f"{min(taken[1:]):.2f} s, the quickest of {ROUNDS - 1}; on average", end=" ")
    print(", ".join(f"{stage} {seconds / (ROUNDS - 1):.3f}" for stage, seconds in clock.take().items()))


if __name__ == "__main__":
    main()
