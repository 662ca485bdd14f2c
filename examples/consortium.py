"""A consortium of hospitals asks what ε ≤ 1 would cost: five ways to train one network, side by side.

    python examples/consortium.py [--source sih-sus] [--data DIRECTORY] [--out consortium]     about ten minutes
    python examples/consortium.py --curve    AUROC against ε and the number of hospitals: about an hour

The first trains on all data in one place, then in a federation without privacy and with ε ≤ 1, each with whole and with
compressed updates; it prints a table and writes a report with pictures. The second deals the same patients to more and
more hospitals. Both go on where they were stopped. docs/hospital.md tells what to make of the results.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from lowkey.cli.output import human_bytes, human_epsilon
from lowkey.cli.run import load_config, play
from lowkey.experiments import RunDirectory
from lowkey.report import write_report

ROWS = ("central", "fl-std", "fl-cs-r0.05", "fl-std-dp", "fl-cs-dp-r0.05")
PRIVATE = ("fl-std-dp", "fl-cs-dp-r0.05")
HOSPITALS, EPSILONS = (100, 400, 1600, 5000), (1, 2, 4, 8)


def played(preset, directory, *changes):
    """The summary of a run, which is played first, or to its end, if need be."""
    if (directory / "result.json").exists():
        return RunDirectory.open(directory).summary()
    print(f"{directory.name}:", flush=True)
    begun = (directory / "config.toml").exists()
    return play(load_config(preset, changes), directory, resume=begun)


def compare(source, out, changes):
    """All ways to train on one source."""
    directories = [out / row for row in ROWS]
    for row, directory in zip(ROWS, directories, strict=True):
        played(f"hospital/{source}/{row}", directory, *changes)
    summaries, _ = write_report(directories, out, title=f"What ε ≤ 1 costs a consortium: {source}")
    print(f"\n{'':>16}  {'AUROC':>6}  {'balanced accuracy':>17}  {'ε':>6}  {'upload of a round':>17}")
    for row, found in zip(ROWS, summaries, strict=True):
        scores = f"{found['final_auroc']:6.3f}  {found['final_balanced_accuracy']:17.3f}"
        sent = "–" if row == "central" else human_bytes(found["bytes_up_per_client"])
        print(f"{row:>16}  {scores}  {human_epsilon(found['epsilon_pld'], 3):>6}  {sent:>17}")
    print(f"\nreport: {out / 'report.html'}")


def curve(out, changes):
    """AUROC of private schemes against ε and the number of virtual hospitals; patients are those of SIH/SUS."""
    points = []
    for clients in HOSPITALS:
        for scheme in (*PRIVATE, "fl-std"):
            for epsilon in EPSILONS if scheme in PRIVATE else (None,):
                private = () if epsilon is None else (f"privacy.target_epsilon={epsilon}",)
                found = played(
                    f"hospital/sih-sus/{scheme}",
                    out / f"{scheme}_{clients}-hospitals" / (f"epsilon-{epsilon}" if epsilon else "open"),
                    "data.partition=iid",
                    f"data.clients={clients}",
                    "evaluation.every=10",
                    *private,
                    *changes,
                )
                points.append(
                    {
                        "scheme": scheme,
                        "hospitals": clients,
                        "epsilon": found["epsilon_pld"],
                        "auroc": round(found["final_auroc"], 4),
                        "balanced_accuracy": round(found["final_balanced_accuracy"], 4),
                        "bytes_up_per_client": found["bytes_up_per_client"],
                    }
                )
    return points


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", choices=("sih-sus", "diabetes130"), default="sih-sus")
    parser.add_argument("--data", help="file or directory of the source; unset: as LOWKEY_HOSPITAL_DATA says")
    parser.add_argument("--out", type=Path, default=Path("consortium"))
    parser.add_argument("--curve", action="store_true")
    options = parser.parse_args()
    changes = [f"data.source={json.dumps(options.data)}"] if options.data else []
    if options.curve:
        points = curve(options.out / "curve", changes)
        (options.out / "curve.json").write_text(json.dumps(points, indent=1) + "\n", encoding="utf-8")
    else:
        compare(options.source, options.out, changes)


if __name__ == "__main__":
    main()
