"""The measured tables of docs/statistics.md and docs/evaluation.md, from results/statistics.json and evaluation.json.

python tools/analytics_tables.py [--check]
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from bisect import bisect_left
from pathlib import Path
from typing import Any

import numpy as np

from lowkey.analytics import Frequencies, Histogram, ScoreQuestion, Total, error_of, well_binned
from lowkey.privacy import ClientPrivacy, noise_shares

DOCS, RESULTS = Path("docs"), Path("results")
NAMES = {"synthetic": "synthetic, 5,011 hospitals", "sih-sus": "SIH/SUS, 410 hospitals"}
MODELS = {
    "hospital/sih-sus/private-persons": "every admission at the 10 largest hospitals of SIH/SUS",
    "hospital/sih-sus/private": "the 410 hospitals of SIH/SUS",
    "hospital/synthetic/private": "5,011 synthetic hospitals",
}
BANDS = ("0.05 to 0.1", "0.1 to 0.2", "0.2 to 0.333", "0.333 to 0.5", "0.5 to 1", "1/3 or more")
WITHIN = 0.05  # half of an interval's width


def codes(results: dict[str, Any]) -> list[str]:
    """Which codes are found, by how many clients hold them."""
    heads = ("5–10 %", "10–20 %", "20–33 %", "33–50 %", "above 50 %", "**a third or more**")
    made = [
        f"| clients | ε | codes that are | how many | {' | '.join(heads)} |",
        "|---|---|---|---" + "|---" * len(heads) + "|",
    ]
    kinds = (
        ("public list", "kept", "not ruled out"),
        ("public list", "likely", "likely"),
        ("unknown vocabulary", "named", "named, no list"),
    )
    for row in results["rows"]:
        listed = results["codes"][row["clients"]]["all"]
        for part, kind, words in kinds:
            found = row[part]
            recalls = [f"{found[f'recall of {kind}'][band]:.3f}" for band in BANDS]
            recalls[-1] = f"**{found[f'recall of {kind}'][BANDS[-1]]:.4f}**"
            many = f"{found[kind]:,.0f}" + (f" of {listed:,}" if part == "public list" else "")
            made.append(f"| {NAMES[row['clients']]} | {row['epsilon']:g} | {words} | {many} | {' | '.join(recalls)} |")
    return made


def shares(results: dict[str, Any]) -> list[str]:
    """How far shares of clients are off, and whether intervals hold them."""
    made = [
        "| clients | ε | noise in each sum | mean error of a code's share | intervals that hold it |",
        "|---|---|---|---|---|",
    ]
    for row in results["rows"]:
        found = row["public list"]
        made.append(
            f"| {NAMES[row['clients']]} | {row['epsilon']:g} | {row['noise in a sum']:.1f} | "
            f"{found['mean absolute error of shares']:.3f} | {100 * found['intervals that hold the share']:.1f} % |"
        )
    return made


def quantiles(results: dict[str, Any]) -> list[str]:
    """How far quantiles are off."""
    at = ("0.01", "0.25", "0.5", "0.75", "0.99")
    made = [f"| clients | column | ε | {' | '.join(at)} |", "|---|---|---" + "|---" * len(at) + "|"]
    for column, label in (("age", "age, 0 to 110"), ("mrci", "medication score, 0 to 60")):
        for row in results["rows"]:
            if column in row:
                errors = " | ".join(f"{row[column][f'absolute error of quantile {one}']:.1f}" for one in at)
                made.append(f"| {NAMES[row['clients']]} | {label} | {row['epsilon']:g} | {errors} |")
    return made


def needed(results: dict[str, Any]) -> list[str]:
    """How many units it takes to know, within 0.05, a share of a quarter, by the noise of one question."""
    texts = tuple(f"code {number}" for number in range(200))
    asked: dict[str, tuple[Histogram | Frequencies, list[Any]]] = {
        "a bin of a histogram": (Histogram(name="share", column="a", edges=(0, 1, 2)), [0.5, 1.5, 1.5, 1.5]),
        "texts, one in a row": (
            Frequencies(name="share", column="a", vocabulary=texts),
            [(texts[one > 0],) for one in range(4)],
        ),
        **{
            f"{most} codes of a unit": (
                Frequencies(name="share", column="a", vocabulary=texts, among="units", most=most),
                [texts[one > 0 :][:most] for one in range(4)],
            )
            for most in (10, 100)
        },
    }  # of four units one has the first bin or entry
    made = [f"| ε for one question | {' | '.join(asked)} |", "|---" * (1 + len(asked)) + "|"]
    for row in results["rows"]:
        if row["clients"] == "synthetic":
            counts = (_enough(question, column, row["noise in a sum"]) for question, column in asked.values())
            made.append(f"| {row['epsilon']:g} | {' | '.join(f'{count:,}' for count in counts)} |")
    return made


def _enough(question: Histogram | Frequencies, column: list[Any], noise: float) -> int:
    """The fewest units with an interval of at most 0.1, in steps of ten."""
    cells = np.empty(len(column), float if isinstance(question, Histogram) else object)
    cells[:] = column
    mean = question.vectors({"a": cells}, np.arange(len(column) + 1)).mean(axis=0)

    def width(units: int) -> float:
        (table,) = question.read(Total(value=units * mean, noise=noise, units=units)).tables.values()
        place = int(np.argmin(np.abs(np.array(table["share"]) - 1 / len(column))))
        return float(table["high"][place] - table["low"][place])

    return 10 * bisect_left(range(10_000), True, lo=1, key=lambda tens: width(10 * tens) <= 2 * WITHIN)


def evaluation(results: dict[str, Any]) -> list[str]:
    """How far the AUROC and the slope are off, and whether intervals hold them."""
    made = [
        "| protected, judged by | ε of the evaluation | bins | error of the AUROC: of 5, of all | half an interval | "
        "held | error of the slope: of 5, of all | held |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in results["rows"]:
        area, slope = row["auroc"], row["calibration_slope"]
        held = [f"{one['covered']}, {one['covered_population']} of {one['evaluations']}" for one in (area, slope)]
        errors = [f"{one['five_runs']:.3f}, {one['mean_absolute_error']:.3f}" for one in (area, slope)]
        made.append(
            f"| {MODELS[row['preset']]} | {row['epsilon']:g} | {row['question']['bins']} | {errors[0]} | "
            f"{area['interval'] / 2:.3f} | {held[0]} | {errors[1]} | {held[1]} |"
        )
    return made


def biases(results: dict[str, Any]) -> list[str]:
    """By how much each measure is too large or too small on average."""
    names = ("auroc", "sensitivity", "specificity", "prevalence", "brier", "calibration_slope", "calibration_intercept")
    heads = " | ".join(name.replace("calibration_", "").replace("auroc", "AUROC") for name in names)
    made = [f"| protected, judged by | ε | cut | {heads} |", "|---|---|---" + "|---" * len(names) + "|"]
    for row in results["rows"]:
        found = " | ".join(f"{round(row[name]['bias'], 3) + 0:+.3f}".replace("-", "−") for name in names)
        made.append(f"| {MODELS[row['preset']]} | {row['epsilon']:g} | {100 * row['cut']:.0f} % | {found} |")
    return made


def planned(results: dict[str, Any]) -> list[str]:
    """The error of the AUROC to expect of evaluations within a run, by what is set aside for them."""
    rows = [row for row in results["rows"] if row["epsilon"] == 1]
    heads = " | ".join(MODELS[row["preset"]] for row in rows)
    made = [f"| ε of the run | evaluations | `privacy.asking` | {heads} |", "|---|---|---" + "|---" * len(rows) + "|"]
    for epsilon, times, share in itertools.product((1.0, 3.0), (1, 5), (0.1, 0.3)):
        errors = " | ".join(f"{_expected(row, epsilon, times, share):.3f}" for row in rows)
        made.append(f"| {epsilon:g} | {times} | {share:g} | {errors} |")
    return made


def _expected(row: dict[str, Any], epsilon: float, times: int, share: float) -> float:
    units, clients = row["question"]["units"], 10 if row["unit"] == "person" else row["question"]["units"]
    asked = ClientPrivacy(clip="normalise", epsilon=epsilon, questions=times, asking=share)
    z = float(asked.resolve(clients=clients, cohort=clients, rounds=20).asking_noise)
    noise = z * math.sqrt(clients / noise_shares(clients, dropouts=0.1, colluders=0.1).honest)
    question = ScoreQuestion(rows=row["question"]["rows"])
    public = {"units": units, "positives": units * question.rows * question.prevalence, "noise": noise}
    return error_of(well_binned(question, **public), **public)


TABLES = {
    "statistics": {"CODES": codes, "SHARES": shares, "QUANTILES": quantiles, "NEEDED": needed},
    "evaluation": {"MEASURED": evaluation, "BIAS": biases, "PLANNED": planned},
}


def filled(name: str) -> tuple[str, str]:
    """A page as it is, and with the tables of its results."""
    page = (DOCS / f"{name}.md").read_text("utf-8")
    results = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    made = page
    for key, table in TABLES[name].items():
        begin, end = f"<!-- {key} -->\n", f"<!-- /{key} -->\n"
        if begin not in made or end not in made:
            raise SystemExit(f"docs/{name}.md has no marks for {key}")
        head, _, rest = made.partition(begin)
        made = head + begin + "".join(f"{line}\n" for line in ["", *table(results), ""]) + end + rest.partition(end)[2]
    return page, made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether the pages have the figures")
    arguments = parser.parse_args()
    for name in TABLES:
        page, made = filled(name)
        if made == page:
            continue
        if arguments.check:
            sys.exit(f"docs/{name}.md differs from results/{name}.json; run python tools/analytics_tables.py")
        (DOCS / f"{name}.md").write_text(made, "utf-8")


if __name__ == "__main__":
    main()
