"""Trackers: they see the metrics of every round as numbers, and only those."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lowkey.errors import InvalidInput
from lowkey.experiments import RunDirectory
from lowkey.experiments.trackers import TRACKERS, open_tracker
from lowkey.simulation import run
from tests.conftest import tiny_config


def shown(directory: Path) -> dict[str, list[tuple[int, Any]]]:
    """What TensorBoard reads: step and value by name."""
    events = EventAccumulator(str(directory / "tensorboard"), size_guidance={"tensors": 0})
    events.Reload()
    tags = events.Tags()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags["scalars"]}


def test_every_number_of_the_metrics_arrives(run_path: Path) -> None:
    config = tiny_config("demo/fl-cs-dp", "privacy.noise_multiplier=1.0")
    with open_tracker("tensorboard", run_path) as tracker:
        assert tracker is not None
        run(config, run_path, observers=[tracker])
    found, metrics = shown(run_path), RunDirectory.open(run_path).metrics()
    assert len(metrics) == 3
    for name in ("accuracy", "loss", "epsilon_pld", "epsilon_server", "bytes_up_total", "update_norm"):
        assert found[name] == [(m["round"], pytest.approx(m[name], rel=1e-6)) for m in metrics]
    assert found["seconds/round"] == [(m["round"], pytest.approx(m["seconds"]["round"], rel=1e-6)) for m in metrics]
    assert not {"round", "decoder", "median_norm"} & found.keys()  # no number, or the step itself


def test_metrics_as_a_plain_table_are_enough(run_path: Path) -> None:
    """Whoever has a line of metrics.jsonl can send it, as a deployed run does."""
    with open_tracker("tensorboard", run_path) as tracker:
        assert tracker is not None
        assert not run_path.exists()  # nothing is made before there is something to say
        for number, accuracy in enumerate((0.25, 0.5), start=1):
            line = {"accuracy": accuracy, "epsilon_pld": None, "decoder": {"stopped": "exact"}}
            tracker({"round": number, "seconds": {"round": 2.0}, "calibration": [[1, 2]], **line})
    assert shown(run_path) == {"accuracy": [(1, 0.25), (2, 0.5)], "seconds/round": [(1, 2.0), (2, 2.0)]}


def test_an_unknown_tracker_names_what_there_is(run_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"--track is 'tensorbord'; it must be one of tensorboard; did you mean"):
        open_tracker("tensorbord", run_path)
    with open_tracker(None, run_path) as nothing:
        assert nothing is None
    assert list(TRACKERS) == ["tensorboard"]
