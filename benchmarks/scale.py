"""How memory and time of decoding grow with the model, from 1 to 100 million parameters at r = 0.01.

    python -m benchmarks.scale [--out results/scale.json] [--figure docs/images/scale.png]

Every size runs in a process of its own. A random update with layers of very different scale is measured; then, with the
update thrown away, it is decoded by the LASSO and by the layered decoder with all cores. Memory is the peak of the
process while decoding, above what stood before: the operator with its shuffle, 8 bytes a parameter, and the
measurements. Times are in nanoseconds per parameter; compare them with each other, not with other machines.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.fft

from lowkey import ChunkedDCT, LassoDecoder, LayeredDecoder
from lowkey.protocols import Decoder, PublicNumbers

SIZES = (1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000)
RATIO, LENGTH = 0.01, 8320
DECODERS = ("lasso", "layered")


def layers_of(size: int) -> tuple[int, ...]:
    """A few small layers and a large one."""
    small = [size // 2000, size // 500, size // 30]
    return (*small, size - sum(small))


def peak_memory() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def resident_memory() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("VmRSS:")[1].split()[0])


def measure(size: int) -> None:
    layers = layers_of(size)
    operator = ChunkedDCT(ratio=RATIO, chunks=-(-size // LENGTH)).operator(size, PublicNumbers())
    rng, update = np.random.default_rng(0), np.empty(size, np.float32)
    start = 0
    for length, scale in zip(layers, (30.0, 10.0, 3.0, 1.0), strict=True):
        update[start : start + length] = rng.standard_normal(length, np.float32) * np.float32(scale)
        start += length
    y = operator.forward(update)
    del update
    decoders: dict[str, Decoder] = {"lasso": LassoDecoder(), "layered": LayeredDecoder()}
    with scipy.fft.set_workers(os.cpu_count() or 1):
        small = ChunkedDCT(ratio=RATIO, chunks=12).operator(100_000, PublicNumbers())  # compiles what must be compiled
        LassoDecoder().decode(small, np.ones(small.num_measurements, np.float32))
        for name, decoder in decoders.items():
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak so far
            before = resident_memory()
            began = time.perf_counter()
            decoded = decoder.decode(operator, y, layers=layers)
            seconds = time.perf_counter() - began
            row = {"size": size, "decoder": name, "nanoseconds_per_parameter": round(1e9 * seconds / size, 1),
                   "peak_bytes_per_parameter": round((peak_memory() - before) / size, 2),
                   "peak_gigabytes_of_process": round(peak_memory() / 1e9, 2),
                   "gap": decoded.relative_gap, "stopped": decoded.stopped}  # fmt: skip
            del decoded
            print(json.dumps(row), flush=True)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), constrained_layout=True)
    for name in DECODERS:
        chosen = [row for row in rows if row["decoder"] == name]
        sizes = [row["size"] / 1e6 for row in chosen]
        left.plot(sizes, [row["nanoseconds_per_parameter"] for row in chosen], marker="o", label=name)
        right.plot(sizes, [row["peak_bytes_per_parameter"] for row in chosen], marker="o", label=name)
    right.axhline(4, color="grey", linestyle=":", label="the update itself")
    for axis, label in ((left, "nanoseconds per parameter"), (right, "peak bytes per parameter")):
        axis.set(xscale="log", xlabel="million parameters", ylabel=label, ylim=(0, None))
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/scale.json"))
    parser.add_argument("--figure", type=Path, default=Path("docs/images/scale.png"))
    parser.add_argument("--size", type=int, help="measure one size and print it")
    options = parser.parse_args()
    if options.size:
        measure(options.size)
        return
    rows = []
    for size in SIZES:
        command = [sys.executable, "-m", "benchmarks.scale", "--size", str(size)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        print(done.stdout, end="", flush=True)
        rows += [json.loads(line) for line in done.stdout.splitlines()]
    options.out.write_text(json.dumps({"command": "make scale", "rows": rows}, indent=0) + "\n", encoding="utf-8")
    draw(rows, options.figure)


if __name__ == "__main__":
    main()
