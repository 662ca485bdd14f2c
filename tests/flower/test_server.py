"""What the server's half of an app tells its operator."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from lowkey.federation import RoundRecord, RunState
from lowkey.federation.records import RoundOutcome
from lowkey.flower.server import log_round


def test_the_servers_log_has_numbers_and_no_tables(caplog: pytest.LogCaptureFixture) -> None:
    state = RunState(round=4, weights=np.zeros(1, np.float32), server={})
    outcome = RoundOutcome(
        state=state, bytes_up_per_client=8, bytes_down_per_client=8, survivors=2, update_norm=1.0, residual_norm=0.0,
        nonzeros=1, relative_gap=0.0, iterations=0, stopped="exact", regularisation=0.0, median_norm=None,
    )  # fmt: skip
    evaluation = {"auroc": 0.75, "calibration": [[0.5, 0.25, 0.25, 4]]}
    with caplog.at_level(logging.INFO):
        log_round(RoundRecord(outcome=outcome, evaluation=evaluation, epsilon=None, server_epsilon=None, seconds={}))
    assert "round 4: auroc 0.7500, up 8 bytes" in caplog.text
