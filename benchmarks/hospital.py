"""Memory of the mortality task at the paper's full scale, and whether round time depends on the rows held.

    python -m benchmarks.hospital [--rounds 7] [--out results/hospital/scale.json]

Synthetic hospitals, for FL-STD and FL-CS (r = 0.05): 1,017,386 training rows of 7,280 sparse features at 5,011 clients,
254,347 test rows, 100 clients a round.

Memory: ``lowkey run`` in a process of its own, three rounds with an evaluation each. Ten times a second the
proportional set sizes (PSS) of it and all its workers are added up, so that a page that they share counts once; the
largest sum is reported, and what is shorter than a tenth of a second may be missed. The private memory of the workers
is given, too: a copied table would be part of it.

Time: in another process, rounds at full scale and at a tenth of it (501 clients, a tenth of training and test rows)
take turns, so that a busy machine disturbs them alike; what is reported is the median ratio of a round to its
neighbour. Evaluation reads all test rows, so that it does depend on their number; the rest of a round must not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from lowkey.experiments import build, load_config
from lowkey.federation import drive, initial_state, round_flow
from lowkey.privacy import Ledger
from lowkey.rng import OSSecrets
from lowkey.simulation import open_runtime
from lowkey.timing import StageClock

PRESETS = ("hospital/synthetic/fl-std", "hospital/synthetic/fl-cs-r0.05")
CLIENTS = {1.0: 5011, 0.1: 501}
GIBIBYTE = 2**30


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [pid, *(each for child in below for each in tree(int(child)))]


def held(pid: int, *kinds: str) -> int:
    """Bytes of a process, of these kinds together."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return 1024 * sum(int(rollup.split(f"\n{kind}:")[1].split()[0]) for kind in kinds)


def memory(preset: str) -> tuple[int, int]:
    """Peaks, in bytes, of all processes of a run together and of what its workers hold for themselves."""
    together = copies = 0
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "lowkey", "run", preset, "--rounds", "3", "--quiet", "--json"]
        run = subprocess.Popen([*command, "--out", f"{directory}/run"], stdout=subprocess.DEVNULL)
        while run.poll() is None:
            try:
                first, *workers = tree(run.pid)
                together = max(together, sum(held(pid, "Pss") for pid in (first, *workers)))
                copies = max(copies, sum(held(pid, "Private_Clean", "Private_Dirty") for pid in workers))
            except (OSError, IndexError):  # it has just ended
                pass
            time.sleep(0.1)
        if run.returncode:
            raise SystemExit(f"{preset} failed with exit code {run.returncode}")
    return together, copies


def round_ratios(preset: str, rounds: int) -> dict[str, float]:
    """Median ratios: of rounds at full scale to those at a tenth, without and with evaluation; of evaluation to round.

    The first round of each is not counted.
    """
    taken: dict[float, list[tuple[float, float]]] = {scale: [] for scale in CLIENTS}
    players = {}
    with ExitStack() as stack:
        for scale, clients in CLIENTS.items():
            changes = [f"data.scale={scale}", f"federation.clients={clients}"]
            experiment, clock = build(load_config(preset, changes)), StageClock()
            runtime = open_runtime(
                scheme=experiment.scheme, trainer=experiment.trainer, secrets=OSSecrets(), clock=clock, workers="auto"
            )
            players[scale] = experiment, stack.enter_context(runtime), clock
        states = {scale: initial_state(e.scheme, e.initial_weights) for scale, (e, _, _) in players.items()}
        for number in range(1 + rounds):
            for scale in sorted(CLIENTS, reverse=number % 2 == 0):
                experiment, ask, clock = players[scale]
                ledger = Ledger(None, run="benchmark")
                began = time.perf_counter()
                flow = round_flow(experiment.scheme, states[scale], secrets=OSSecrets(), ledger=ledger, clock=clock)
                states[scale] = drive(flow, ask).state
                between = time.perf_counter()
                experiment.evaluator(states[scale].weights)
                taken[scale].append((between - began, time.perf_counter() - between))
    pairs = list(zip(taken[1.0], taken[0.1], strict=True))[1:]
    return {
        "round_full_scale_over_tenth": statistics.median(full[0] / tenth[0] for full, tenth in pairs),
        "with_evaluation_full_scale_over_tenth": statistics.median(sum(full) / sum(tenth) for full, tenth in pairs),
        "evaluation_over_round_at_full_scale": statistics.median(full[1] / full[0] for full, _ in pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds of each scale")
    parser.add_argument("--out", type=Path, default=Path("results/hospital/scale.json"))
    parser.add_argument("--times", choices=PRESETS, help="time one preset and print it")
    options = parser.parse_args()
    if options.times:
        print(
            json.dumps({name: round(ratio, 2) for name, ratio in round_ratios(options.times, options.rounds).items()})
        )
        return
    rows = []
    for preset in PRESETS:
        together, copies = memory(preset)
        command = [sys.executable, "-m", "benchmarks.hospital", "--times", preset, "--rounds", str(options.rounds)]
        timed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        row = {"preset": preset, "rounds": options.rounds,
               "peak_gibibytes_of_all_processes": round(together / GIBIBYTE, 2),
               "peak_gibibytes_private_to_workers": round(copies / GIBIBYTE, 2),
               **json.loads(timed.stdout)}  # fmt: skip
        rows.append(row)
        print(json.dumps(row), flush=True)
    content = {"command": "python -m benchmarks.hospital", "rows": rows}
    options.out.write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
