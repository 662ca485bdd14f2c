from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.artefacts import make_artefacts
from tests.fuzz.fuzzing import fuzz, keep, peak_memory, table
from tests.fuzz.targets import make_targets

MOST_GROWTH = 200_000_000  # bytes, of the whole process


def main() -> int:
    parser = argparse.ArgumentParser(description="Throw damaged messages and files at all parsers.")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as directory:
        targets = make_targets(make_artefacts(Path(directory) / "federations"), Path(directory))
        fuzz(targets, len(targets), options.seed)
        before, began, busy = peak_memory(), time.perf_counter(), time.process_time()
        counts = fuzz(targets, options.messages, options.seed)
    grown = peak_memory() - before
    print("\n".join(table(counts)))
    print(
        f"seed {options.seed}; {time.process_time() - busy:.0f} seconds of one core ({time.perf_counter() - began:.0f} "
        f"on the clock); the process grew by {grown / 1e6:.0f} MB to {peak_memory() / 1e6:.0f} MB"
    )
    found = list(keep(counts))
    if grown > MOST_GROWTH:
        found.append(f"the process grew by {grown / 1e6:.0f} MB; {MOST_GROWTH / 1e6:.0f} MB are allowed")
    for line in found:
        print(f"FINDING {line}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
