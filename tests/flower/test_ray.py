"""Flower's own simulation engine runs the same app; needs Ray, which `make` installs and Lowkey does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lowkey.experiments import load_config
from lowkey.experiments.checkpoints import unpack
from lowkey.flower.node import REPLAY_VARIABLE
from lowkey.rng import ReplaySecrets
from lowkey.simulation import run
from tests.flower.loopback import PRIVATE
from tests.flower.ray_engine import on_ray


def test_the_same_app_under_flowers_simulation_engine(tmp_path: Path) -> None:
    pytest.importorskip(
        "ray", reason="the simulation engine needs Ray: pip install -c constraints.txt 'flwr[simulation]'"
    )
    preset, changes = PRIVATE
    config = load_config(preset, [*changes, "schedule.rounds=1", "runtime.workers=0"], nodes=4)
    out = on_ray(config, tmp_path, nodes=4, seconds=200, more={REPLAY_VARIABLE: "7"})
    run(config, tmp_path / "simulated", secrets=ReplaySecrets(7))
    deployed, simulated = (unpack(next(d.glob("checkpoint-*"))).state.weights for d in (out, tmp_path / "simulated"))
    np.testing.assert_array_equal(deployed, simulated)
