"""Which decoder recovers most? On recorded aggregated updates of real training, with and without the paper's noise.

    python -m benchmarks.decoding [--out results/decoding.json] [--figure docs/images/decoding.png]

Two questions. *One update*: the mean update g of a round is measured at r = 0.05, 0.1 and 0.2, with the noise of the
paper's private runs or without, and decoded; cosine and relative error are to g. *Many updates*: 30 recorded rounds
pass through the server of FL-CS, momentum and error feedback included; the cosine is that of all that was applied to
all that should have been, the sum of η·u. Candidates that did not earn a place in the package live in this file.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.fft

from benchmarks.recording import LAYERS, recorded
from lowkey import AdjointDecoder, ChunkedDCT, ErrorFeedback, LassoDecoder, LayeredDecoder
from lowkey.codec import Certificates, Decoded
from lowkey.protocols import BlockOperator, PublicNumbers
from lowkey.types import FloatArray

RATIOS = {0.05: 0.47, 0.1: 0.69, 0.2: 0.98}  # with the paper's clip norms S
ROUNDS = (2, 10, 20, 30)
NOISE_MULTIPLIER, COHORT = 1.54, 100
_ONE = (
    "r {ratio:<4}  round {round:2}  noise {noise:.4f}  {decoder:22} cosine {cosine:.3f}  "
    "error {relative_error:.2f}  {nonzeros:8} nonzeros  gap {gap:.0e}"
)
_MANY = (
    "r {ratio:<4}  {rounds} rounds of error feedback  noise {noise:.4f}  {decoder:22} "
    "cosine {cosine:.3f}  progress {progress:.3f}  length {length:.2f}"
)


def typical_correlation(operator: BlockOperator, measurements: FloatArray) -> float:
    """√r · rms(y), the root mean square of Θᵀy, to which the package's λ is relative."""
    ratio = operator.block_measurements / operator.block_length
    return float(np.sqrt(ratio * np.mean(np.square(measurements, dtype=np.float64))))


class Candidate(Protocol):
    """A decoder of blocks."""

    def decode(
        self, operator: BlockOperator, measurements: FloatArray, noise: float = 0.0, layers: Sequence[int] = ()
    ) -> Decoded: ...


@dataclass(frozen=True)
class LassoByRule:
    """LASSO with another rule than the package's: λ relative to the largest |Θᵀy| ("max"), or to its noise.

    Such a λ is the package's with a factor that is computed for the problem at hand.
    """

    rule: str
    factor: float

    def decode(
        self, operator: BlockOperator, measurements: FloatArray, noise: float = 0.0, layers: Sequence[int] = ()
    ) -> Decoded:
        if self.rule == "max":
            size = float(np.abs(operator.adjoint(measurements)).max())
        else:
            size = noise * float(np.sqrt(operator.block_measurements / operator.block_length))
        typical = typical_correlation(operator, measurements)
        return LassoDecoder(lambda_factor=self.factor * size / typical).decode(operator, measurements, noise, layers)


@dataclass(frozen=True)
class Debiased:
    """Least squares on the support of a LASSO, by conjugate gradients: undoes the shrinkage of what was found."""

    first: LassoDecoder
    iterations: int = 50

    def decode(
        self, operator: BlockOperator, measurements: FloatArray, noise: float = 0.0, layers: Sequence[int] = ()
    ) -> Decoded:
        start = self.first.decode(operator, measurements, noise, layers)
        support = (start.update != 0).astype(np.float32)
        s, residual = start.update.copy(), measurements - operator.forward(start.update)
        gradient = support * operator.adjoint(residual)
        direction, square = gradient.copy(), float(gradient @ gradient)
        for _ in range(self.iterations):
            image = operator.forward(direction)
            step = np.float32(square / max(float(image @ image), 1e-30))
            s += step * direction
            residual -= step * image
            gradient = support * operator.adjoint(residual)
            before, square = square, float(gradient @ gradient)
            if square < 1e-6 * before or square == 0.0:
                break
            direction = gradient + np.float32(square / before) * direction
        return Decoded(update=s, nonzeros=start.nonzeros)


@dataclass(frozen=True)
class WeightedLasso:
    """LASSO whose λ of a layer is inverse to the size of its coordinates, as the layered decoder estimates it."""

    factor: float
    iterations: int = 100

    def decode(
        self, operator: BlockOperator, measurements: FloatArray, noise: float = 0.0, layers: Sequence[int] = ()
    ) -> Decoded:
        y = measurements.reshape(operator.num_blocks, operator.block_measurements)
        variances, _ = LayeredDecoder.prior(operator, y, noise, layers)
        deviations = np.sqrt(np.maximum(variances, variances[variances > 0].min() * 1e-6))
        base = self.factor * typical_correlation(operator, measurements)
        lam_of = base * np.sqrt(np.average(variances[:-1], weights=layers)) / deviations
        ends = np.cumsum(layers)

        def solved() -> Iterator[FloatArray]:
            for group in operator.groups:
                lam = lam_of[np.searchsorted(ends, operator.coordinates(group), side="right")].astype(np.float32)
                yield _fista(y[group], lam, self.iterations)

        update = operator.assemble(solved())
        return Decoded(update=update, nonzeros=int(np.count_nonzero(update)))


def _fista(y: FloatArray, lam: FloatArray, iterations: int) -> FloatArray:
    """Accelerated proximal gradient with a λ for every coordinate; step size 1."""
    s = np.zeros_like(lam)
    z, t = s.copy(), 1.0
    for _ in range(iterations):
        spectrum = scipy.fft.dct(z, norm="ortho")
        spectrum[:, : y.shape[1]] = y
        after = scipy.fft.idct(spectrum, norm="ortho", overwrite_x=True)
        after -= np.clip(after, -lam, lam)
        t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
        z = after + np.float32((t - 1) / t_next) * (after - s)
        s, t = after, t_next
    return s


@dataclass(frozen=True)
class HeavyTails:
    """Layered, then once more with a variance of its own for every coordinate: half its layer's, half its square."""

    layered: LayeredDecoder

    def decode(
        self, operator: BlockOperator, measurements: FloatArray, noise: float = 0.0, layers: Sequence[int] = ()
    ) -> Decoded:
        y = measurements.reshape(operator.num_blocks, operator.block_measurements)
        variances, noise_variance = self.layered.prior(operator, y, noise, layers)
        first = np.append(self.layered.decode(operator, measurements, noise, layers).update, 0.0).astype(np.float32)
        ends, certificates = np.cumsum(layers), Certificates()

        def solved() -> Iterator[FloatArray]:
            for group in operator.groups:
                coordinates = operator.coordinates(group)
                prior = variances[np.searchsorted(ends, coordinates, side="right")]
                prior = np.where(prior > 0, 0.5 * (prior + first[coordinates] ** 2), 0).astype(np.float32)
                yield self.layered.solve(y[group], prior, noise_variance, certificates)

        return certificates.decoded(operator.assemble(solved()), self.layered.tolerance)


DECODERS: dict[str, Candidate] = {
    "adjoint": AdjointDecoder(),
    "lasso 0.5 rms": LassoDecoder(lambda_factor=0.5),
    "lasso 1 rms": LassoDecoder(lambda_factor=1.0),
    "lasso 2 rms": LassoDecoder(lambda_factor=2.0),
    "lasso 0.2 max": LassoByRule("max", 0.2),
    "lasso 3 noise": LassoByRule("noise", 3.0),
    "debiased lasso 2 rms": Debiased(LassoDecoder(lambda_factor=2.0)),
    "weighted lasso 1 rms": WeightedLasso(1.0),
    "layered": LayeredDecoder(),
    "layered, heavy tails": HeavyTails(LayeredDecoder()),
}
IN_THE_LOOP = ("adjoint", "lasso 1 rms", "lasso 2 rms", "weighted lasso 1 rms", "layered")
IN_A_NOISY_LOOP = ("adjoint", "lasso 2 rms", "layered")


def cosine(a: FloatArray, b: FloatArray) -> float:
    product = np.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / product if product > 0 else 0.0


def one_update(updates: FloatArray) -> Iterator[dict[str, Any]]:
    for ratio, clip in RATIOS.items():
        operator = ChunkedDCT(ratio=ratio).operator(updates.shape[1], PublicNumbers())
        for number in ROUNDS:
            update = np.array(updates[number - 1])
            clean = operator.forward(update)
            for level in (0.0, NOISE_MULTIPLIER * clip / COHORT):
                noise = np.random.default_rng(number).normal(size=clean.size).astype(np.float32) * np.float32(level)
                linear = None
                for name, decoder in DECODERS.items():
                    began = time.perf_counter()
                    decoded = decoder.decode(operator, clean + noise, level, LAYERS)
                    seconds = time.perf_counter() - began
                    linear = linear or seconds
                    row = {
                        "ratio": ratio, "round": number, "noise": level, "decoder": name,
                        "cosine": round(cosine(decoded.update, update), 4),
                        "relative_error": round(float(np.linalg.norm(decoded.update - update)
                                                      / np.linalg.norm(update)), 4),
                        "nonzeros": decoded.nonzeros, "gap": decoded.relative_gap,
                        "iterations": decoded.iterations, "time_over_adjoint": round(seconds / linear, 1),
                    }  # fmt: skip
                    print(_ONE.format(**row), flush=True)
                    yield row


def many_updates(updates: FloatArray) -> Iterator[dict[str, Any]]:
    """The server of FL-CS with the paper's rate and momentum, on the recorded rounds."""
    for ratio, clip in RATIOS.items():
        operator = ChunkedDCT(ratio=ratio).operator(updates.shape[1], PublicNumbers())
        means = [operator.forward(np.array(update)) for update in updates]
        for level in (0.0, NOISE_MULTIPLIER * clip / COHORT):
            for name in IN_A_NOISY_LOOP if level else IN_THE_LOOP:
                rule = ErrorFeedback(rate=0.35, momentum=0.9)
                decode = partial(DECODERS[name].decode, operator, layers=LAYERS)
                state = rule.init(operator)
                momentum = np.zeros(updates.shape[1], np.float32)
                applied, wanted = np.zeros_like(momentum), np.zeros_like(momentum)
                rng = np.random.default_rng(0)
                for mean, update in zip(means, updates, strict=True):
                    noise = rng.normal(size=mean.size).astype(np.float32) * np.float32(level)
                    gathered = rule.gather(state, mean + noise, operator, decode, level)
                    state = gathered.state
                    momentum = np.float32(0.9) * momentum + update
                    wanted += np.float32(0.35) * momentum
                    applied += gathered.decoded.update
                row = {
                    "ratio": ratio, "rounds": len(updates), "noise": level, "decoder": name,
                    "cosine": round(cosine(applied, wanted), 4),
                    "progress": round(float(applied @ wanted) / float(wanted @ wanted), 4),
                    "length": round(float(np.linalg.norm(applied) / np.linalg.norm(wanted)), 4),
                }  # fmt: skip
                print(_MANY.format(**row), flush=True)
                yield row


def draw(rows: list[dict[str, Any]], loop: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = ("adjoint", "lasso 1 rms", "lasso 2 rms", "weighted lasso 1 rms", "layered")
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.4), sharey=True, constrained_layout=True)
    for axis, ratio in zip(axes, RATIOS, strict=False):
        for name in shown:
            chosen = [row for row in rows if row["decoder"] == name and row["ratio"] == ratio and row["noise"] == 0]
            axis.plot([r["round"] for r in chosen], [r["cosine"] for r in chosen], marker="o", label=name)
        axis.set(title=f"one update, r = {ratio}", xlabel="round", ylim=(0, 1))
    for index, name in enumerate(shown):
        chosen = [row for row in loop if row["decoder"] == name and row["noise"] == 0]
        axes[3].plot([r["ratio"] for r in chosen], [r["cosine"] for r in chosen], marker="o", color=f"C{index}")
    axes[3].set(title="sum of 30 rounds, error feedback", xlabel="r")
    axes[0].set_ylabel("cosine to the true update")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(shown), frameon=False)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/decoding.json"))
    parser.add_argument("--figure", type=Path, default=Path("docs/images/decoding.png"))
    parser.add_argument("--data", default="auto")
    options = parser.parse_args()
    updates = recorded(max(ROUNDS), options.data)
    with scipy.fft.set_workers(os.cpu_count() or 1):
        rows = list(one_update(updates))
        loop = list(many_updates(updates))
    result = {"command": "make decoding", "one_update": rows, "error_feedback": loop}
    options.out.write_text(json.dumps(result, indent=0) + "\n", encoding="utf-8")
    draw(rows, loop, options.figure)


if __name__ == "__main__":
    main()
