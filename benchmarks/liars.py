"""What one hostile member may add to a sum unseen, in bounds Δ of one member: the table of docs/adr/0017.

    python -m benchmarks.liars

Computed from the settings, with all members surviving: the liar leaves out its noise, the others send zeros, and half
of such lies pass. "before" is the check ‖Y‖ ≤ tΔ + 6σ√d of Lowkey 0.2; "proven" is with privacy.proofs.
"""

from __future__ import annotations

import math

from lowkey.experiments import load_config
from lowkey.privacy import (
    ClientMechanism,
    ClientPrivacy,
    Privacy,
    make_sampling,
    most_contributors,
    noisy_square,
)

HALF, TOO_LONG = 2.0**-41, 2.0**-64
EVERYBODY = ["federation.cohort=410", "schedule.rounds=25", "privacy.sampling=all"]
PRESETS: list[tuple[str, str, list[str], int]] = [
    ("fashion-mnist/fl-cs-dp-r0.05", "fashion-mnist/fl-cs-dp-r0.05", [], 83_200),
    (
        "the same, 1,000 asked by secret coins",
        "fashion-mnist/fl-cs-dp-r0.05",
        ["privacy.sampling=secret_poisson", "privacy.roster=1000"],
        83_200,
    ),
    ("fashion-mnist/fl-std-dp", "fashion-mnist/fl-std-dp", [], 1_663_370),
    ("hospital/sih-sus/fl-cs-dp-r0.05", "hospital/sih-sus/fl-cs-dp-r0.05", [], 5_800),
    ("the same, everybody in 25 rounds", "hospital/sih-sus/fl-cs-dp-r0.05", EVERYBODY, 5_800),
    ("hospital/diabetes130/fl-cs-dp-r0.05", "hospital/diabetes130/fl-cs-dp-r0.05", [], 2_400),
    ("demo/fl-cs-dp", "demo/fl-cs-dp", [], 2_720),
]


def row(name: str, privacy: Privacy, numbers: int) -> str:
    assert isinstance(privacy, ClientMechanism)
    encoding, members = privacy.encoding(numbers), privacy.sampling.roster_size
    bound, noise = encoding.sensitivity, encoding.total_std(members)
    others = (members - 1) * encoding.share_std**2 * encoding.wire_length
    contributors = min(members, most_contributors(privacy.sampling.expected_size, HALF))
    limits = [
        (members * bound + 6 * noise * math.sqrt(numbers)) ** 2 - others,
        noisy_square(contributors * bound, noise, encoding.wire_length, HALF) - others,
        noisy_square(bound, encoding.share_std, encoding.wire_length, TOO_LONG),
    ]
    before, now, proven = (round(math.sqrt(limit) / bound) for limit in limits)
    return f"| {name} | {members:,} | {numbers:,} | {before:,} | **{now}** | {proven} |"


def main() -> None:
    print("| setting | members | numbers | before | now | proven |\n|---|---|---|---|---|---|")
    for name, preset, changes, numbers in PRESETS:
        print(row(name, load_config(preset, changes).resolve().scheme().privacy, numbers))
    for numbers in (374, 4_010):
        settings = ClientPrivacy(clip_norm=1.0, noise_multiplier=4.0, bits=20, max_contributions=1)
        sampling = make_sampling("all", population=100, cohort=100)
        print(row(f"{numbers:,} numbers, z = 4", ClientMechanism(settings=settings, sampling=sampling), numbers))


if __name__ == "__main__":
    main()
