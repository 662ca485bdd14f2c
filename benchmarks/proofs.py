"""What it costs to prove, under masks, that vectors are short: seconds and bytes, all in one thread.

    python -m benchmarks.proofs [--numbers 374 4010] [--members 100] [--bits 20] [--json FILE]

Members without data send their noise, which is what makes vectors long. Every member proves the norm of its own vector
(privacy.proofs); the server verifies all proofs at once, then again with one false proof among them, and opens the
sum. Goal: below 10 s and 500 kB for a member, and below a minute for 100 proofs. Seconds are those of the processor.

Printed beside it is what one hostile member may add, in bounds Δ of one member: where only the sum is checked, and
where it must prove its own vector. Needs the extra "proofs".
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np

from lowkey.privacy import ClientMechanism, ClientPrivacy, make_sampling
from lowkey.rng import OSSecrets
from lowkey.types import Words

SESSION, NOISE, X = bytes(32), 4.0, 41 * math.log(2)


def measure(numbers: int, members: int, bits: int) -> dict[str, float]:
    """Seconds and bytes with vectors of this many numbers; refuses to report on proofs that do not work."""
    settings = ClientPrivacy(clip_norm=1.0, noise_multiplier=NOISE, bits=bits, max_contributions=1, proofs=True)  # type: ignore[arg-type]
    privacy = ClientMechanism(settings=settings, sampling=make_sampling("all", population=members, cohort=members))
    bound, source, timer = privacy.norm_bound(numbers), OSSecrets().source(), time.process_time
    assert bound is not None
    vectors = [privacy.protect(None, length=numbers, clip_norm=1.0, source=source).value for _ in range(members)]
    blindings = [int.from_bytes(source.bits(4).tobytes(), "little") for _ in range(members)]
    bound.prove(vectors[0], blindings[0], SESSION, 0, source)  # makes the points of the curve, once in a process
    began = timer()
    proofs = {
        client: bound.prove(vector, blinding, SESSION, client, source)
        for client, (vector, blinding) in enumerate(zip(vectors, blindings, strict=True))
    }
    proven = timer()
    honest = bound.honest(proofs, SESSION)
    verified = timer()
    total: Words = np.sum(vectors, axis=0, dtype=np.uint32)
    total &= np.uint32(2**bits - 1)
    opened = bound.opens(proofs.values(), total, sum(blindings))
    done = timer()
    liar = members // 3
    proofs[liar] = proofs[0][:32] + proofs[liar][32:]
    searched = timer()
    others = bound.honest(proofs, SESSION)
    found = timer()
    if len(honest) != members or not opened or others != honest - {liar}:
        raise SystemExit("an honest proof was refused or a false one passed: nothing here is worth reading")
    return {
        "numbers": numbers,
        "bits": bits,
        "members": members,
        "bytes of a proof": len(proofs[0]),
        "seconds to prove, each": (proven - began) / members,
        "seconds to verify all": verified - proven,
        "seconds to verify all, with one liar": found - searched,
        "seconds to open the sum": done - verified,
        "a liar may add, in Δ: sum checked": _by_the_sum(privacy, numbers, members),
        "a liar may add, in Δ: proven": math.sqrt(bound.square) / privacy.encoding(numbers).sensitivity,
    }


def _by_the_sum(privacy: ClientMechanism, numbers: int, survivors: int) -> float:
    """What the check of the sum leaves beside the noise of the others: docs/adr/0017."""
    encoding = privacy.encoding(numbers)
    noise, most = survivors * encoding.share_std**2, survivors * encoding.sensitivity
    spread = 2 * math.sqrt(noise * (noise * numbers + 2 * most**2) * X) + 2 * noise * X
    return math.sqrt(most**2 + spread + encoding.share_std**2 * numbers) / encoding.sensitivity


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numbers", type=int, nargs="+", default=[374, 4010])
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--bits", type=int, default=20, choices=(16, 20, 24))
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    results = []
    for numbers in options.numbers:
        results.append(measure(numbers, options.members, options.bits))
        print("\n".join(f"{name:>38}  {value:,.4g}" for name, value in results[-1].items()), end="\n\n", flush=True)
    if options.json:
        table = {"command": "python -m benchmarks.proofs", "results": results}
        options.json.write_text(json.dumps(table, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
