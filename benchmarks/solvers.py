"""Lowkey's LASSO solver beside the paper's, OWL-QN by PyLBFGS, at equal duality gap in one run, as ratios.

    python benchmarks/solvers.py [--owlqn-blocks 3] [--json FILE]

Problems of the paper's size (200 blocks of 8,320 coordinates), λ = c √r rms(e): a heavy-tailed update drawn at random,
and what FL-CS has in e when it decodes, from recorded aggregated updates of real training: with the default decoder,
and with the LASSO itself, whose leftovers (all of Θᵀe at ±λ) make the next problem the hardest of its kind. Lowkey
solves all 200 blocks with all cores; OWL-QN, one thread, solves a sample of them, and its time is scaled to 200. The
time it takes to check the gap of OWL-QN is not counted. Also: compressing an update beside one bare DCT of its blocks.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from benchmarks.owlqn import solve_block
from benchmarks.recording import LAYERS, recorded
from lowkey import ChunkedDCT, ErrorFeedback, LassoDecoder, LayeredDecoder
from lowkey.codec import Decoded
from lowkey.codec.solvers import Problem, by_active_set, certify
from lowkey.protocols import Decoder, Operator, PublicNumbers
from lowkey.types import FloatArray

TOLERANCE = 1e-3
BLOCKS, LENGTH = 200, 8320
FACTORS = (0.5, 1.0, 2.0)
ASKED = {0.05: 100, 0.2: 40}
ROUNDS = (2, 20)
_LINE = (
    "r = {ratio}  c = {c}  {problem:24}  {times_faster:6.0f} times as fast (asked: {asked})  "
    "gap {gap:.0e}, OWL-QN {owlqn_gap:.0e}  {nonzeros} nonzeros"
)


def heavy_tailed() -> NDArray[np.float64]:
    """A synthetic update of a convolutional network: three kinds of layers, shuffled, padded, cut into blocks."""
    rng = np.random.default_rng(0)
    dense, conv, rest = 1_605_632, 51_200, 6_538
    padding = BLOCKS * LENGTH - dense - conv - rest
    kinds = rng.normal(0, 1e-4, dense), rng.normal(0, 5e-4, conv), rng.laplace(0, 3e-3, rest), np.zeros(padding)
    return rng.permutation(np.concatenate(kinds)).reshape(BLOCKS, LENGTH)


def problems(ratio: float) -> Iterator[tuple[str, FloatArray]]:
    """Name and measurements (200, k) of each problem."""
    yield "synthetic", scipy.fft.dct(heavy_tailed(), norm="ortho")[:, : round(ratio * LENGTH)].astype(np.float32)
    updates = recorded(max(ROUNDS))
    operator = ChunkedDCT(ratio=ratio).operator(updates.shape[1], PublicNumbers())
    means = [operator.forward(np.array(update)) for update in updates]
    for label, decoder in (("e", LayeredDecoder()), ("e of the LASSO", LassoDecoder())):
        for number, e in enumerate(errors(operator, means, decoder), start=1):
            if number in ROUNDS:
                yield f"{label}, round {number}", e


def errors(operator: Operator, means: list[FloatArray], decoder: Decoder) -> list[FloatArray]:
    """What the server of FL-CS gives to the decoder in each round, (200, k)."""
    rule, given = ErrorFeedback(rate=0.35, momentum=0.9), list[FloatArray]()

    def decode(measurements: FloatArray, noise: float) -> Decoded:
        given.append(measurements.reshape(BLOCKS, -1).copy())
        return decoder.decode(operator, measurements, noise, LAYERS)

    state = rule.init(operator)
    for mean in means:
        state = rule.gather(state, mean, operator, decode, 0.0).state
    return given


def compare(ratio: float, name: str, y: FloatArray, factor: float, sample: int) -> dict[str, Any]:
    lam = factor * float(np.sqrt(np.mean(np.square(y, dtype=np.float64)) * ratio))
    problem = Problem(y=y, lam=lam, length=LENGTH)
    by_active_set(problem, tolerance=TOLERANCE, max_iterations=1000)
    ours, theirs, gaps = [], [], []
    for block in np.linspace(0, BLOCKS - 1, sample).astype(int):  # in turns, so that a busy machine disturbs both
        began = time.perf_counter()
        solution = by_active_set(problem, tolerance=TOLERANCE, max_iterations=1000)
        ours.append(time.perf_counter() - began)
        solved = solve_block(y[block], lam, LENGTH, tolerance=TOLERANCE)
        theirs.append(solved.seconds)
        gaps.append(solved.gap)
    certificate = certify(problem, solution.s)
    return {
        "problem": name, "ratio": ratio, "c": factor, "asked": ASKED[ratio],
        "times_faster": round(BLOCKS * statistics.median(theirs) / statistics.median(ours), 1),
        "seconds": round(statistics.median(ours), 3), "owlqn_seconds": round(BLOCKS * statistics.median(theirs), 1),
        "gap": float(certificate.gap.sum() / certificate.objective.sum()), "owlqn_gap": max(gaps),
        "iterations": solution.iterations, "nonzeros": int(np.count_nonzero(solution.s)),
    }  # fmt: skip


def compression() -> float:
    """Compressing an update over one bare DCT of the same blocks, both with one thread."""
    operator = ChunkedDCT(ratio=0.05).operator(1_663_370, PublicNumbers())
    update = np.random.default_rng(0).normal(size=1_663_370).astype(np.float32)
    blocks = np.random.default_rng(1).normal(size=(BLOCKS, LENGTH)).astype(np.float32)
    ratios = []
    for _ in range(31):
        began = time.perf_counter()
        scipy.fft.dct(blocks, norm="ortho")
        bare = time.perf_counter() - began
        began = time.perf_counter()
        operator.forward(update)
        ratios.append((time.perf_counter() - began) / bare)
    return statistics.median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--owlqn-blocks", type=int, default=3, help="blocks that OWL-QN solves of each problem")
    parser.add_argument("--json", help="also write the rows to this file")
    options = parser.parse_args()
    print(f"compressing an update takes {compression():.2f} of one bare DCT of its blocks (asked: 2.5)\n")
    rows = []
    with scipy.fft.set_workers(os.cpu_count() or 1):
        for ratio in ASKED:
            for name, y in problems(ratio):
                for factor in FACTORS:
                    rows.append(row := compare(ratio, name, y, factor, options.owlqn_blocks))
                    print(_LINE.format(**row), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"command": "python -m benchmarks.solvers --json ...", "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
