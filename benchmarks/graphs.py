"""What masks cost with thousands of members: worst-case and random graphs, all members in one process and thread.

    OMP_NUM_THREADS=1 python -m benchmarks.graphs [--out results/graphs.json] [--rounds 20] [--large 6000]

Noise for a tenth of colluders and a twentieth of dropouts; a random twentieth of the members vanishes before they send
their vectors. Bytes are those of a member that stays, by its own messages, on average over members and rounds; seconds
are of a core, keys of the enrolled and the vectors not counted. Each signature is verified once in the process, as in
simulations; "signatures" says how many a member verifies that is alone on its machine. Read ratios.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lowkey import secagg
from lowkey.durable import replace_file
from lowkey.graphs import Graph, checks_needed, make_graph
from lowkey.rng import OSSecrets
from lowkey.secagg import Advert, Confirmation, Identity, Masked, Revealed, SealedShares, Session

BITS, COLLUDING, LEAVING = 24, 0.1, 0.05
SECRETS = OSSecrets()


class Sent:
    """Bytes that members upload besides their vectors."""

    def __init__(self) -> None:
        self.total = 0

    def __call__(self, kind: type[Any], message: Any) -> Any:
        self.total += len(secagg.encode(kind, message))
        return message


def one_round(
    session: Session, identities: dict[int, Identity], verify_keys: dict[int, bytes], gone: set[int]
) -> tuple[float, int]:
    """Seconds of all members and the server, and bytes that the members send."""
    vector = np.random.default_rng(session.round).integers(0, 2**BITS, session.length, dtype=np.uint32)
    source, states, sent = SECRETS.source(), dict[int, Any](), Sent()
    began = time.process_time()
    adverts = {}
    for u in session.roster:
        states[u], advert = secagg.advertise(session, identities[u], source)
        adverts[u] = sent(Advert, advert)
    links = secagg.Links(session, secagg.accept_adverts(session, adverts, verify_keys))
    shares = {}
    for u in links.advertisers:
        told = links.advertisers, links.shown_to(u)
        states[u], sealed = secagg.share(states[u], *told, verify_keys, identities[u], source)
        shares[u] = sent(SealedShares, sealed)
    deliveries = secagg.deliver(links, shares, verify_keys)
    tally = secagg.Tally(links, deliveries)
    for u, delivery in deliveries.items():
        if u not in gone:
            states[u], masked, signed = secagg.mask(states[u], delivery, vector, identities[u])
            tally.add(u, masked, sent(Masked, signed), verify_keys)
    survivors, said = tally.close(), {}
    for u in survivors:
        states[u], confirmation = secagg.confirm(states[u], survivors, identities[u])
        said[u] = sent(Confirmation, confirmation)
    confirmations, revealed = secagg.accept_confirmations(tally, said, verify_keys), {}
    for u in survivors:
        vouchers = tally.vouchers_for(u)
        states[u], shown = secagg.reveal(states[u], confirmations, verify_keys, identities[u], source, vouchers)
        revealed[u] = sent(Revealed, shown)
    total = secagg.unmask(tally, revealed, verify_keys).vector
    seconds = time.process_time() - began
    if not np.array_equal(total, (vector * np.uint32(len(survivors))) & np.uint32(2**BITS - 1)):
        raise SystemExit("the unmasked sum is wrong")
    return seconds, sent.total


def signatures(session: Session, graph: Graph) -> int:
    """How many a member verifies in a round."""
    k, shown = graph.neighbours, session.min_survivors
    if graph.kind == "worst-case":
        return k + shown
    return round(k * (2 - k / (session.members - 1))) + checks_needed(session.members, session.colluders, shown) + k


def rows(members: int, length: int, kinds: tuple[str, ...], rounds: dict[str, int]) -> Iterator[dict[str, Any]]:
    least, colluders = math.floor((1 - LEAVING) * members), math.ceil(COLLUDING * members)
    identities = {u: Identity.fresh(u, SECRETS.source()) for u in range(members)}
    verify_keys = {u: identity.verify_key for u, identity in identities.items()}
    rng = np.random.default_rng(0)
    for kind in kinds:
        graph = make_graph(kind, members, least, colluders)  # type: ignore[arg-type]
        seconds, sent = [], []
        for number in range(rounds[kind]):
            session = Session(
                run=f"{kind} {members} {length}", round=number, attempt=0, roster=tuple(identities), members=members,
                min_survivors=least, colluders=colluders, graph=kind, neighbours=graph.neighbours,
                shares_needed=graph.shares_needed, bits=BITS, length=length, terms=bytes(32),
            )  # fmt: skip
            gone = set(rng.choice(members, members - least, replace=False).tolist())
            taken, up = one_round(session, identities, verify_keys, gone)
            seconds.append(taken)
            sent.append(up)
        found = {
            "members": members,
            "numbers": length,
            "graph": kind,
            "neighbours": graph.neighbours,
            "shares_needed": graph.shares_needed,
            "strays": graph.strays,
            "rounds": len(seconds),
            "bytes_up_besides_vector": round(float(np.mean(sent)) / members),
            "bytes_of_a_vector": secagg.packed_size(length, BITS),
            "seconds_of_a_round": round(float(np.mean(seconds)), 2),
            "milliseconds_of_a_member": round(1000 * float(np.mean(seconds)) / members, 2),
            "signatures_of_a_member": signatures(session, graph),
            "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        }
        print(found, flush=True)
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/graphs.json"))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--large", type=int, default=6_000)
    options = parser.parse_args()
    rounds = {"random": options.rounds, "worst-case": max(1, options.rounds // 4)}
    found = [*rows(410, 374, ("worst-case", "random"), rounds), *rows(410, 4_010, ("random",), rounds)]
    if options.large:
        found += rows(options.large, 4_010, ("random",), {"random": 1})
    worst, random, long, *large = found
    ratios = {
        "seconds: random over worst-case, 410 members": round(
            random["seconds_of_a_round"] / worst["seconds_of_a_round"], 3
        ),
        **{
            f"seconds of a member: {one['members']} over 410, equal length": round(
                one["milliseconds_of_a_member"] / long["milliseconds_of_a_member"], 2
            )
            for one in large
        },
    }
    print(ratios)
    content = {"command": "OMP_NUM_THREADS=1 python -m benchmarks.graphs", "rows": found, "ratios": ratios}
    replace_file(options.out, (json.dumps(content, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
