"""What a hospital gains from correcting the common model for itself, at no ε.

    python -m benchmarks.personal [--explore] [--out results/personal.json]

Models of ``hospital/sih-sus/private`` and ``hospital/sih-sus/head`` (LOWKEY_HOSPITAL_DATA tells where the file is),
five seeds each. Every hospital fits its correction on its training rows and is judged on its own test rows, by which
nothing was chosen: figures are log losses and Brier scores of all test rows together, as means over hospitals, and by
size. A hospital's test rows have the same share of deaths as its training rows, by the way they are held out, which
flatters an intercept of its own. So the same is measured on "halves", a random half of its training rows to fit and the
other to judge, where the common model has seen both.

Settings were written down first. ``--explore`` then looked at others: on SIH/SUS with other seeds and on virtual
hospitals of diabetes130, by halves. It changed nothing. (Of another seed's training rows some are test rows here, so
what looked better on SIH/SUS alone, weights of 1, was not taken.)
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.evaluation import logits, trained
from lowkey import Personal
from lowkey.durable import replace_file
from lowkey.learning import auroc
from lowkey.tasks import MORTALITY

WAYS = {
    "recalibrated": Personal(),
    "weights too": Personal(weights=0.5),
}
GRID = {
    **{f"intercept {i:g}, slope {s:g}": Personal(intercept=i, slope=s) for i in (0.25, 0.5, 1.0) for s in (0.0, 0.2)},
    **{f"weights {w:g}": Personal(weights=w) for w in (0.25, 0.5, 1.0, 2.0)},
}
SIZES = {"below 50 rows": (0, 50), "50 to 200": (50, 200), "above 200": (200, 10**9)}


class Side(NamedTuple):
    """Rows of a hospital: features, logits of the common model, what happened."""

    inputs: Any
    logits: NDArray[np.float64]
    labels: NDArray[np.float64]


def hospitals(preset: str, seed: int, *, halves: bool) -> Iterator[tuple[Side, Side]]:
    """What each hospital fits on, and what it is judged on."""
    config, model = trained(preset, seed)
    assert MORTALITY.held_out is not None
    train, test = MORTALITY.all_clients(config.study), MORTALITY.held_out(config.study)
    rng = np.random.default_rng(seed)

    def side(inputs: Any, labels: NDArray[Any]) -> Side:
        return Side(inputs, logits(config, model, inputs), labels.astype(np.float64))

    for client in range(len(train)):
        inputs, labels, *_ = train[client]
        if halves:
            first = rng.random(len(labels)) < 0.5
            yield side(inputs[first], labels[first]), side(inputs[~first], labels[~first])
        else:
            yield side(inputs, labels), side(*test[client][:2])


def losses(now: NDArray[np.float64], labels: NDArray[np.float64]) -> tuple[float, float]:
    """Log loss and Brier score, summed over rows."""
    risk = expit(now)
    return float(np.sum(np.logaddexp(0, now) - labels * now)), float(np.sum((risk - labels) ** 2))


def measured(pairs: list[tuple[Side, Side]], ways: dict[str, Personal], centre: float) -> dict[str, Any]:
    """Figures of one model, by way."""
    judged = [(fitted, test) for fitted, test in pairs if len(test.labels)]
    sizes = np.array([len(fitted.labels) for fitted, _ in judged])
    labels = np.concatenate([test.labels for _, test in judged])
    rows = np.array([len(test.labels) for _, test in judged])
    found: dict[str, Any] = {}
    for name, way in {"common": None, **ways}.items():
        now = [
            test.logits
            if way is None
            else way.fit(fitted.logits, fitted.labels, fitted.inputs, centre=centre).apply(test.logits, test.inputs)
            for fitted, test in judged
        ]
        sums = np.array([losses(one, test.labels) for one, (_, test) in zip(now, judged, strict=True)])
        means = sums / rows[:, None]
        if name == "common":
            before = means
        found[name] = {
            "auroc": auroc(np.concatenate(now), labels > 0),
            "log_loss": float(sums[:, 0].sum() / len(labels)),
            "brier": float(sums[:, 1].sum() / len(labels)),
            "log_loss_of_hospitals": float(means[:, 0].mean()),
            "brier_of_hospitals": float(means[:, 1].mean()),
        }
        for size, (least, most) in SIZES.items():
            inside = (sizes >= least) & (sizes < most)
            if inside.any():
                found[name][size] = {
                    "hospitals": float(inside.sum()),
                    "log_loss": float(sums[inside, 0].sum() / rows[inside].sum()),
                    "gained": float((means[inside, 0] < before[inside, 0]).mean()),
                }
    return found


def average(runs: list[Any]) -> Any:
    """Means of figures of equal shape."""
    if isinstance(runs[0], dict):
        return {key: average([run[key] for run in runs]) for key in runs[0]}
    return round(float(np.mean(runs)), 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--explore", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results/personal.json"))
    options = parser.parse_args()
    names, seeds, ways = ("sih-sus/private", "sih-sus/head"), range(5), WAYS
    if options.explore:
        names, seeds, ways = ("sih-sus/private", "diabetes130/private"), range(100, 102), GRID
    centre, content = float(np.log(0.05 / 0.95)), {}
    for name in names:
        for place in ("halves",) if options.explore else ("test rows", "halves"):
            pairs = (list(hospitals(f"hospital/{name}", seed, halves=place == "halves")) for seed in seeds)
            content[f"{name}, {place}"] = average([measured(one, ways, centre) for one in pairs])
            print(name, place, json.dumps(content[f"{name}, {place}"], indent=1), flush=True)
    if not options.explore:
        kept = {"command": "python -m benchmarks.personal", "seeds": len(seeds), **content}
        replace_file(options.out, (json.dumps(kept, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
