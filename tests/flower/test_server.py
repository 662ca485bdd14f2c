"""What the server's half of an app tells its operator."""

from __future__ import annotations

import logging

import pytest

from lowkey.flower.server import log_round
from lowkey.tasks import Score


def test_the_servers_log_has_the_scores_of_the_task_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    metrics = {
        "round": 4, "auroc": 0.75, "loss": 1.0, "calibration": [[0.5, 0.25, 0.25, 4]], "epsilon_pld": 0.12341,
        "bytes_up_per_client": 8, "survivors": 2, "seconds": {"sum": 0.25},
    }  # fmt: skip
    with caplog.at_level(logging.INFO):
        log_round(metrics, (Score("auroc", "AUROC"), Score("accuracy", "accuracy")))
    assert caplog.messages == ["round 4: AUROC 0.7500, ε 0.1235, up 8 bytes, survivors 2; seconds: sum 0.2"]
