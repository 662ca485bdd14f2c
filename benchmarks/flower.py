"""What the Flower runtime costs per round, and the bytes that really cross the wire.

    python -m benchmarks.flower [--nodes 10] [--rounds 3] [--json FILE]

The paper's model on the bundled sample, secure aggregation over real nodes on loopback with TLS, for FL-CS-DP at
r = 0.05 (m = 83,200) and FL-STD-DP (m = 1,663,370). Time beyond local training is the wall time of a round less what
the same clients train in this process with as many threads as there are cores, in the same run. All nodes share this
machine's cores, so that what costs each of them processor time adds up; on machines of their own it does not.

One node talks to the server through a relay that counts the bytes of its TLS connection, both ways. Metrics do not
count the requests by which an idle node asks whether there is a message, since their number follows the clock; here
they are added, one every three seconds, before the two are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import tempfile
import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from lowkey.deployment import follow, free_ports, local_federation
from lowkey.experiments import Config, build, load_config
from lowkey.protocols import Metrics
from lowkey.rng import generator

POLL_SECONDS, POLL_BYTES = 3.0, {"up": 1080, "down": 170}  # of an idle node, measured
SETTINGS = ["data.source=bundled", "deployment.train_seconds=600", "privacy.max_contributions=1000"]


class Relay:
    """Passes TCP connections on and counts their bytes."""

    def __init__(self, target: int) -> None:
        self.target, self.up, self.down = target, 0, 0
        [self.port] = free_ports(1)
        self._server = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._server.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # the server has been stopped
                near.close()
                continue
            threading.Thread(target=self._pump, args=(near, far, "up"), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, "down"), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, way: Literal["up", "down"]) -> None:
        try:
            while data := source.recv(1 << 16):
                setattr(self, way, getattr(self, way) + len(data))
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for each in (source, sink):
                each.close()


def training_seconds(config: Config) -> float:
    """Wall time that the clients of one round need for their training, cores used in full."""
    experiment = build(config)
    trainer, weights = experiment.trainer, experiment.initial_weights
    trainer.limit_threads(1)
    trainer.train(weights, 0, generator(0, "warm up"))
    began = time.perf_counter()
    for client in range(config.federation.clients):
        trainer.train(weights, client, generator(0, "benchmark", client))
    return (time.perf_counter() - began) / (os.cpu_count() or 1)


def measure(preset: str, nodes: int, rounds: int) -> dict[str, Any]:
    config = load_config(preset, [*SETTINGS, f"schedule.rounds={rounds}"], nodes=nodes)
    trained = training_seconds(config)
    counted: list[tuple[Metrics, int, int]] = []
    with tempfile.TemporaryDirectory() as directory, local_federation(config, Path(directory) / "home") as federation:
        relay = Relay(federation.port)
        for name in ("node-0000", "node-0000-executor"):  # it comes back through the relay
            federation.processes.stop(name)
        time.sleep(1)
        replace(federation, port=relay.port).start_node(0)
        out = Path(directory) / "run"
        run = federation.submit(out)
        follow(federation, run, out, [lambda metrics: counted.append((metrics, relay.up, relay.down))])
    lines = [metrics for metrics, _, _ in counted]
    later = lines[1:]  # the first round also greets the nodes
    up = [b[1] - a[1] for a, b in pairwise(counted)]
    down = [b[2] - a[2] for a, b in pairwise(counted)]
    said_up, said_down = (
        statistics.mean(
            sum(m[f"{part}bytes_{way}_per_client"] for part in ("", "protocol_", "transport_"))
            + POLL_BYTES[way] * (m["seconds"]["round"] - m["seconds"].get("contribute", 0.0)) / POLL_SECONDS
            for m in later
        )
        for way in ("up", "down")
    )
    wall = statistics.median(m["seconds"]["round"] for m in later)
    return {
        "preset": preset,
        "nodes": nodes,
        "round_over_training": round(wall / trained, 1),
        "overhead_seconds": round(wall - trained, 1),
        "steps": {
            step: round(statistics.median(m["seconds"].get(step, 0.0) for m in later) / wall, 3)
            for step in ("advertise", "share", "contribute", "confirm", "reveal")
        },
        "vector_bytes": later[0]["bytes_up_per_client"],
        "protocol_bytes_up": later[0]["protocol_bytes_up_per_client"],
        "protocol_bytes_down": later[0]["protocol_bytes_down_per_client"],
        "transport_bytes_up": later[0]["transport_bytes_up_per_client"],
        "transport_bytes_down": later[0]["transport_bytes_down_per_client"],
        "model_bytes": later[0]["bytes_down_per_client"],
        "wire_up": round(statistics.mean(up)),
        "wire_down": round(statistics.mean(down)),
        "wire_up_over_metrics": round(statistics.mean(up) / said_up, 4),
        "wire_down_over_metrics": round(statistics.mean(down) / said_down, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--preset", action="append")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = []
    for preset in options.preset or ["fashion-mnist/fl-cs-dp-r0.05", "fashion-mnist/fl-std-dp"]:
        found.append(measure(preset, options.nodes, options.rounds))
        print(json.dumps(found[-1], indent=1), flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
