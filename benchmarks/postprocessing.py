"""Do averages of iterates and noise-aware Adam help the paper's networks at ε = 1? Both are free: post-processing.

    python -m benchmarks.postprocessing [--only PRESET ...] [--out results/postprocessing.json]

The hospitals' files are found through LOWKEY_HOSPITAL_DATA, as docs/hospital.md says.

Every run keeps all averages of its own iterates, so that the last iterate and its averages are compared on one run.
Adam changes the iterates and needs runs of its own. Its settings follow from numbers known before a run. ``floor`` is
what noise alone leaves of a second moment from which its variance was taken: σ (2(1 − β₂) / (1 + β₂))^¼, with
σ = z · S / cohort · √ratio in each coordinate of the decoded mean. ``rate`` is a multiple of floor · η / (1 − ρ), at
which a coordinate whose signal is below the floor moves as in the preset. In FL-CS, Adam takes the place of error
feedback, which with the adjoint is momentum and nothing else: its own ``beta1`` is the momentum.

For hospitals, multiples of the steps are tried for the preset, too, so that Adam has no choice that the preset has not;
the network on images, whose runs are long, has one seed, Adam two multiples, and the preset its own steps. The
test data of a seed is halved at random, evenly in all classes. For each optimiser and seed the multiple is chosen whose
last iterate is best on the first half; all figures in the tables are of the second half and the last round. Privacy
noise cannot be replayed: other runs give other digits. Runs stay in build/postprocessing and are gone on with.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

import lowkey
from lowkey.experiments import Config
from lowkey.learning import TorchEvaluator
from lowkey.rng import generator
from lowkey.server import (
    AVERAGES,
    Adam,
    Averaging,
    ErrorFeedback,
    ExponentialAverage,
    LastIterate,
    Plain,
    State,
    TailAverage,
)
from lowkey.types import FloatArray

DIRECTORY = Path(__file__).parents[1] / "build" / "postprocessing"
HALVES = ("chosen_on", "reported")
NOTES = (
    "Figures in the tables are of the last round, on the half of the test data ('reported') that chose nothing.",
    "'chosen' is, for each seed, the multiple of the steps whose last iterate is best on the other half ('chosen_on').",
    "A gain is that of an average over the last iterate of the same run.",
    "The network on images has one seed, and the preset only its own steps there, where Adam could choose between two.",
    "Whole updates of the network on images were run for 50 rounds, with noise calibrated to 50, instead of 200.",
)


@dataclass(frozen=True, kw_only=True)
class Several:
    """Several averages of the same iterates at once; the last iterate is released.

    Parameters
    ----------
    decays : tuple of float
        Of exponential averages.
    starts : tuple of int
        Of tail averages.
    """

    decays: tuple[float, ...] = ()
    starts: tuple[int, ...] = ()

    @property
    def parts(self) -> dict[str, Averaging]:
        """All of them by name."""
        return {
            "last": LastIterate(),
            **{f"exponential {decay}": ExponentialAverage(decay=decay) for decay in self.decays},
            **{f"tail from {start}": TailAverage(start=start) for start in self.starts},
        }

    def init(self, weights: FloatArray) -> State:
        return _joined({name: part.init(weights) for name, part in self.parts.items()})

    def add(self, state: State, weights: FloatArray, round_number: int) -> State:
        return _joined({n: part.add(_of(n, state), weights, round_number) for n, part in self.parts.items()})

    def released(self, state: State, weights: FloatArray) -> FloatArray:
        return weights

    def models(self, state: State, weights: FloatArray) -> dict[str, FloatArray]:
        """What each of them would release."""
        return {name: part.released(_of(name, state), weights) for name, part in self.parts.items()}


def _joined(states: Mapping[str, State]) -> State:
    return {f"{name}/{key}": array for name, state in states.items() for key, array in state.items()}


def _of(name: str, state: State) -> State:
    return {key.removeprefix(f"{name}/"): array for key, array in state.items() if key.startswith(f"{name}/")}


AVERAGES.add("several", Several)


@dataclass(frozen=True)
class Case:
    """A preset, its seeds, and multiples of the steps to choose from, for the optimiser of the preset and for Adam.

    ``rounds`` is their number, where it is not that of the preset; the noise is calibrated to it.
    """

    preset: str
    score: str
    seeds: tuple[int, ...]
    multiples: Mapping[str, tuple[float, ...]]
    changes: tuple[str, ...]
    rounds: int | None = None


IMAGES = ("privacy.noise_multiplier=auto", "privacy.epsilon=1", "schedule.evaluate_every=10")
CASES = (
    *(
        Case(
            f"hospital/{source}/{row}",
            "auroc",
            (0, 1, 2, 3),
            {"preset": (0.5, 1.0, 2.0), "adam": (1.0, 2.0)},
            ("schedule.evaluate_every=100",),
        )
        for source in ("sih-sus", "diabetes130")
        for row in ("fl-cs-dp-r0.05", "fl-std-dp")
    ),
    Case("fashion-mnist/fl-cs-dp-r0.05", "accuracy", (0,), {"preset": (1.0,), "adam": (1.0, 2.0)}, IMAGES),
    Case("fashion-mnist/fl-std-dp", "accuracy", (0,), {"preset": (1.0,)}, IMAGES, rounds=50),
)


def configured(case: Case, seed: int, optimiser: str, multiple: float) -> Config:
    """The preset with all averages, with steps of another length, and perhaps with Adam."""
    changes = [*case.changes, f"seed={seed}", "runtime.checkpoint_every=5"]
    changes += [f"schedule.rounds={case.rounds}"] if case.rounds else []
    preset = lowkey.load_config(case.preset, changes)
    rounds, gather = preset.schedule.last_round, preset.gather
    starts = [rounds // 2 + 1, rounds * 3 // 4 + 1]
    changes.append(f'averaging={{kind="several", decays=[0.9, 0.95], starts={starts}}}')
    if optimiser == "adam":
        floor, rate = adam(preset)
        changes.append(f'server={{optimiser="adam", rate={multiple * rate:.3g}, floor={floor:.3g}}}')
        changes.append('gather={kind="decode"}')
    elif isinstance(gather, ErrorFeedback):
        changes.append(f"gather.rate={multiple * gather.rate:.3g}")
    else:
        changes.append(f"server.rate={multiple * plain_rate(preset):.3g}")
    return lowkey.load_config(case.preset, changes)


def adam(preset: Config) -> tuple[float, float]:
    """Floor and rate of Adam by the rule above."""
    privacy, gather, beta2 = preset.privacy, preset.gather, Adam().beta2
    assert privacy is not None
    noise = float(privacy.noise_multiplier) * privacy.norm / preset.federation.cohort * preset.codec.ratio**0.5
    floor = noise * (2 * (1 - beta2) / (1 + beta2)) ** 0.25
    steps = gather.rate / (1 - gather.momentum) if isinstance(gather, ErrorFeedback) else 1.0
    return floor, floor * steps * plain_rate(preset)


def plain_rate(preset: Config) -> float:
    """The server's rate in a preset; none of them has momentum there."""
    assert isinstance(preset.server, Plain)
    return float(preset.server.rate)


def measured(config: Config, directory: Path, score: str) -> dict[str, Any]:
    """Scores of all averages on both halves, after a run that is made first, or to its end, if need be."""
    kept = directory / "scores.json"
    if kept.exists():
        found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    if not (directory / "result.json").exists():
        lowkey.run(config, directory, resume=(directory / "config.toml").exists(), observers=[show(score)])
    run = lowkey.RunDirectory.open(directory)
    state = run.load_checkpoint(run.ledger())
    run.unlock()
    several, (first, second) = config.averaging, halves(config)
    assert isinstance(several, Several)
    assert state is not None
    assert state.round == config.schedule.last_round
    models = several.models(state.average, state.weights)
    summary = run.summary()
    found = {
        "rounds": state.round,
        "epsilon_pld": round(summary["epsilon_pld"], 4),
        "whole_test": round(float(summary[f"final_{score}"]), 4),
        **{
            half: {name: round(cast(float, evaluator(weights)[score]), 4) for name, weights in models.items()}
            for half, evaluator in zip(HALVES, (first, second), strict=True)
        },
        "curve_whole_test": {m["round"]: round(m[score], 4) for m in run.metrics() if m.get(score) is not None},
    }
    kept.write_text(json.dumps(found) + "\n", encoding="utf-8")
    return found


def halves(config: Config) -> list[TorchEvaluator]:
    """An evaluator for each half of the test data; the halves have as many examples of each class, give or take one."""
    task, study = config.find_task(), config.study
    inputs, targets = cast(tuple[Any, Any], task.test(study))
    shuffled = generator(config.seed, "halves of the test data").permutation(len(targets))
    by_class = shuffled[np.argsort(np.asarray(targets)[shuffled], kind="stable")]
    module, objective = task.model(study), task.objective(study)
    rows = (np.sort(by_class[start::2]) for start in range(2))
    return [TorchEvaluator(module, (inputs[half], targets[half]), objective=objective) for half in rows]


def show(score: str) -> Any:
    """Tell now and then how a run goes."""

    def observer(metrics: Mapping[str, Any]) -> None:
        if metrics["round"] % 20 == 0:
            print(f"  round {metrics['round']}: {metrics.get(score)}, {metrics['seconds']['round']} s", flush=True)

    return observer


def table(case: Case, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Scores on the second half: for every multiple, and for the one that each seed chooses on its first half."""
    rows, choices = [], {}
    for optimiser, multiples in case.multiples.items():
        of_seed = [[r for r in runs if (r["optimiser"], r["seed"]) == (optimiser, seed)] for seed in case.seeds]
        chosen = [max(tried, key=lambda run: run["chosen_on"]["last"]) for tried in of_seed]
        groups = {
            str(m): [run for run in runs if (run["optimiser"], run["multiple"]) == (optimiser, m)] for m in multiples
        }
        for multiple, found in (groups | {"chosen": chosen}).items():
            scores = [run["reported"] for run in found]
            rows += [
                {
                    "optimiser": optimiser,
                    "multiple": multiple,
                    "average": name,
                    "score": spread([each[name] for each in scores]),
                    "gain_over_last": spread([each[name] - each["last"] for each in scores]),
                }
                for name in scores[0]
            ]
        choices[optimiser] = [run["multiple"] for run in chosen]
    return {
        "preset": case.preset,
        "rounds": runs[0]["rounds"],
        "score": case.score,
        "seeds": case.seeds,
        "chosen": choices,
        "rows": rows,
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean and range over seeds."""
    mean = statistics.fmean(values)
    return {"mean": round(mean, 4), "lowest": round(min(values), 4), "highest": round(max(values), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=[case.preset for case in CASES], help="these presets alone; name another --out"
    )
    parser.add_argument("--out", type=Path, default=Path("results/postprocessing.json"))
    options = parser.parse_args()
    tables, runs = [], []
    for case in CASES:
        if options.only and case.preset not in options.only:
            continue
        rows = []
        for optimiser, multiple in [(o, m) for o, multiples in case.multiples.items() for m in multiples]:
            for seed in case.seeds:
                config = configured(case, seed, optimiser, multiple)
                assert config.privacy is not None
                rounds = f"_{case.rounds}-rounds" if case.rounds else ""
                name = f"{case.preset.replace('/', '_')}_{optimiser}-{multiple}_{seed}{rounds}"
                print(name, flush=True)
                settings = {part: config.to_table()[part] for part in ("gather", "server")}
                row = {"preset": case.preset, "optimiser": optimiser, "multiple": multiple, "seed": seed, **settings,
                       "noise_multiplier": config.privacy.noise_multiplier,
                       **measured(config, DIRECTORY / name, case.score)}  # fmt: skip
                rows.append(row)
                print(f"  {row['reported']}", flush=True)
        tables.append(table(case, rows))
        runs += rows
        content = {"command": "python -m benchmarks.postprocessing", "notes": NOTES, "tables": tables, "runs": runs}
        options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
