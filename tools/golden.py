"""Golden runs: fingerprints of seeded and replayed runs, to see that a change of the code changed no result.

    python tools/golden.py record golden.json     # before a change
    python tools/golden.py compare golden.json    # after it: every difference is named, exit code 1 if there is one

A fingerprint holds hashes of the final model and of the server's state, the metrics of every round but its timings, and
the ledger but for the random name of the run. Runs without privacy are seeded; private ones replay their secrets, so
they claim nothing. Bits depend on the processor and on library versions: compare on the machine that recorded.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from lowkey.deployment import run_locally
from lowkey.experiments import RunDirectory, load_config
from lowkey.flower import REPLAY_VARIABLE
from lowkey.privacy import Ledger
from lowkey.rng import ReplaySecrets
from lowkey.simulation import run

IMAGES = [
    "federation.clients=400",
    "model.filters=[2, 4]",
    "model.hidden=8",
    "federation.cohort=8",
    "runtime.workers=0",
]
HOSPITALS = [
    "data.scale=0.001", "federation.clients=5", "model.hidden=4", "federation.cohort=3", "schedule.rounds=3",
    "runtime.workers=0",
]  # fmt: skip
CHUNKS = ["codec.chunks=3", "codec.ratio=0.1"]
NOISE = ["privacy.noise_multiplier=1.0", "privacy.epsilon=1000.0", "schedule.rounds=4"]
NODES = [*IMAGES, "data.source=bundled", "schedule.rounds=1"]

CASES: dict[str, tuple[str, list[str]]] = {
    "fl-std": ("demo/fl-std", [*IMAGES, "schedule.rounds=4"]),
    "fl-std, momentum, skewed": (
        "demo/fl-std",
        [*IMAGES, "schedule.rounds=3", "server.optimiser=momentum", "server.rate=0.5", "data.division=dirichlet"],
    ),
    "fl-rnd": ("demo/fl-std", [*IMAGES, "schedule.rounds=3", "federation.scheme=fl-rnd", "codec.ratio=0.1"]),
    "fl-rnd, momentum": (
        "demo/fl-std",
        [
            *IMAGES,
            "schedule.rounds=3",
            "federation.scheme=fl-rnd",
            "codec.ratio=0.1",
            "server.optimiser=momentum",
            "server.momentum=0.5",
        ],
    ),
    "fl-freq": ("demo/fl-std", [*IMAGES, "schedule.rounds=3", "federation.scheme=fl-freq", "codec.ratio=0.1"]),
    "fl-cs": ("demo/fl-cs", [*IMAGES, *CHUNKS, "schedule.rounds=4"]),
    "fl-cs, lasso": ("demo/fl-cs", [*IMAGES, *CHUNKS, "schedule.rounds=3", "decoder.kind=lasso"]),
    "fl-cs, adjoint, signs": (
        "demo/fl-cs",
        [*IMAGES, *CHUNKS, "schedule.rounds=3", "decoder.kind=adjoint", "codec.signs=true"],
    ),
    "mortality, fl-std": ("hospital/synthetic/fl-std", HOSPITALS),
    "mortality, fl-cs": ("hospital/synthetic/fl-cs-r0.2", [*HOSPITALS, "codec.chunks=3"]),
    "fl-std-dp": ("demo/fl-std-dp", [*IMAGES, *NOISE]),
    "fl-rnd-dp": ("demo/fl-std-dp", [*IMAGES, *NOISE, "federation.scheme=fl-rnd-dp", "codec.ratio=0.1"]),
    "fl-freq-dp": ("demo/fl-std-dp", [*IMAGES, *NOISE, "federation.scheme=fl-freq-dp", "codec.ratio=0.1"]),
    "fl-cs-dp": ("demo/fl-cs-dp", [*IMAGES, *CHUNKS, *NOISE]),
    "fl-cs-dp, 16 bits": ("demo/fl-cs-dp", [*IMAGES, *CHUNKS, *NOISE, "privacy.bits=16"]),
    "fl-cs-dp, adaptive": (
        "demo/fl-cs-dp",
        [*IMAGES, *CHUNKS, *NOISE, "privacy.clip=adaptive", "federation.cohort=40"],
    ),
    "fl-cs-dp, secret coins": (
        "demo/fl-cs-dp",
        [*IMAGES, *CHUNKS, *NOISE, "privacy.sampling=secret_poisson", "privacy.roster=40"],
    ),
    "fl-cs-dp, fixed": ("demo/fl-cs-dp", [*IMAGES, *CHUNKS, *NOISE, "privacy.sampling=fixed"]),
    "fl-cs-dp, masked": ("demo/fl-cs-dp", [*IMAGES, *CHUNKS, *NOISE, "privacy.aggregation=masked"]),
    "mortality, fl-cs-dp": (
        "hospital/synthetic/fl-cs-dp-r0.2",
        [*HOSPITALS, "codec.chunks=3", "privacy.clip_norm=0.1"],
    ),
}
DEPLOYED: dict[str, tuple[str, list[str]]] = {
    "flower, fl-cs": ("demo/fl-cs", [*NODES, *CHUNKS]),
    "flower, fl-cs-dp": (
        "demo/fl-cs-dp",
        [*NODES, *CHUNKS, *NOISE[:2], "privacy.dropouts=0.0", "privacy.colluders=0.0"],
    ),
}
_TRAFFIC = ("protocol_bytes", "transport_bytes")


def fingerprint(path: Path) -> dict[str, Any]:
    """What a finished run has left in its directory, without names and times that differ from run to run."""
    directory = RunDirectory.open(path)
    state = directory.load_checkpoint(directory.ledger())
    directory.unlock()
    assert state is not None
    server = {**state.gathered, **state.optimiser, **state.average}
    ledger = path / "ledger.jsonl"
    entries = Ledger.read(ledger).entries if ledger.exists() else ()
    return {
        "model": hashlib.sha256(state.weights.tobytes()).hexdigest(),
        "server": {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in sorted(server.items())},
        "metrics": [_without_times(line) for line in directory.metrics()],
        "ledger": [[e.round, e.attempt, e.state, e.event.to_json()] for e in entries],
    }


def _without_times(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != "seconds" and not key.startswith(_TRAFFIC)}


def run_all(*, flower: bool) -> dict[str, Any]:
    """Fingerprints of all runs."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for number, (case, (preset, changes)) in enumerate(CASES.items()):
            run(load_config(preset, changes), directory / str(number), secrets=ReplaySecrets(7))
            found[case] = fingerprint(directory / str(number))
            print(f"{case:28} {found[case]['model'][:16]}", file=sys.stderr)
        for case, (preset, changes) in DEPLOYED.items() if flower else ():
            config = load_config(preset, changes, nodes=3)
            run_locally(config, directory / case, environment={REPLAY_VARIABLE: "7"})
            found[case] = fingerprint(directory / case)
            print(f"{case:28} {found[case]['model'][:16]}", file=sys.stderr)
    return found


def differences(before: Any, after: Any, where: str = "") -> list[str]:
    """Dotted names of all that differs between two nested tables."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [*before, *(key for key in after if key not in before)]
        return [d for key in keys for d in differences(before.get(key), after.get(key), f"{where}{key}: ")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [d for number, (b, a) in pairs for d in differences(b, a, f"{where}{number}: ")]
    return [] if before == after else [f"{where}{before} → {after}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--no-flower", action="store_true", help="leave out the runs on real nodes")
    options = parser.parse_args()
    found = json.loads(json.dumps(run_all(flower=not options.no_flower)))
    if options.what == "record":
        options.file.write_text(json.dumps(found, separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")
        return
    recorded = json.loads(options.file.read_text(encoding="utf-8"))
    if options.no_flower:
        recorded = {case: recorded[case] for case in recorded if case not in DEPLOYED}
    changed = differences(recorded, found)
    print("\n".join(changed) or f"all {len(found)} runs are the same, bit for bit")
    sys.exit(1 if changed else 0)


if __name__ == "__main__":
    main()
