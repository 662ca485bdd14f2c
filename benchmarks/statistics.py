"""Private statistics: which codes are found, and how far frequencies, medians and ranges are off, against ε.

    python -m benchmarks.statistics [synthetic sih-sus] [--runs 5] [--out results/statistics.json]

Clients are the unit; δ = 1e-5, noise for a tenth of dropouts and a tenth of colluders, nobody drops out. The noise is
that of one release of all the budget, drawn as a normal; frequent codes of an unknown vocabulary take two releases of
half of it each, the second of which confirms the candidates of the first. SIH/SUS is read from the directory that the
environment variable LOWKEY_HOSPITAL_DATA names; the codes of its file stand in for the public table. Drugs of the
synthetic hospitals are spelled with seven characters of a hash, so that neighbours in the list share no prefix.

A code of the public list is *kept* if its interval does not rule out that a third of the clients hold it, and *likely*
if its estimate is at least a sixth. Recall is the share of the codes held by so many clients that are kept, likely, or,
without a list, named.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowkey.analytics import Columns, Frequencies, FrequentCodes, Quantiles, Question, Total
from lowkey.privacy import ClientMechanism, ClientPrivacy
from lowkey.rng import generator
from lowkey.tasks.mortality import load_admissions, make_synthetic_hospital_data

BANDS = ((0.05, 0.1), (0.1, 0.2), (0.2, 1 / 3), (1 / 3, 0.5), (0.5, 1.01), (1 / 3, 1.01))
EPSILONS = (0.2, 1.0, 3.0)
PLAIN = 9
"""Columns of the synthetic features before those of drugs."""
SMALLEST = 10
"""Admissions of the smallest real hospital that takes part; each has a death, too, as in the presets."""
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Case:
    """Rows of all clients one after the other, the list of all codes, and what is asked."""

    rows: dict[str, NDArray[Any]]
    starts: NDArray[np.intp]
    vocabulary: tuple[str, ...]
    listed: Frequencies
    unknown: FrequentCodes
    numbers: tuple[Quantiles, ...]

    @property
    def clients(self) -> int:
        return len(self.starts) - 1


def synthetic() -> Case:
    data = make_synthetic_hospital_data()
    order = data.clients.rows
    train = data.train[order]
    drugs = train[:, PLAIN:]
    names = np.array([_spelled(number) for number in range(drugs.shape[1])], object)
    texts = names[drugs.indices]
    codes = [tuple(texts[a:b]) for a, b in zip(drugs.indptr[:-1], drugs.indptr[1:], strict=True)]
    dense = train[:, :2].toarray().astype(float)
    rows = {"code": _objects(codes), "age": 15 + 74 * dense[:, 0], "mrci": 2 + 58 * dense[:, 1]}
    age = Quantiles(name="age", column="age", low=0, high=110, bins=55)
    mrci = Quantiles(name="mrci", column="mrci", low=0, high=60, bins=60)
    # about 200 admissions with ten drugs each, many of them the same
    return _case(rows, data.clients.starts, 1000, ALPHABET, 7, (age, mrci))


def sih_sus() -> Case:
    admissions = load_admissions("sih-sus", "auto")
    _, hospital, sizes = np.unique(np.asarray(admissions.hospitals), return_inverse=True, return_counts=True)
    deaths = np.bincount(hospital, admissions.died)
    chosen = np.flatnonzero((sizes >= SMALLEST) & (deaths > 0))
    order = np.argsort(hospital, kind="stable")
    order = order[np.isin(hospital[order], chosen)]
    rows = {
        "code": _objects(admissions.categorical["procedure"].to_list())[order],
        "age": admissions.numeric["age"].to_numpy().astype(float)[order],
    }
    starts = np.concatenate([[0], np.cumsum(sizes[chosen])])
    age = Quantiles(name="age", column="age", low=0, high=110, bins=55)
    return _case(rows, starts, None, "0123456789", 10, (age,))


def _case(
    rows: dict[str, NDArray[Any]],
    starts: NDArray[np.intp],
    most: int | None,
    alphabet: str,
    characters: int,
    numbers: tuple[Quantiles, ...],
) -> Case:
    found = {text for texts in rows["code"] for text in ((texts,) if isinstance(texts, str) else texts)}
    vocabulary = tuple(sorted(found))
    return Case(
        rows=rows,
        starts=starts,
        vocabulary=vocabulary,
        listed=Frequencies(name="codes", column="code", vocabulary=vocabulary, among="units", most=most),
        unknown=FrequentCodes(name="codes", column="code", alphabet=alphabet, characters=characters),
        numbers=numbers,
    )


def _spelled(drug: int) -> str:
    number = int.from_bytes(hashlib.sha256(f"synthetic drug {drug}".encode()).digest()[:8], "little")
    return "".join(ALPHABET[number // 36**place % 36] for place in range(7))


def _objects(values: Iterable[Any]) -> NDArray[Any]:
    listed = list(values)
    found = np.empty(len(listed), object)
    found[:] = listed
    return found


def sum_of(question: Question, case: Case, block: int = 100) -> NDArray[np.float64]:
    """The sum of all clients' vectors, without noise."""
    found = np.zeros(question.length)
    for first in range(0, case.clients, block):
        starts = case.starts[first : first + block + 1]
        rows: Columns = {name: case.rows[name][starts[0] : starts[-1]] for name in question.columns}
        found += question.vectors(rows, starts - starts[0]).sum(axis=0)
    return found


def noise_of(epsilon: float, clients: int, releases: int) -> float:
    """Deviation of the noise in the sum of one of so many releases, all within ε."""
    settings = ClientPrivacy(
        clip_norm=1.0, epsilon=epsilon, delta=1e-5, rounds=releases, spare_attempts=0, sampling="all"
    )
    settings = settings.resolve(clients=clients, cohort=clients, rounds=releases)
    sampling = settings.sampling_of(clients=clients, cohort=clients)
    privacy = ClientMechanism(settings=settings, sampling=sampling)
    return privacy.noise_multiplier * math.sqrt(sampling.roster_size / privacy.shares.honest)


def holders(case: Case) -> NDArray[np.float64]:
    """The share of clients that hold each code."""
    places = {code: place for place, code in enumerate(case.vocabulary)}
    found = np.zeros(len(places))
    for first, last in zip(case.starts[:-1], case.starts[1:], strict=True):
        held = {code for row in case.rows["code"][first:last] for code in ((row,) if isinstance(row, str) else row)}
        found[[places[code] for code in held]] += 1
    return found / case.clients


def recalls(found: NDArray[np.bool_], share: NDArray[np.float64]) -> dict[str, float | None]:
    """By the share of clients that hold a code, which part of them was found."""
    names = [*(f"{low:.3g} to {min(high, 1):.3g}" for low, high in BANDS[:-1]), "1/3 or more"]
    bands = [(share >= low) & (share < high) for low, high in BANDS]
    return {name: float(found[band].mean()) if band.any() else None for name, band in zip(names, bands, strict=True)}


def truth(question: Quantiles, case: Case) -> NDArray[np.float64]:
    """Quantiles over rows that count 1/n at a client with n rows."""
    sizes = np.diff(case.starts)
    numbers, weights = case.rows[question.column], np.repeat(1 / np.maximum(sizes, 1), sizes)
    order = np.argsort(numbers, kind="stable")
    below = np.cumsum(weights[order]) / weights.sum()
    return np.asarray(numbers[order][np.searchsorted(below, question.at)], float)


def averaged(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over runs of all numbers in equal records."""
    first = runs[0]
    return {
        name: averaged([run[name] for run in runs])
        if isinstance(value, dict)
        else None
        if value is None
        else round(float(np.mean([run[name] for run in runs])), 4)
        for name, value in first.items()
    }


def measure(name: str, case: Case, runs: int) -> list[dict[str, Any]]:
    """One row for each ε."""
    share = holders(case)
    listed, unknown = sum_of(case.listed, case), sum_of(case.unknown, case)
    numbers = {question.name: (question, sum_of(question, case), truth(question, case)) for question in case.numbers}
    rows = []
    for epsilon in EPSILONS:
        once, half = (noise_of(epsilon, case.clients, releases) for releases in (1, 2))
        measured = []
        for run in range(runs):
            rng = generator(run, "statistics noise", name, epsilon)

            def ask(question: Any, value: Any, noise: float, rng: np.random.Generator = rng) -> Any:
                noisy = value + noise * rng.standard_normal(len(value))
                return question.read(Total(value=noisy, noise=noise, units=case.clients))

            table = ask(case.listed, listed, once).tables["frequencies"]
            count = len(case.vocabulary)
            estimate, high, low = (np.array(table[column][:count]) for column in ("share", "high", "low"))
            candidates = ask(case.unknown, unknown, half)
            question = case.unknown.confirm(candidates)
            confirmed = ask(question, sum_of(question, case), half).tables["frequencies"]
            codes = set(confirmed.get("entry", ()))
            tried, named = (
                np.array([code in some for code in case.vocabulary]) for some in (set(question.vocabulary), codes)
            )
            kept, likely = high >= 1 / 3, estimate >= 1 / 6
            found: dict[str, Any] = {
                "public list": {
                    "kept": float(kept.sum()),
                    "recall of kept": recalls(kept, share),
                    "likely": float(likely.sum()),
                    "recall of likely": recalls(likely, share),
                    "mean absolute error of shares": float(np.abs(estimate - share).mean()),
                    "intervals that hold the share": float(((low <= share) & (share <= high)).mean()),
                },
                "unknown vocabulary": {
                    "candidates": float(len(question.vocabulary)),
                    "recall of candidates": recalls(tried, share),
                    "named": float(len(codes)),
                    "named that nobody holds": float(len(codes - set(case.vocabulary))),
                    "recall of named": recalls(named, share),
                },
            }
            for column, (asked, value, true) in numbers.items():
                read = ask(asked, value, once).estimates.values()
                found[column] = {
                    f"absolute error of quantile {at:g}": abs(one.value - right)
                    for at, one, right in zip(asked.at, read, true, strict=True)
                }
            measured.append(found)
        rows.append(
            {
                "clients": name,
                "number": case.clients,
                "epsilon": epsilon,
                "noise in a sum": round(once, 3),
                "noise in each of two": round(half, 3),
                **averaged(measured),
            }
        )
        print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    return rows


def main() -> None:
    cases = {"synthetic": synthetic, "sih-sus": sih_sus}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[[], *cases], default=[])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/statistics.json"))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    held: dict[str, dict[str, int]] = {}
    for name in options.cases or cases:
        case = cases[name]()
        bands = recalls(np.ones(len(case.vocabulary), bool), holders(case))
        rows += measure(name, case, options.runs)
        share = holders(case)
        held[name] = {
            band: int(((share >= low) & (share < high)).sum()) for band, (low, high) in zip(bands, BANDS, strict=True)
        } | {"all": len(case.vocabulary)}
    content = {"command": "python -m benchmarks.statistics", "runs": options.runs, "codes": held, "rows": rows}
    options.out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
