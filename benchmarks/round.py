"""Lowkey's round beside the same round written by hand in PyTorch, in one run, as ratios.

    python -m benchmarks.round [--passes 3] [--rounds 3] [--data DIRECTORY] [--pfl PYTHON] [--json FILE]

The paper's Fashion-MNIST round: 100 clients of 10 images, 5 SGD steps each. By hand: the network as anybody would write
it, two processes of one thread, weights and sums in shared memory, nothing else. Lowkey runs FL-STD on the same network
and on that of its presets (the same function), and FL-CS (r = 0.05), without evaluation, with as many workers. ``pfl``
is Apple's pfl with the same network and as many processes; PYTHON is that of an environment that has ``pfl[pytorch]``.
They take turns, so that a busy machine disturbs them alike; read the ratios, not the seconds.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing as mp
import statistics
import sys
import time
from contextlib import ExitStack
from multiprocessing.synchronize import Barrier
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

import lowkey
from benchmarks.pfl_rounds import measure as pfl_seconds
from benchmarks.pfl_rounds import plain_network
from lowkey.experiments import load_config
from lowkey.federation import drive, initial_state, round_flow
from lowkey.learning import LocalSGD, TorchTrainer, layer_sizes, model_vector
from lowkey.privacy import Ledger
from lowkey.rng import OSSecrets
from lowkey.simulation import open_runtime
from lowkey.timing import StageClock

CLIENTS, COHORT, STEPS, RATE, WORKERS = 6000, 100, 5, 0.215, 2
STAGES = ("train", "compress", "protect", "sum", "decode")


def by_hand(
    rank: int,
    model: nn.Module,
    rounds: int,
    weights: list[Tensor],
    total: list[Tensor],
    images: Tensor,
    labels: Tensor,
    cohorts: NDArray[np.int64],
    start: Barrier,
    done: Barrier,
) -> None:
    """One worker of the hand-written round: plain modules, plain optimiser."""
    torch.set_num_threads(1)
    parameters = list(model.parameters())
    for number in range(rounds):
        start.wait()
        for part in total:
            part.zero_()
        for client in cohorts[number][rank::WORKERS]:
            with torch.no_grad():
                for p, w in zip(parameters, weights, strict=True):
                    p.copy_(w)
            optimizer = torch.optim.SGD(parameters, lr=RATE)
            for _ in range(STEPS):
                optimizer.zero_grad()
                F.cross_entropy(model(images[client]), labels[client]).backward()
                optimizer.step()
            with torch.no_grad():
                for part, p, w in zip(total, parameters, weights, strict=True):
                    part.add_(p).sub_(w)
        done.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds of each in a pass")
    parser.add_argument("--data", default="auto")
    parser.add_argument("--pfl", help="python of an environment that has pfl[pytorch]")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    config = load_config("fashion-mnist/fl-std", [f"data.source={options.data}"])
    task, study = config.find_task(), config.study
    held, preset, plain = task.all_clients(study), task.model(study), plain_network()
    rounds = 1 + options.passes * options.rounds

    images = torch.stack([torch.from_numpy(held[c][0]).reshape(-1, 1, 28, 28) for c in range(CLIENTS)]).share_memory_()
    labels = torch.stack([torch.from_numpy(held[c][1]) for c in range(CLIENTS)]).share_memory_()
    clients = list(zip(images.numpy(), labels.numpy(), strict=True))
    weights = [p.detach().clone().share_memory_() for p in plain.parameters()]
    totals = [[torch.zeros_like(w).share_memory_() for w in weights] for _ in range(WORKERS)]
    order = np.random.default_rng(0).permutation(CLIENTS).reshape(-1, COHORT)
    context = mp.get_context("fork")
    start, done = (context.Barrier(WORKERS + 1) for _ in range(2))
    for rank in range(WORKERS):
        arguments = (rank, copy.deepcopy(plain), rounds, weights, totals[rank], images, labels, order, start, done)
        context.Process(target=by_hand, args=arguments, daemon=True).start()

    def hand_round() -> None:
        start.wait()
        done.wait()
        for w, *parts in zip(weights, *totals, strict=True):
            w.add_(sum(parts), alpha=1 / COHORT)

    std = lowkey.scheme("fl-std", clients=CLIENTS, cohort=COHORT)
    cs = lowkey.scheme("fl-cs", clients=CLIENTS, cohort=COHORT, codec=lowkey.ChunkedDCT(ratio=0.05))
    runs: dict[str, tuple[lowkey.Scheme, nn.Module]] = {
        "fl-std": (std, plain),
        "fl-std, preset": (std, preset),
        "fl-cs, preset": (cs.for_layers(layer_sizes(preset)), preset),
    }
    seconds: dict[str, list[list[float]]] = {name: [] for name in ("by hand", *runs, *(["pfl"] if options.pfl else []))}
    stages: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
    with ExitStack() as stack:
        states, clocks, asks = {}, {name: StageClock() for name in runs}, {}
        for name, (scheme, module) in runs.items():
            trainer = TorchTrainer(module, clients, LocalSGD(steps=STEPS, batch_size=10, learning_rate=RATE))
            states[name] = initial_state(scheme, model_vector(module))
            runtime = open_runtime(
                scheme=scheme, trainer=trainer, secrets=OSSecrets(), clock=clocks[name], workers=WORKERS
            )
            asks[name] = stack.enter_context(runtime)

        def own_round(name: str) -> None:
            ledger = Ledger(None, run="benchmark")
            flow = round_flow(runs[name][0], states[name], secrets=OSSecrets(), ledger=ledger, clock=clocks[name])
            states[name] = drive(flow, asks[name]).state

        def timed(name: str) -> float:
            began = time.perf_counter()
            hand_round() if name == "by hand" else own_round(name)
            return time.perf_counter() - began

        for name in ("by hand", *runs):  # a round that is not timed
            timed(name)
        with TemporaryDirectory() as scratch:
            stored = Path(scratch) / "data.npz"
            np.savez(stored, inputs=images.numpy(), targets=labels.numpy())
            for number in range(options.passes):
                for took in seconds.values():
                    took.append([])
                for _ in range(options.rounds):
                    for name in ("by hand", *runs):
                        seconds[name][-1].append(timed(name))
                        if name in runs:
                            stages[name].append(clocks[name].take())
                if options.pfl:
                    seconds["pfl"][-1] = pfl_seconds(options.pfl, "paper", data=stored, rounds=options.rounds)
                medians = {name: statistics.median(took[-1]) for name, took in seconds.items()}
                print(
                    f"pass {number + 1}: " + ", ".join(f"{name} {m:.2f} s" for name, m in medians.items()), flush=True
                )

    ratios: dict[str, dict[str, list[float]]] = {}
    for reference in ("by hand", "pfl") if options.pfl else ("by hand",):
        print(f"\ntimes as fast as {reference}: median and range of {options.passes} passes, {WORKERS} processes each")
        ratios[reference] = {
            name: [statistics.median(r) / statistics.median(t) for r, t in zip(seconds[reference], took, strict=True)]
            for name, took in seconds.items()
        }
        for name, found in ratios[reference].items():
            print(f"{name:>14}  {statistics.median(found):5.2f} ({min(found):.2f} to {max(found):.2f})")
    print("\nseconds by stage (train, compress and protect summed over clients, so divide by the workers)")
    for name, taken in stages.items():
        middle = {s: statistics.median(t.get(s, 0.0) for t in taken) for s in STAGES}
        print(f"{name:>14}  " + "  ".join(f"{stage} {value:.3f}" for stage, value in middle.items()))
    if options.json:
        said = ["PYTHON" if options.pfl and word == str(options.pfl) else word for word in sys.argv[1:]]
        result = {"command": "python " + " ".join(["-m benchmarks.round", *said]), "seconds": seconds,
                  "times_as_fast_as": ratios}  # fmt: skip
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
