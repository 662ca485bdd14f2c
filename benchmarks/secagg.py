"""What secure aggregation costs beside the local training of the same clients, in one run, as ratios.

    python -m benchmarks.secagg [--json FILE] [--data DIRECTORY] [--length 83200 1663370]

100 members, 10 of which vanish before they send their vectors; all members and the server in one process. Compressed
(r = 0.05) and full length of the paper's model, with the usual number of neighbours each and with everyone. Training:
the preset fashion-mnist/fl-std, in the same process, 20 clients before and after each protocol, scaled to 100; all in
one thread. Wall time: let nothing else run, and read the ratios.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lowkey import secagg
from lowkey.experiments import build, load_config
from lowkey.graphs import make_graph
from lowkey.rng import OSSecrets, generator
from lowkey.secagg import Advert, Confirmation, Identity, Masked, Revealed, SealedShares, Session

MEMBERS, MIN_SURVIVORS, COLLUDERS, BITS = 100, 90, 10, 20
TRAINED = 20
DEFAULT = make_graph("worst-case", MEMBERS, MIN_SURVIVORS, COLLUDERS)[1:3]
GRAPHS = {f"{DEFAULT[0]} neighbours": DEFAULT, "everyone": (99, 67)}
SECRETS = OSSecrets()


class Stopwatch:
    """Seconds by name; bytes that one member sends."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.sent = 0

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - began


def run_session(session: Session, identities: dict[int, Identity], watch: Stopwatch) -> None:
    """One attempt; every member has the same vector, so that the sum is easily checked."""
    verify_keys = {u: identity.verify_key for u, identity in identities.items()}
    vector = np.random.default_rng(0).integers(0, 2**BITS, session.length, dtype=np.uint32)
    dropped = set(session.roster[::10][: MEMBERS - MIN_SURVIVORS])
    source, states = SECRETS.source(), dict[int, Any]()
    keys, shares, agreed = dict[int, Advert](), dict[int, SealedShares](), dict[int, Confirmation]()
    with watch("advertise"):
        for u in session.roster:
            states[u], keys[u] = secagg.advertise(session, identities[u], source)
        links = secagg.Links(session, secagg.accept_adverts(session, keys, verify_keys))
    watch.sent += len(secagg.encode(Advert, keys[1]))
    with watch("share"):
        for u in session.roster:
            states[u], shares[u] = secagg.share(
                states[u], links.advertisers, links.shown_to(u), verify_keys, identities[u], source
            )
        deliveries = secagg.deliver(links, shares, verify_keys)
    watch.sent += len(secagg.encode(SealedShares, shares[1]))
    tally = secagg.Tally(links, deliveries)
    for u in session.roster:
        if u not in dropped:
            with watch("mask"):
                states[u], masked, signed = secagg.mask(states[u], deliveries[u], vector, identities[u])
            with watch("pack"):
                packed = secagg.pack(masked, BITS)
            with watch("unpack and add"):
                tally.add(u, secagg.unpack(packed, BITS, session.length), signed, verify_keys)
    watch.sent += len(packed) + len(secagg.encode(Masked, signed))
    survivors = tally.close()
    with watch("confirm"):
        for u in survivors:
            states[u], agreed[u] = secagg.confirm(states[u], survivors, identities[u])
        confirmations = secagg.accept_confirmations(tally, agreed, verify_keys)
    watch.sent += len(secagg.encode(Confirmation, agreed[1]))
    with watch("reveal"):
        revealed = {
            u: secagg.reveal(states[u], confirmations, verify_keys, identities[u], source)[1] for u in survivors
        }
    watch.sent += len(secagg.encode(Revealed, revealed[1]))
    with watch("unmask"):
        total = secagg.unmask(tally, revealed, verify_keys).vector
    if not np.array_equal(total, (vector * np.uint32(MIN_SURVIVORS)) & np.uint32(2**BITS - 1)):
        raise SystemExit("the unmasked sum is wrong")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--data", default="auto")
    parser.add_argument("--length", type=int, nargs="*", default=[83_200, 1_663_370])
    options = parser.parse_args()
    experiment = build(load_config("fashion-mnist/fl-std", [f"data.source={options.data}"]))
    trainer, weights = experiment.trainer, experiment.initial_weights
    trainer.limit_threads(1)
    identities = {u: Identity.fresh(u, SECRETS.source()) for u in range(MEMBERS)}

    def train() -> float:
        began = time.perf_counter()
        for client in range(TRAINED):
            trainer.train(weights, client, generator(0, "benchmark", client))
        return (time.perf_counter() - began) * MEMBERS / TRAINED

    train()  # the first steps allocate
    rows: list[dict[str, Any]] = []
    for length in options.length:
        for graph, (neighbours, shares_needed) in GRAPHS.items():
            session = Session(
                run="benchmark", round=len(rows), attempt=0, roster=tuple(identities), members=MEMBERS,
                min_survivors=MIN_SURVIVORS, colluders=COLLUDERS, neighbours=neighbours, shares_needed=shares_needed,
                bits=BITS, length=length, terms=bytes(32),
            )  # fmt: skip
            watch, before = Stopwatch(), train()
            run_session(session, identities, watch)
            training, protocol = (before + train()) / 2, sum(watch.seconds.values())
            rows.append(
                {
                    "length": length,
                    "graph": graph,
                    "protocol_over_training": round(protocol / training, 3),
                    "protocol_seconds": round(protocol, 3),
                    "training_seconds": round(training, 3),
                    "stages_over_training": {name: round(s / training, 4) for name, s in watch.seconds.items()},
                    "bytes_sent_by_a_member": watch.sent,
                    "bytes_of_its_vector": secagg.packed_size(length, BITS),
                }
            )
            print(
                f"{length:>9} numbers, {graph:>13}: {protocol / training:5.2f} of training ({protocol:.2f} s), "
                f"{watch.sent:,} bytes a member\n           "
                + "  ".join(f"{name} {s / training:.3f}" for name, s in watch.seconds.items()),
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
