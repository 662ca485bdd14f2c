"""Lowkey's round beside the same round written by hand in PyTorch, in one run, as ratios.

    python benchmarks/round.py [--rounds 3] [--data DIRECTORY]

The paper's Fashion-MNIST round: 100 clients of 10 images, 5 SGD steps each. By hand: two processes of one thread,
weights and sums in shared memory, nothing else. Lowkey runs FL-STD and FL-CS (r = 0.05) without evaluation, with as
many workers. They take turns, so that a busy machine disturbs them alike; read the ratio, not the seconds.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing as mp
import statistics
import time
from multiprocessing.synchronize import Barrier

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

import lowkey
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
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds of each, after one that is not")
    parser.add_argument("--data", default="auto")
    options = parser.parse_args()
    config = load_config("fashion-mnist/fl-std", [f"data.source={options.data}"])
    task, study = config.find_task(), config.study
    clients, module = task.all_clients(study), task.model(study)
    first = model_vector(module)
    rounds = 1 + options.rounds

    images = torch.stack([torch.from_numpy(clients[c][0]) for c in range(CLIENTS)]).share_memory_()
    labels = torch.stack([torch.from_numpy(clients[c][1]) for c in range(CLIENTS)]).share_memory_()
    weights = [p.detach().clone().share_memory_() for p in module.parameters()]
    totals = [[torch.zeros_like(w).share_memory_() for w in weights] for _ in range(WORKERS)]
    order = np.random.default_rng(0).permutation(CLIENTS).reshape(-1, COHORT)
    context = mp.get_context("fork")
    start, done = (context.Barrier(WORKERS + 1) for _ in range(2))
    arguments = (copy.deepcopy(module), rounds, weights)
    for rank in range(WORKERS):
        rest = (totals[rank], images, labels, order, start, done)
        context.Process(target=by_hand, args=(rank, *arguments, *rest), daemon=True).start()

    def hand_round() -> None:
        start.wait()
        done.wait()
        for w, *parts in zip(weights, *totals, strict=True):
            w.add_(sum(parts), alpha=1 / COHORT)

    trainer = TorchTrainer(module, clients, LocalSGD(steps=STEPS, batch_size=10, learning_rate=RATE))
    sizes = layer_sizes(module)
    schemes = {
        "fl-std": lowkey.scheme("fl-std", clients=CLIENTS, cohort=COHORT),
        "fl-cs r=0.05": lowkey.scheme(
            "fl-cs", clients=CLIENTS, cohort=COHORT, codec=lowkey.ChunkedDCT(ratio=0.05)
        ).for_layers(sizes),
    }
    seconds: dict[str, list[float]] = {"by hand": [], **{name: [] for name in schemes}}
    stages: dict[str, list[dict[str, float]]] = {name: [] for name in schemes}
    states = {name: initial_state(scheme, first.copy()) for name, scheme in schemes.items()}
    clocks = {name: StageClock() for name in schemes}
    opened = {
        name: open_runtime(
            scheme=scheme, trainer=trainer, secrets=OSSecrets(), clock=clocks[name], workers=WORKERS
        )
        for name, scheme in schemes.items()
    }  # fmt: skip
    asks = {name: runtime.__enter__() for name, runtime in opened.items()}
    for number in range(rounds):
        began = time.perf_counter()
        hand_round()
        seconds["by hand"].append(time.perf_counter() - began)
        for name, scheme in schemes.items():
            began = time.perf_counter()
            flow = round_flow(
                scheme, states[name], secrets=OSSecrets(), ledger=Ledger(None, run="benchmark"), clock=clocks[name]
            )
            states[name] = drive(flow, asks[name]).state
            seconds[name].append(time.perf_counter() - began)
            stages[name].append(clocks[name].take())
        print(f"round {number}: " + ", ".join(f"{name} {took[-1]:.2f} s" for name, took in seconds.items()), flush=True)
    for runtime in reversed(opened.values()):
        runtime.__exit__(None, None, None)

    print(f"\nmedian of {options.rounds} rounds, {WORKERS} workers")
    for name, took in seconds.items():
        ratios = [t / h for t, h in zip(took[1:], seconds["by hand"][1:], strict=True)]
        print(f"{name:>14}  {statistics.median(took[1:]):6.2f} s  {statistics.median(ratios):5.2f} of by hand")
    print("\nseconds by stage (train, compress and protect summed over clients, so divide by the workers)")
    for name, taken in stages.items():
        middle = {s: statistics.median(t.get(s, 0.0) for t in taken[1:]) for s in STAGES}
        print(f"{name:>14}  " + "  ".join(f"{stage} {value:.3f}" for stage, value in middle.items()))


if __name__ == "__main__":
    main()
